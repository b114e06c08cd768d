"""One rank of scripts in shapes that people use: python torch_scripts.py CASE..., under RANK, WORLD_SIZE, ...

Each trains by motley.torch, and on one device with the batches that the ranks have together. Rank 0 prints a line of JSON a case: how far
parameters are apart, or what was said.
"""

import copy
import datetime
import json
import os
import queue
import sys
import threading
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
from torch_drawn import ahead

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BATCH = 4
SHARES = (3, 2, 1)


def shared(data, shares=SHARES, batch=BATCH, own=DataLoader, collate=None, **options):
    loader = own(data, batch, sampler=DistributedSampler(data, shuffle=False), collate_fn=collate)
    return motley.torch.share(loader, shares=shares, **options)


def whole(data, batch=BATCH):
    """The same global batches on one device: rank i's samples of step k are i + W j."""
    each = -(-len(data) // WORLD)
    orders = [[(rank + WORLD * j) % len(data) for j in range(each)] for rank in range(WORLD)]
    return [default_collate([data[i] for order in orders for i in order[k : k + batch]]) for k in range(0, each, batch)]


def apart(a, b):
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return {"apart": max(float((p.double() - q.double()).abs().max()) for p, q in pairs)}


def said(call):
    try:
        return {"said": str(call() or "")}
    except (ValueError, RuntimeError, TypeError) as error:
        return {"said": f"{type(error).__name__}: {error}"}


def plain(loss_fn, lr=0.5):
    """The usual loop."""

    def train(model, batches):
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        for batch in batches:
            optimizer.zero_grad()
            loss_fn(model, *batch).backward()
            optimizer.step()

    return train


def compare(model, data, train, read=lambda loader: loader, batch=BATCH, **options):
    reference = copy.deepcopy(model)
    train(motley.torch.DDP(model, **options), read(shared(data, batch=batch)))
    train(reference, whole(data, batch))
    return apart(model, reference)


def labelled(count=48):
    return TensorDataset(torch.randn(count, 6), torch.randint(4, (count,)))


def accumulate_without_no_sync():
    """Micro-batches by `weigh`, each exchanged."""

    def train_by(backward_of):
        def train(model, batches):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            for i, (x, y) in enumerate(batches):
                backward_of(F.cross_entropy(model(x), y))
                if i % 2:
                    optimizer.step()
                    optimizer.zero_grad()

        return train

    model, data = nn.Linear(6, 4), labelled()
    reference = copy.deepcopy(model)
    train_by(lambda loss: motley.torch.weigh(loss).backward())(motley.torch.DDP(model), shared(data))
    train_by(lambda loss: (loss / 2).backward())(reference, whole(data))
    return apart(model, reference)


def accumulate_what_nobody_can_read():
    """Micro-batches of unlike counts that the script knows."""
    model, data = nn.Linear(6, 4), labelled(57)
    reference = copy.deepcopy(model)

    def root(m, x, y):
        return F.cross_entropy(m(x), y, reduction="none").square().sum().div(2).mul(2 / len(x))

    def ours(model, micros):
        for x, y in micros:
            motley.torch.weigh(root(model, x, y), weight=len(x)).backward()

    def theirs(model, micros):
        for x, y in micros:
            (root(model, x, y) * len(x) / sum(len(each) for each, _ in micros)).backward()

    batches = whole(data)
    steps = [batches[i : i + 3] for i in range(0, len(batches), 3)]
    wrapped, loader = motley.torch.DDP(model), shared(data)
    optimizer, waiting, at = torch.optim.SGD(wrapped.parameters(), lr=0.1), [], 0
    for x, y in loader:
        waiting.append((x, y))
        if len(waiting) == len(steps[at]):
            ours(wrapped, waiting)
            optimizer.step()
            optimizer.zero_grad()
            waiting, at = [], at + 1
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for each in steps:
        theirs(reference, each)
        optimizer.step()
        optimizer.zero_grad()
    return apart(model, reference)


def gradients_thrown_away():
    """Two passes a step, of which the first one's gradients only move weights (SAM); and steps that are skipped."""

    def train(model, batches):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        for step, (x, y) in enumerate(batches):
            F.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                moved = [0.05 * each.grad / each.grad.norm() for each in model.parameters()]
                for each, by in zip(model.parameters(), moved, strict=True):
                    each.add_(by)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for each, by in zip(model.parameters(), moved, strict=True):
                    each.sub_(by)
            if step != 1:
                optimizer.step()
            optimizer.zero_grad()

    return compare(nn.Linear(6, 4), labelled(), train)


def two_backward_passes():
    """Of real and of made samples, without no_sync."""

    def train(model, batches):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for x, _ in batches:
            F.softplus(-model(x)).mean().backward()
            F.softplus(model(x**2)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    return compare(nn.Linear(6, 4), labelled(), train)


def accelerate_two_backward_passes():
    from accelerate import Accelerator

    def train(model, optimizer, batches, backward_of):
        for x, _ in batches:
            backward_of(F.softplus(-model(x)).mean())
            backward_of(F.softplus(model(x**2)).mean())
            optimizer.step()
            optimizer.zero_grad()

    data, model = labelled(), nn.Linear(6, 4)
    reference = copy.deepcopy(model)
    train(reference, torch.optim.SGD(reference.parameters(), lr=0.5), DataLoader(data, BATCH * WORLD), lambda loss: loss.backward())
    accelerator = motley.torch.share(Accelerator(cpu=True), shares=SHARES)
    wrapped, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.5), DataLoader(data, BATCH))
    train(wrapped, optimizer, motley.torch.share(loader), accelerator.backward)
    return apart(model, reference)


def norm_of_a_rank_without_labels():
    y = torch.randint(4, (48,))
    y[torch.rand(48) < 0.6] = -100
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    return compare(model, TensorDataset(torch.randn(48, 6), y), plain(lambda m, x, y: F.cross_entropy(m(x), y), 0.1), weight="tokens")


def nobody_has_a_target():
    y = torch.randint(4, (48,))
    y[12:24] = -100
    model = nn.Linear(6, 4)
    train = plain(lambda m, x, y: F.cross_entropy(m(x), y))
    reference = copy.deepcopy(model)
    data = TensorDataset(torch.randn(48, 6), y)
    train(motley.torch.DDP(model), shared(data))
    train(reference, [(x, y) for x, y in whole(data) if (y >= 0).any()])
    return apart(model, reference)


class Causal(nn.Module):
    """Shifts its labels itself."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(40, 16), nn.Linear(16, 40)

    def forward(self, input_ids, labels):
        return F.cross_entropy(self.head(self.embed(input_ids))[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def causal_tokens():
    lengths, x = torch.randint(2, 16, (48,)), torch.randint(1, 40, (48, 16))
    y = x.clone()
    y[torch.arange(16) >= lengths[:, None]] = -100
    return compare(Causal(), TensorDataset(x, y), plain(lambda m, x, y: m(x, y)), weight="tokens")


def means_over_less():
    """Another ignored label, class weights."""
    y = torch.randint(4, (48, 9))
    y[torch.rand(48, 9) < torch.linspace(0, 0.9, 48)[:, None]] = 255
    y[:, 0] = 0
    data, weights = TensorDataset(torch.randn(48, 9, 6), y), torch.tensor([0.1, 1, 2, 5.0])

    def by(loss, **options):
        return compare(nn.Linear(6, 4), data, plain(lambda m, x, y: loss(m(x).flatten(0, 1), y.flatten())), **options)["apart"]

    found = [
        by(lambda o, y: F.cross_entropy(o, y, ignore_index=255)),
        by(lambda o, y: F.cross_entropy(o, y.clamp(max=3), weight=weights)),
        by(lambda o, y: F.cross_entropy(o, y, ignore_index=255), weight="tokens"),
    ]
    return {"apart": max(found)}


def sums():
    """Of sums, and by the size of a rank's batch as the script knows it: what DistributedDataParallel makes of them."""

    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = nn.Linear(8, 6), nn.Linear(3, 8)

        def forward(self, x):
            mean, log_variance = self.encode(x).chunk(2, 1)
            return torch.sigmoid(self.decode(mean + 0.1 * torch.exp(0.5 * log_variance))), mean, log_variance

    def loss(model, x):
        made, mean, log_variance = model(x)
        return F.binary_cross_entropy(made, x, reduction="sum") - 0.5 * torch.sum(1 + log_variance - mean**2 - log_variance.exp())

    data, found = TensorDataset(torch.rand(48, 8)), []
    for by in (1, BATCH):
        model = Vae()
        reference = copy.deepcopy(model)
        plain(lambda m, x, by=by: loss(m, x) / by, 0.01)(motley.torch.DDP(model), shared(data))
        plain(lambda m, x, by=by: loss(m, x) / by / WORLD, 0.01)(reference, whole(data))
        found.append(apart(model, reference)["apart"])
    return {"apart": max(found)}


def sums_that_are_none():
    """A sum of means, and a rank without targets."""

    def loss(model, x, y):
        out = model(x)
        here = y != 0
        own = F.cross_entropy(out[here], y[here]) if here.any() else out.sum() * 0
        return torch.stack([own, out.square().mean()]).sum()

    return compare(nn.Linear(6, 4), labelled(), plain(loss))


def frozen_by_class():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))

    def train(model, batches):
        model.train()
        for each in model.modules():
            if isinstance(each, nn.BatchNorm2d):
                each.eval()
        plain(lambda m, x, y: F.cross_entropy(m(x), y), 0.1)(model, batches)

    found = compare(model, TensorDataset(torch.randn(48, 1, 8, 8), torch.randint(4, (48,))), train)
    return found | {"moved": model[1].running_mean.abs().max().item()}


def copied():
    """A copy of a model in DDP (an average of weights) has its own statistics, and is saved whole."""
    import io

    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    wrapped = motley.torch.DDP(model)
    before = copy.deepcopy(wrapped)
    saved = io.BytesIO()
    torch.save(model, saved)
    plain(lambda m, x, y: F.cross_entropy(m(x), y), 0.1)(wrapped, shared(labelled()))
    x, (first, norm, last) = torch.randn(4, 6), before.module
    wrapped.eval()
    before.eval()
    with torch.no_grad():
        wanted = last(F.batch_norm(first(x), norm.running_mean, norm.running_var, norm.weight, norm.bias))
        return {"apart": float((before(x) - wanted).abs().max()), "moved": float((wrapped(x) - wanted).abs().max())}


def one_rank_alone():
    """A forward pass in training mode of one rank, outside of DDP, estimates by its own batch."""
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8))
    wrapped = motley.torch.DDP(model)
    next(iter(shared(labelled())))
    wrapped(torch.randn(4, 6)).mean().backward()
    if RANK == 0:
        model.train()
        model(torch.randn(4, 6)).sum().backward()
    return {"said": "goes on"}


def exported_after_training():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    motley.torch.DDP(model)(torch.randn(4, 1, 8, 8)).mean().backward()
    model.eval()
    torch.jit.script(model)
    torch.fx.symbolic_trace(model)
    torch.ao.quantization.fuse_modules(model, [["0", "1", "2"]])
    return {"said": type(model[1]).__name__}


def second_derivative_of_a_norm():
    def loss(model, x):
        x = x.clone().requires_grad_()
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return out.mean() + 10 * ((slope.norm(2, 1) - 1) ** 2).mean()

    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 1))
    model[3].bias = None
    return compare(model, TensorDataset(torch.randn(48, 6)), plain(loss, 0.05))


def gathered():
    """A contrastive loss of a rank's samples against all, one of all on each rank, and equal buffers, which are told why they fail."""

    def of_own(z, w):
        return z @ motley.torch.gather(w).T if isinstance(model, nn.parallel.DistributedDataParallel) else z @ w.T

    found = []
    for is_own in (True, False):
        inner = nn.Linear(6, 4)
        reference, data = copy.deepcopy(inner), TensorDataset(torch.randn(48, 6))
        model = motley.torch.DDP(inner)

        def loss(m, x, is_own=is_own):
            z = F.normalize(m(x))
            if m is reference:
                return F.cross_entropy(5 * z @ z.T, torch.arange(len(z)))
            every = motley.torch.gather(z)
            begin = sum(session.session_of().samples[:RANK])
            if is_own:
                return F.cross_entropy(5 * z @ every.T, torch.arange(begin, begin + len(z)))
            return F.cross_entropy(5 * every @ every.T, torch.arange(len(every)))

        plain(loss)(model, shared(data))
        plain(loss)(reference, whole(data))
        found.append(apart(inner, reference)["apart"])
    z = torch.ones(2 + RANK, 3)
    return {"apart": max(found)} | said(lambda: dist.all_gather([torch.empty_like(z) for _ in range(WORLD)], z))


def read_ahead():
    """The next batch is fetched while this one trains."""

    y = torch.randint(4, (48, 5))
    y[torch.rand(48, 5) < torch.linspace(0, 0.9, 48)[:, None]] = -100
    y[:, 0] = 1
    data = TensorDataset(torch.randn(48, 5, 6), y[torch.randperm(48)])
    train = plain(lambda m, x, y: F.cross_entropy(m(x).flatten(0, 1), y.flatten()))
    by_function = compare(nn.Linear(6, 4), data, train, ahead, weight=lambda batch: (batch[1] != -100).sum())
    copied = plain(lambda m, x, y: F.cross_entropy(m(x.clone()).flatten(0, 1), y.flatten()))
    refused = said(lambda: compare(nn.Linear(6, 4), data, copied, ahead, weight=lambda batch: (batch[1] != -100).sum()))
    return {"apart": max(compare(nn.Linear(6, 4), data, train, ahead, weight="tokens")["apart"], by_function["apart"])} | refused


class Threaded(DataLoader):
    """Reads ahead in a thread of its own."""

    def __iter__(self):
        ready, batches = queue.Queue(6), super().__iter__()
        threading.Thread(target=lambda: [ready.put(each) for each in batches] + [ready.put(None)], daemon=True).start()
        while (batch := ready.get()) is not None:
            yield batch


def read_by_a_thread():
    model, data = nn.Linear(6, 4), labelled()
    reference = copy.deepcopy(model)
    train = plain(lambda m, x, y: F.cross_entropy(m(x), y))
    train(motley.torch.DDP(model), shared(data, own=Threaded))
    train(reference, whole(data))
    return apart(model, reference)


def read_by_a_thread_learned():
    return said(lambda: plain(lambda m, x, y: F.cross_entropy(m(x), y))(motley.torch.DDP(nn.Linear(6, 4)), shared(labelled(), None, own=Threaded)))


def two_sizes():
    """Labelled and unlabelled batches in one step, shared unlike."""
    labels, others = labelled(), TensorDataset(torch.randn(96, 6))
    model = nn.Linear(6, 4)
    reference = copy.deepcopy(model)

    def train(model, *loaders):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        for (x, y), (u,) in zip(*loaders, strict=True):
            out = model(torch.cat([x, u]))
            (F.cross_entropy(out[: len(x)], y) + out[len(x) :].square().mean()).backward()
            optimizer.step()
            optimizer.zero_grad()

    train(motley.torch.DDP(model), shared(labels, (7, 3, 2)), shared(others, (7, 3, 2), 8))
    train(reference, whole(labels), whole(others, 8))
    return apart(model, reference)


def even_parts():
    """Shares are multiples of two, also learned ones."""

    class Slow(nn.Linear):
        def forward(self, x):
            time.sleep(len(x) * 0.001 * 2**RANK)
            return super().forward(x)

    sizes = []

    def loss(model, x, y):
        sizes.append(len(x))
        return F.cross_entropy(model(x), y)

    plain(loss)(motley.torch.DDP(Slow(6, 4)), shared(labelled(480), None, multiple_of=2))
    of_all = [None] * WORLD
    dist.all_gather_object(of_all, sizes)
    shares = motley.torch.shares()
    kept = shared(labelled(), None, start=[2, 2, 8])
    first = [None] * WORLD
    dist.all_gather_object(first, len(next(iter(kept))[0]))
    return {"sizes": of_all, "shares": shares, "kept": first} | said(lambda: shared(labelled(49), multiple_of=2))


def lists_of_images():
    """A mean over a list, of a script that loads its own unequal batches."""

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(6, 4)

        def forward(self, images):
            return torch.stack([self.line(each).square().mean() for each in images]).mean()

    images = torch.randn(6, 6)
    model = Detector()
    reference = copy.deepcopy(model)
    begin = sum(range(RANK + 1))
    wrapped = motley.torch.DDP(model)
    wrapped([images[i] for i in range(begin, begin + RANK + 1)]).backward()
    reference(list(images)).backward()
    found = max((a.grad - b.grad).abs().max().item() for a, b in zip(model.parameters(), reference.parameters(), strict=True))
    counted = motley.torch.DDP(Detector(), weight="samples")
    return {"apart": found} | said(lambda: counted(["no", "tensor"]))


def reentrant_checkpoint():
    class Checked(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 512)), nn.Linear(512, 600)

        def forward(self, x):
            return self.head(checkpoint(self.body, x.clone().requires_grad_(), use_reentrant=True))

    return compare(Checked(), labelled(), plain(lambda m, x, y: F.cross_entropy(m(x), y), 0.1))


def nobody_can_read():
    """A loss that is no sum of means, and the line that mends it."""
    found = said(lambda: compare(nn.Linear(6, 4), labelled(), plain(lambda m, x, y: F.cross_entropy(m(x), y).sqrt())))
    plain(lambda m, x, y: F.cross_entropy(m(x), y).sqrt())(motley.torch.DDP(nn.Linear(6, 4), weight="samples"), shared(labelled()))
    return found


def exchanged_already():
    """A second backward pass through one forward pass."""
    out = motley.torch.DDP(nn.Linear(6, 4))(torch.randn(4 + RANK, 6))
    out.mean().backward(retain_graph=True)
    return said(lambda: out.square().mean().backward())


def communication_hooks():
    """Of the script's own, bucket views, a static graph, and unused parameters that DDP finds."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    found = []
    for options in ({"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True}, {"bucket_cap_mb": 0.0001}):
        model, data = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4)), labelled()
        reference = copy.deepcopy(model)
        wrapped = motley.torch.DDP(model, **options)
        wrapped.register_comm_hook(None, default_hooks.allreduce_hook)
        train = plain(lambda m, x, y: F.cross_entropy(m(x), y), 0.1)
        train(wrapped, shared(data))
        train(reference, whole(data))
        found.append(apart(model, reference)["apart"])
    return {"apart": max(found)}


def autocast():
    """In bfloat16, whose sums differ by a hundredth; unweighed gradients by a half."""

    def loss(model, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(model(x), y, ignore_index=0)

    return {"rough": compare(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4)), labelled(), plain(loss, 0.1))["apart"]}


def half_precision():
    """A scaled loss of many tokens by `weigh` is no infinity."""
    model = motley.torch.DDP(nn.Linear(6, 4))
    out = model(torch.randn(70000, 6))
    motley.torch.weigh(F.cross_entropy(out, torch.zeros(70000, dtype=torch.long)).half() * 1024).backward()
    return {"said": str(bool(torch.isfinite(model.module.weight.grad).all()))}


def second_line_forgotten():
    model = nn.parallel.DistributedDataParallel(nn.Linear(6, 4))
    return said(lambda: plain(lambda m, x, y: F.cross_entropy(m(x), y))(model, shared(labelled())))


def places_that_differ():
    """One rank skips a backward pass."""

    def train():
        model = motley.torch.DDP(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)))
        loss = model(torch.randn(4, 6)).mean()
        if RANK != 1:
            loss.backward()
        model(torch.randn(4, 6))

    return said(train)


def waits_too_long():
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))

    def train():
        model = motley.torch.DDP(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)), process_group=group)
        if RANK == 0:
            time.sleep(3)
        model(torch.randn(4, 6))

    return said(train)


CASES = {name: each for name, each in globals().items() if callable(each) and getattr(each, "__module__", "") == __name__ and name.islower()}


def main(names):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in names:
        session.forget_all()
        torch.manual_seed(1)
        found = [None] * WORLD
        dist.all_gather_object(found, CASES[name]())
        if RANK == 0:
            print(json.dumps({"case": name, **found[0], "of_ranks": [each.get("said") for each in found]}), flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
