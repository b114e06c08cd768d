"""One rank of scripts that are drawn from a grammar of idioms: python torch_drawn.py SEED..., under RANK, WORLD_SIZE, ...

Each is trained by motley.torch, and on rank 0 on one device with the same global batches. Rank 0 prints a line of JSON a script: its
idioms, and how far parameters and statistics are apart, or what was said in its place.
"""

import contextlib
import copy
import json
import os
import random
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset, default_collate
from torch.utils.data.distributed import DistributedSampler

import motley.torch
from motley.torch import session

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CLASSES, FEATURES, SAMPLES = 4, 6, 61
CLASS_WEIGHTS = torch.tensor([0.1, 1.0, 2.0, 5.0])

ALONE = {"is": False}  # on one device


def cross_entropy(o, y, **options):
    """On one device of nobody's target nothing, where PyTorch's is no number."""
    if ALONE["is"] and "ignore_index" in options and (y == options["ignore_index"]).all():
        return o.sum() * 0
    return F.cross_entropy(o, y, **options)


# Of outputs, targets and a model.
LOSSES = {
    "cross_entropy": lambda o, y, m: cross_entropy(o, y.clamp(min=0)),
    "ignored": lambda o, y, m: cross_entropy(o, y, ignore_index=-7),
    "class_weights": lambda o, y, m: cross_entropy(o, y, weight=CLASS_WEIGHTS, ignore_index=-7),
    "smoothed": lambda o, y, m: cross_entropy(o, y, ignore_index=-7, label_smoothing=0.1),
    "mse": lambda o, y, m: F.mse_loss(o.tanh(), F.one_hot(y.clamp(min=0), CLASSES).float()),
    "mean_then_sum": lambda o, y, m: F.smooth_l1_loss(o, torch.ones_like(o), reduction="none").mean(0).sum(),
    "masked": lambda o, y, m: (cross_entropy(o, y.clamp(min=0), reduction="none") * (y >= 0)).sum() / (y >= 0).sum().clamp(min=1),
    "selected": lambda o, y, m: cross_entropy(o[y >= 0], y[y >= 0]) if (y >= 0).any() else o.sum() * 0,
    "sum_by_length": lambda o, y, m: cross_entropy(o, y.clamp(min=0), reduction="sum") / len(y),
    "inverse_length": lambda o, y, m: o.square().sum() * (1 / len(y)),
    "stacked": lambda o, y, m: torch.stack([cross_entropy(o, y, ignore_index=-7), o.square().mean()]).sum(),
    "decayed": lambda o, y, m: cross_entropy(o, y, ignore_index=-7) + 1e-3 * sum(p.square().sum() for p in m.parameters()),
    "two_terms": lambda o, y, m: 0.5 * cross_entropy(o, y, ignore_index=-7) + F.kl_div(F.log_softmax(o, 1), torch.full_like(o, 1 / CLASSES), reduction="batchmean"),
    "bce": lambda o, y, m: F.binary_cross_entropy_with_logits(o, F.one_hot(y.clamp(min=0), CLASSES).float()),
    "focal": lambda o, y, m: (lambda each: ((1 - torch.exp(-each)) ** 2 * each).mean())(cross_entropy(o, y.clamp(min=0), reduction="none")),
    "mixed_up": lambda o, y, m: (lambda part: part * cross_entropy(o, y.clamp(min=0)) + (1 - part) * cross_entropy(o, (y.clamp(min=0) + 1) % CLASSES))(0.3),
    "one_minus": lambda o, y, m: 1 - F.cosine_similarity(o, F.one_hot(y.clamp(min=0), CLASSES).float()).mean(),
}  # fmt: skip
SUMS = {"times_length": lambda o, y, m: cross_entropy(o, y.clamp(min=0)) * len(y) / 20, "sum": lambda o, y, m: cross_entropy(o, y.clamp(min=0), reduction="sum") / 20, "sums": lambda o, y, m: (o.square().sum() + F.mse_loss(o, torch.ones_like(o), reduction="sum")) / 40}  # fmt: skip
REFUSED = {"root": lambda o, y, m: F.mse_loss(o, torch.ones_like(o)).sqrt(), "norm": lambda o, y, m: o.norm() / 10, "product": lambda o, y, m: o.square().mean() * cross_entropy(o, y.clamp(min=0))}  # fmt: skip


class Body(nn.Module):
    """Layers with or without batch norm, and perhaps checkpoints."""

    def __init__(self, norm, kept):
        super().__init__()
        self.first, self.kept = nn.Linear(FEATURES, 8), kept
        self.norm = {"batch": nn.BatchNorm1d(8), "layer": nn.LayerNorm(8), "none": nn.Identity()}[norm]
        self.last = nn.Linear(8, FEATURES)

    def layers(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))))

    def forward(self, x):
        if self.kept is None:
            return self.layers(x)
        if self.kept and not x.requires_grad:
            x = x.detach().requires_grad_()
        return checkpoint(self.layers, x, use_reentrant=self.kept)


def draw(seed):
    """The idioms of a script."""
    d = random.Random(seed)
    kind = d.choices([LOSSES, SUMS, REFUSED], [12, 2, 1])[0]
    idioms = {
        "loss": d.choice(list(kind)),
        "bodies": d.choice([1, 1, 2]),
        "norm": d.choice(["none", "batch", "batch", "layer"]),
        "frozen": d.random() < 0.2,
        "kept": d.choice([None, None, None, False, True]),
        "passes": d.choice([1, 1, 1, 2, 3]),  # backward passes a step
        "together": d.random() < 0.4,  # in place of several backward passes, one through the sum
        "accumulate": d.choice([None, None, "synced", "no_sync", "weighed", "weighed_no_sync"]),
        "penalty": d.random() < 0.15,
        "reader": d.choice(["plain", "plain", "ahead", "cycle", "last"]),
        "sampler": d.choice(["plain", "shuffled", "own"]),
        "shares": d.choice(["even", "given", "given", "learned"]),
        "clip": d.random() < 0.3,
        "scaled": d.random() < 0.2,
        "evaluates": d.random() < 0.3,
        "average": d.random() < 0.2,
        "batch": d.choice([3, 4, 5]),
        "set_to_none": d.random() < 0.8,
    }
    if idioms["loss"] == "times_length" and str(idioms["accumulate"]).startswith("weighed"):
        idioms["accumulate"] = None
    if idioms["penalty"]:
        idioms["kept"] = None  # PyTorch's checkpoints allow no second derivative
    if idioms["kept"]:
        idioms["passes"] = 1  # nor reentrant ones several forward passes in DDP
    if idioms["accumulate"] in ("weighed", "weighed_no_sync"):
        idioms |= {"scaled": False, "passes": 1}
    return idioms


class OwnBatches:
    """A batch sampler of the script's own: this rank's batches, of unlike lengths."""

    def __init__(self, rank, size):
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(5)).tolist()
        own = order[: SAMPLES // WORLD * WORLD][rank::WORLD]
        self.batches = [own[i : i + size] for i in range(0, len(own), size)]

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


def sampler_of(idioms, data, rank):
    return DistributedSampler(data, WORLD, rank, shuffle=idioms["sampler"] == "shuffled", seed=3)


def whole_batches(idioms, data):
    """The global batches on one device."""
    if idioms["sampler"] == "own":
        orders = [list(OwnBatches(rank, idioms["batch"])) for rank in range(WORLD)]
        return [default_collate([data[i] for part in parts for i in part]) for parts in zip(*orders, strict=True)]
    orders = [list(sampler_of(idioms, data, rank)) for rank in range(WORLD)]
    size = idioms["batch"]
    return [default_collate([data[i] for order in orders for i in order[k : k + size]]) for k in range(0, len(orders[0]), size)]


def shared_loader(idioms, data):
    shares = {"even": [1] * WORLD, "given": [5, 3, 2, 1][:WORLD], "learned": None}[idioms["shares"]]
    if idioms["sampler"] == "own":
        return motley.torch.share(DataLoader(data, batch_sampler=OwnBatches(RANK, idioms["batch"])), shares=shares)
    return motley.torch.share(DataLoader(data, idioms["batch"], sampler=sampler_of(idioms, data, RANK)), shares=shares)


def ahead(loader):
    iterator = iter(loader)
    after = next(iterator, None)
    while after is not None:
        now, after = after, next(iterator, None)
        yield now


def cycle(loader):
    while True:
        yield from loader


def readers(name, loader, steps):
    """Batches of two epochs."""
    if name == "cycle":
        endless = cycle(loader)
        for _ in range(steps):
            yield next(endless), False
        return
    for _ in range(2):
        if name == "last":
            iterator = iter(loader)
            batch = next(iterator)
            while batch is not None:
                following = next(iterator, None)
                yield batch, following is None
                batch = following
        else:
            for batch in ahead(loader) if name == "ahead" else loader:
                yield batch, False


def counted(name, y):
    """What a loss averages over, for the loop on one device that knows all micro-batches."""
    if name == "class_weights":
        return CLASS_WEIGHTS[y[y >= 0]].sum().item()
    return float((y >= 0).sum()) if name in ("ignored", "masked", "selected", "smoothed") else float(len(y))


def train(idioms, bodies, head, loader, is_ours):
    """The script. On one device `loader` is a list of batches."""
    loss_fn = (LOSSES | SUMS | REFUSED)[idioms["loss"]]
    modules = [*bodies, head]
    optimizer = torch.optim.SGD([p for each in modules for p in each.parameters()], lr=0.1, momentum=0.5)
    averaged = copy.deepcopy(getattr(head, "module", head)) if idioms["average"] else None
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, enabled=idioms["scaled"])
    accumulate, micro = idioms["accumulate"], 0
    is_weighed = accumulate is not None and accumulate.startswith("weighed")

    def forward(x):
        for each in bodies:
            x = each(x)
        return head(x)

    def one(x, y):
        x = x.clone().requires_grad_(idioms["penalty"])
        out = forward(x)
        loss = loss_fn(out, y, getattr(head, "module", head))
        if not is_ours and idioms["loss"] in SUMS:
            loss = loss / WORLD  # of the ranks' sums DistributedDataParallel makes the mean
        if idioms["penalty"]:
            (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            loss = loss + 0.02 * ((slope.square().sum(1) - 1) ** 2).mean()
        return loss

    waiting = []
    for step, ((x, y), _is_last) in enumerate(readers(idioms["reader"], loader, len(loader) * 2)):
        for each in modules:
            each.train()
            if idioms["frozen"]:
                for module in each.modules():
                    if isinstance(module, nn.BatchNorm1d):
                        module.eval()
        variants = [x + 0.1 * i for i in range(idioms["passes"])]
        micro += 1
        ends = accumulate is None or micro % 2 == 0
        if is_weighed and not is_ours:  # knows how much there will be
            waiting.append((x, y))
            if not ends:
                continue
            counts = [counted(idioms["loss"], y) for _, y in waiting]
            for (x, y), count in zip(waiting, counts, strict=True):
                part = 1 / len(counts) if idioms["loss"] in SUMS else count / max(sum(counts), 1e-9)
                (one(x, y) * part).backward()
            waiting = []
        else:
            contexts = contextlib.ExitStack()
            if is_ours and not ends and accumulate in ("no_sync", "weighed_no_sync"):
                for each in modules:
                    contexts.enter_context(each.no_sync())
            with contexts:
                by = 2 if accumulate in ("synced", "no_sync") else 1
                if is_weighed:
                    motley.torch.weigh(one(x, y)).backward()
                elif idioms["together"]:
                    scaler.scale(sum(one(each, y) for each in variants) / by).backward()
                else:
                    for each in variants:
                        scaler.scale(one(each, y) / by).backward()
            if not ends:
                continue
        scaler.unscale_(optimizer)
        if idioms["clip"]:
            nn.utils.clip_grad_norm_([p for each in modules for p in each.parameters()], 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=idioms["set_to_none"])
        if averaged is not None:
            for a, b in zip(averaged.parameters(), getattr(head, "module", head).parameters(), strict=True):
                a.data.lerp_(b.data, 0.5)
        if idioms["evaluates"] and step % 2 and (RANK == 0 or not is_ours):
            with torch.no_grad():
                for each in modules:
                    getattr(each, "module", each).eval()
                inner = x
                for each in modules:
                    inner = getattr(each, "module", each)(inner)
    return averaged


def run(seed):
    idioms = draw(seed)
    session.forget_all()
    torch.manual_seed(seed)
    x, y = torch.randn(SAMPLES, FEATURES), torch.randint(CLASSES, (SAMPLES,))
    y[torch.rand(SAMPLES) < torch.linspace(0, 0.9, SAMPLES)] = -7
    data = TensorDataset(x, y)
    bodies = [Body(idioms["norm"], idioms["kept"]) for _ in range(idioms["bodies"])]
    head = nn.Linear(FEATURES, CLASSES)
    alone = copy.deepcopy([*bodies, head])
    try:
        loader = shared_loader(idioms, data)
        wrapped = [motley.torch.DDP(each) for each in [*bodies, head]]
        if idioms["shares"] == "learned":
            bodies[0].register_forward_pre_hook(lambda *_: time.sleep(0.002 * RANK))
        averaged = train(idioms, wrapped[:-1], wrapped[-1], loader, True)
        said = None
    except (ValueError, RuntimeError) as error:
        said, averaged = f"{type(error).__name__}: {error}", None
    told = [None] * WORLD
    dist.all_gather_object(told, said)
    row = {"case": seed, "idioms": idioms, "said": told}
    if RANK == 0 and said is None:
        ALONE["is"] = True
        reference = train(idioms, alone[:-1], alone[-1], whole_batches(idioms, data), False)
        ALONE["is"] = False
        pairs = [(a, b) for ours, theirs in zip([*bodies, head], alone, strict=True) for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True)]
        if averaged is not None:
            pairs += list(zip(averaged.parameters(), reference.parameters(), strict=True))
        row["apart"] = max(float((a.double() - b.double()).abs().max() / max(1, b.abs().max())) for a, b in pairs)
    return row


def main(seeds):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for seed in seeds:
        row = run(int(seed))
        if RANK == 0:
            print(json.dumps(row), flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
