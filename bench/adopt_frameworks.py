"""Scripts of transformers' Trainer, of Accelerate and of Lightning that adopt.py runs: a small GPT-2 on random tokens."""

HEAD = """
import json, os, sys, time
import torch, torch.distributed as dist, transformers
from torch.utils.data import DataLoader
from torch.optim.optimizer import register_optimizer_step_post_hook
case = json.loads(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(0)
size = dict(vocab_size=64, n_positions=64, n_embd=64, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0)
module = transformers.GPT2LMHeadModel(transformers.GPT2Config(**size, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
tokens = torch.randint(64, (case["steps"] * case["batch"] * int(os.environ["WORLD_SIZE"]), 64))
samples = [{"input_ids": row, "labels": row} for row in tokens]
taken = [0]
module.register_forward_pre_hook(lambda _, args, kwargs: taken.__setitem__(0, len(kwargs["input_ids"])), with_kwargs=True)
register_optimizer_step_post_hook(lambda *_: print(json.dumps([time.time(), taken[0]]), flush=True))
"""
TAIL = """
if dist.get_rank() == 0:
    torch.save(module.state_dict(), case["state"])
"""
READY = """print("ready", flush=True); sys.stdin.readline()
"""

TRAINER = (
    HEAD
    + READY
    + """
trainer = transformers.Trainer(module, transformers.TrainingArguments(
    output_dir=case["folder"], per_device_train_batch_size=case["batch"], use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no",
    optim="sgd", learning_rate=0.01, max_steps=case["steps"]), train_dataset=samples)
trainer.train()
"""
    + TAIL
)
ACCELERATE = (
    HEAD
    + """
from accelerate import Accelerator
"""
    + READY
    + """
accelerator = Accelerator(cpu=True)
optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
loader = DataLoader(samples, case["batch"])
model, optimizer, loader = accelerator.prepare(module, optimizer, loader)
for batch in loader:
    optimizer.zero_grad()
    accelerator.backward(model(**batch).loss)
    optimizer.step()
"""
    + TAIL
)
LIGHTNING = (
    HEAD
    + """
import lightning
"""
    + READY
    + """
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.gpt = module

    def training_step(self, batch, _):
        return self.gpt(**batch).loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

trainer = lightning.Trainer(
    accelerator="cpu", strategy="ddp", devices=int(os.environ["WORLD_SIZE"]), max_steps=case["steps"], logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Module(), DataLoader(samples, case["batch"]))
"""
    + TAIL
)
IMPORT = ("import torch, torch.distributed as dist, transformers", "import torch, torch.distributed as dist, transformers, motley.torch")
SCRIPTS = {
    "trainer": (TRAINER, [IMPORT, ("\ntrainer.train()", "\nmotley.torch.share(trainer).train()")]),
    "accelerate": (
        ACCELERATE,
        [IMPORT, ("Accelerator(cpu=True)", "motley.torch.share(Accelerator(cpu=True))"), ("for batch in loader", "for batch in motley.torch.share(loader)")],
    ),
    "lightning": (LIGHTNING, [IMPORT, ("\ntrainer.fit", "\nmotley.torch.share(trainer).fit")]),
}
