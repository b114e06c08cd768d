"""One rank of the cases of test_frameworks.py: python framework_cases.py FOLDER CASE..., under RANK, WORLD_SIZE, ...

A case is a script of its framework. In one process it trains on the global batches without Motley; in two it shares them. Rank 0
writes the state of what was trained to FOLDER/CASE-WORLD.pt, and prints a line of JSON a case.
"""

import json
import os
import sys
import time
import warnings

import lightning.pytorch as L
import torch
import torch.distributed as dist
import transformers as hf
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DataLoaderConfiguration, DistributedType
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

import motley.torch
from motley.torch import session

FOLDER = sys.argv[1]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BATCH = 24 // WORLD
SAMPLES, VOCABULARY, LENGTH = 120, 17, 6
SHARES = [5, 2]


def share(thing, **options):
    return motley.torch.share(thing, **({"shares": SHARES} | options)) if WORLD > 1 else thing


class Rows(Dataset):
    """Dicts, as collators of transformers take them."""

    def __init__(self, **columns):
        self.columns = columns

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i):
        return {name: column[i] for name, column in self.columns.items()}


def texts():
    torch.manual_seed(2)
    labels = torch.randint(VOCABULARY, (SAMPLES, LENGTH))
    labels[torch.rand(SAMPLES, LENGTH) < torch.linspace(0, 0.95, SAMPLES)[:, None]] = -100
    return Rows(input_ids=torch.randint(VOCABULARY, (SAMPLES, LENGTH)), labels=labels)


def pictures():
    torch.manual_seed(2)
    return Rows(x=3 + torch.randn(SAMPLES, 1, 8, 8), labels=torch.randint(10, (SAMPLES,)))


class Cnn(nn.Module):
    """Batch norm, and a loss that is the local mean."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 6, 3, bias=False), nn.BatchNorm2d(6), nn.Tanh(), nn.Flatten(), nn.Linear(216, 10))

    def forward(self, x, labels=None):
        logits = self.layers(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Words(nn.Module):
    """A mean over tokens that takes no num_items_in_batch."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Embedding(VOCABULARY, 16), nn.Tanh(), nn.Linear(16, VOCABULARY))

    def forward(self, input_ids, labels=None):
        logits = self.layers(input_ids)
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def seeded(build):
    torch.manual_seed(1)
    return build()


def gpt2():
    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0,
                                            embd_pdrop=0, attn_pdrop=0))  # fmt: skip


def arguments(**options):
    return hf.TrainingArguments(
        output_dir=f"{FOLDER}/trainer", per_device_train_batch_size=BATCH, use_cpu=True, seed=3, report_to=[], disable_tqdm=True,
        learning_rate=0.1, optim="sgd", lr_scheduler_type="constant", **({"max_steps": 20, "logging_steps": 5, "save_strategy": "no"} | options),
    )  # fmt: skip


def trainer(model, data, kind=hf.Trainer, options=None, **more):
    made = share(kind(model=model, args=arguments(**more), train_dataset=data), **(options or {}))
    made.train()
    return model, {"losses": [each["loss"] for each in made.state.log_history if "loss" in each]}


class OwnLoss(hf.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **_):
        labels = inputs["labels"]
        logits = model(**inputs)["logits"]
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return (loss, logits) if return_outputs else loss


def resumed():
    """Stopped inside an epoch, and gone on with."""
    model, data = seeded(gpt2), texts()
    trainer(model, data, max_steps=7, save_strategy="steps", save_steps=7)
    model = seeded(gpt2)
    made = share(hf.Trainer(model=model, args=arguments(), train_dataset=data))
    made.train(resume_from_checkpoint=f"{FOLDER}/trainer/checkpoint-7")
    return model, {}


def accelerate(model, data, weight="samples", accumulated=1, epochs=4, workers=0, shares=SHARES):
    """20 batches; evaluates on each rank's own, even batches after every epoch."""
    AcceleratorState._reset_state()
    settings = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=3)
    made = Accelerator(cpu=True, dataloader_config=settings, gradient_accumulation_steps=accumulated)
    accelerator = share(made, shares=shares, weight=weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader, held = DataLoader(data, BATCH, shuffle=True, num_workers=workers), DataLoader(data, BATCH)
    wrapped, optimizer, loader, held = accelerator.prepare(model, optimizer, loader, held)
    if WORLD > 1:
        loader = motley.torch.share(loader)
    counts, seen = [], 0
    for _ in range(epochs):
        wrapped.train()
        for batch in loader:
            counts.append(len(batch["labels"]))
            with accelerator.accumulate(wrapped):
                accelerator.backward(wrapped(**batch)["loss"])
                optimizer.step()
                optimizer.zero_grad()
        wrapped.eval()
        with torch.no_grad():
            seen = sum(len(accelerator.gather_for_metrics(wrapped(**batch)["logits"])) for batch in held)
    return model, {"counts": counts, "evaluated": seen}


class Module(L.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model, self.losses = model, []

    def training_step(self, batch, _):
        loss = self.model(**batch)["loss"]
        self.losses.append(loss.item())
        self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        self.log("held", self.model(**batch)["loss"], sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def lightning(model, data, weight="samples", accumulated=1, shares=SHARES):
    options = dict(accelerator="cpu", max_epochs=4, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                   accumulate_grad_batches=accumulated, default_root_dir=FOLDER)  # fmt: skip
    if WORLD > 1:
        made = motley.torch.share(L.Trainer(strategy="ddp", devices=WORLD, **options), shares=shares, weight=weight)
        loader = DataLoader(data, BATCH, shuffle=True)
    else:
        made = L.Trainer(devices=1, **options)
        loader = DataLoader(data, BATCH, sampler=DistributedSampler(data, 1, 0))  # of the same order
    module = Module(model)
    made.fit(module, loader, DataLoader(data, BATCH))
    return model, {"losses": module.losses}


class Slow(Cnn):
    """Takes 1 or 3 ms a sample, by rank, and says how many it had."""

    def __init__(self):
        super().__init__()
        self.counts = []

    def forward(self, x, labels=None):
        if self.training:
            time.sleep(len(x) * 0.001 * 3**RANK)
            self.counts.append(len(x))
        return super().forward(x, labels)


def learns(train):
    """Samples of each rank, by step."""
    session.forget_all()  # as a script of its own
    model = seeded(Slow)
    train(model)
    found = [None] * WORLD
    dist.all_gather_object(found, model.counts)
    return model, {"samples": found}


def said(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def accelerator(**options):
    AcceleratorState._reset_state()
    return Accelerator(cpu=True, **options)


def refuses():
    """What each fault says."""
    data, settings = pictures(), DataLoaderConfiguration
    plain = accelerator()
    prepared, iterable = plain.prepare(DataLoader(data, BATCH), DataLoader(IterableRows(data), BATCH))
    shared = share(plain)
    parallel = L.Trainer(strategy="ddp", accelerator="cpu", devices=WORLD, logger=False, use_distributed_sampler=False)

    def after_prepare():
        made = accelerator()
        made.prepare(seeded(Cnn))
        share(made)

    def engine():
        made = accelerator()
        made.state.distributed_type = DistributedType.FSDP  # as the plugin sets it on GPUs
        share(made)

    def fit(module, *loaders):
        options = dict(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
        made = motley.torch.share(L.Trainer(strategy="ddp", devices=WORLD, **options))
        made.fit(module, loaders[0] if len(loaders) == 1 else list(loaders))

    loader = DataLoader(data, BATCH)
    found = {
        "split": said(lambda: share(accelerator(dataloader_config=settings(split_batches=True)))),
        "dispatch": said(lambda: share(accelerator(dataloader_config=settings(dispatch_batches=True)))),
        "engine": said(engine),
        "even": said(lambda: share(accelerator(dataloader_config=settings(even_batches=False)))),
        "compiled": said(lambda: share(accelerator(dynamo_backend="inductor"))),
        "late": said(after_prepare),
        "whose": said(lambda: motley.torch.share(accelerator().prepare(loader))),
        "weight": said(lambda: motley.torch.share(prepared, weight="tokens")),
        "twice": said(lambda: motley.torch.share(shared.share_loader(prepared, shared.split))),
        "iterable": said(lambda: motley.torch.share(iterable)),
        "plain weight": said(lambda: motley.torch.share(loader, weight="tokens")),
        "shares": said(lambda: share(accelerator(), shares=[3, 2, 1])),
        "average": said(lambda: share(hf.Trainer(model=seeded(Cnn), args=arguments(average_tokens_across_devices=False)))),
        "finds": said(lambda: share(hf.Trainer(model=seeded(Cnn), args=arguments(auto_find_batch_size=True)))),
        "stream": said(lambda: trainer(seeded(Cnn), IterableRows(data))),
        "strategy": said(lambda: share(L.Trainer(accelerator="cpu", devices=1, logger=False))),
        "sampler": said(lambda: share(parallel)),
        "loaders": said(lambda: fit(Module(seeded(Cnn)), loader, loader)),
    }
    return seeded(Cnn), found


class IterableRows(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


CASES = {
    "lightning": lambda: lightning(seeded(Cnn), pictures()),  # first: it starts the process group
    "lightning_tokens": lambda: lightning(seeded(Words), texts(), "tokens", accumulated=2),
    "accelerate": lambda: accelerate(seeded(Cnn), pictures()),
    "accelerate_tokens": lambda: accelerate(seeded(gpt2), texts(), lambda batch: (batch["labels"][:, 1:] != -100).sum(), accumulated=2),
    "accelerate_workers": lambda: accelerate(seeded(Words), texts(), "tokens", workers=2, epochs=1),
    "trainer": lambda: trainer(seeded(gpt2), texts()),
    "trainer_norm": lambda: trainer(seeded(Cnn), pictures()),
    "trainer_words": lambda: trainer(seeded(Words), texts(), gradient_accumulation_steps=2, max_steps=10),
    "trainer_smooth": lambda: trainer(seeded(gpt2), texts(), gradient_accumulation_steps=3, label_smoothing_factor=0.1, max_steps=8),
    "trainer_own": lambda: trainer(seeded(Words), texts(), OwnLoss),
    "resumed": resumed,
    "learns_trainer": lambda: learns(lambda model: trainer(model, pictures(), options={"shares": None}, gradient_accumulation_steps=2)),
    "learns_accelerate": lambda: learns(lambda model: accelerate(model, pictures(), shares=None)),
    "learns_lightning": lambda: learns(lambda model: lightning(model, pictures(), shares=None)),
    "refuses": refuses,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for case in sys.argv[2:]:
        model, told = CASES[case]()
        if RANK == 0:
            torch.save(model.state_dict(), f"{FOLDER}/{case}-{WORLD}.pt")
            print(json.dumps({"case": case, **told}), flush=True)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
