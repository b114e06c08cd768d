"""One rank of the cases of test_torch.py: python torch_cases.py CASE..., under RANK, WORLD_SIZE, ...

A case trains by motley.torch and, on rank 0, on one device with the batches that DistributedSampler would give all ranks together.
Rank 0 prints a line of JSON a case.
"""

import copy
import io
import itertools
import json
import logging
import os
import pathlib
import socket
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import motley.torch
from motley.torch import clocks, ending, mesh, session

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BATCH = 8  # of a rank, for DistributedSampler
VOCABULARY, LENGTH = 17, 6


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, 16), nn.Parameter(0.1 * torch.randn(LENGTH, 16))
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.head(self.block(self.tokens(x) + self.places, src_mask=mask, is_causal=True))


def mlp():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 5))
    torch.manual_seed(2)
    return model, TensorDataset(torch.randn(113, 12), torch.randint(5, (113,)))


def cnn():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 6, 3, bias=False), nn.BatchNorm2d(6), nn.Tanh(), nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.GELU(),
                          nn.Flatten(), nn.Linear(128, 10), nn.BatchNorm1d(10, momentum=None))  # fmt: skip
    torch.manual_seed(2)
    return model, TensorDataset(3 + torch.randn(113, 1, 8, 8), torch.randint(10, (113,)))


def gpt():
    torch.manual_seed(1)
    model = Gpt()
    torch.manual_seed(2)
    x = torch.randint(VOCABULARY, (113, LENGTH))
    y = torch.randint(VOCABULARY, (113, LENGTH))
    y[torch.rand(113, LENGTH) < torch.linspace(0, 0.95, 113)[:, None]] = -100
    y[::2] = -100  # so that a rank of one or two samples has a batch without a label now and then
    return model, TensorDataset(x, y)


def loss_of(outputs, y):
    return F.cross_entropy(outputs.flatten(0, -2), y.flatten())


def global_batches(data):
    """Indices that DistributedSampler gives all ranks together, one epoch after the other."""
    for epoch in itertools.count():
        orders = []
        for rank in range(WORLD):
            sampler = DistributedSampler(data, WORLD, rank, seed=3)
            sampler.set_epoch(epoch)
            orders.append(list(sampler))
        for k in range(0, len(orders[0]), BATCH):
            yield sum((order[k : k + BATCH] for order in orders), [])


def one_device(model, data, steps, passes=1):
    """The plain loop; `passes` batches a step. Losses are means over all that is not masked; gives those of the steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches, losses = global_batches(data), []
    for _ in range(steps):
        optimizer.zero_grad()
        waiting = [data[next(batches)] for _ in range(passes)]
        counts = [(y != -100).sum() for _, y in waiting]
        losses.append(0.0)
        for (x, y), count in zip(waiting, counts, strict=True):
            loss = loss_of(model(x), y) * count / sum(counts)
            losses[-1] += loss.item()
            loss.backward()
        optimizer.step()
    return losses


def shared_loader(data, shares=None, workers=0, **options):
    sampler = DistributedSampler(data, WORLD, RANK, seed=3)
    return motley.torch.share(DataLoader(data, BATCH, sampler=sampler, num_workers=workers), shares=shares, **options)


def train(model, loader, steps, passes=1, after=lambda step: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    done, epoch, taken, samples = 0, 0, 0, []
    while done < steps:
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            samples.append(len(x))
            taken += 1
            if taken < passes:
                with model.no_sync():
                    motley.torch.weigh(loss_of(model(x), y)).backward()
                continue
            loss = loss_of(model(x), y)
            (loss if passes == 1 else motley.torch.weigh(loss)).backward()
            optimizer.step()
            optimizer.zero_grad()
            after(done)
            taken, done = 0, done + 1
            if done == steps:
                break
        epoch += 1
    return samples


def difference(ours, reference):
    """Largest of |a - b| over all of the state."""
    ours, reference = ours.state_dict(), reference.state_dict()
    assert ours.keys() == reference.keys()
    return max(float((ours[name].double() - reference[name].double()).abs().max()) for name in reference)


def compare(build, shares, weight=None, steps=20, passes=1, workers=0, **options):
    model, data = build()
    reference = copy.deepcopy(model)
    if RANK:  # the first rank's weights and statistics count, as with DistributedDataParallel
        with torch.no_grad():
            for each in model.state_dict().values():
                each.add_(1)
    wrapped = motley.torch.DDP(model, weight=weight, **options)
    samples = train(wrapped, shared_loader(data, shares, workers), steps, passes)
    found, states = [None] * WORLD, [None] * WORLD
    dist.all_gather_object(found, samples)
    dist.all_gather_object(states, [each.numpy().tobytes() for each in model.state_dict().values()])
    if RANK == 0:
        losses = one_device(reference, data, steps, passes)
        alike = all(state == states[0] for state in states)
        return {"alike": alike, "max_param_diff": difference(model, reference), "losses": losses, "samples": found,
                "unchanged": difference(reference, build()[0])}  # fmt: skip


def evaluates():
    """Between steps and without gradients nothing is exchanged: ranks may evaluate alone."""
    model, data = cnn()
    wrapped = motley.torch.DDP(model)
    train(wrapped, shared_loader(data, [3, 2, 1]), 2)
    wrapped.eval()
    if RANK == 0:
        with torch.no_grad():
            saved = io.BytesIO()
            torch.save(wrapped.module, saved)
            saved.seek(0)
            copies = [copy.deepcopy(wrapped.module), torch.load(saved, weights_only=False)]
            wanted = wrapped.module(data[:4][0])
            trained = copies[1].train()(data[:4][0])
            sharing = session.session_of().memory.sharing
            return {"sharing": sharing, "outputs": list(wanted.shape), "copied": all(torch.equal(each.eval()(data[:4][0]), wanted) for each in copies[:1]),
                    "apart": (trained - wanted).abs().max().item()}  # fmt: skip


def unused():
    """A branch that takes no part: found by DDP, where it is asked to."""

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.other = nn.Linear(12, 5), nn.Linear(12, 5)

        def forward(self, x):
            return self.used(x)

    torch.manual_seed(1)
    model, data = Branches(), mlp()[1]
    reference = copy.deepcopy(model)
    train(motley.torch.DDP(model, find_unused_parameters=True), shared_loader(data, [3, 2, 1]), 6)
    try:
        train(motley.torch.DDP(Branches()), shared_loader(data, [3, 2, 1]), 2)
    except ValueError as error:
        said = str(error)
    if RANK == 0:
        one_device(reference, data, 6)
        return {"max_param_diff": difference(model, reference), "said": said}


def against_one_device(models, data, train, **options):
    """`train(models, batches)` of some models in DDP, and of copies of them on one device. Largest difference of a parameter."""
    alone = [copy.deepcopy(each) for each in models]
    wrapped = [motley.torch.DDP(each) for each in models]
    loader = shared_loader(data, [4, 2, 1], **options)
    train(wrapped, loader)
    if RANK == 0:
        train(alone, (data[batch] for batch in itertools.islice(global_batches(data), len(loader))))
        return max(map(difference, models, alone))


def optimizers(models):
    return [torch.optim.SGD(each.parameters(), lr=0.1) for each in models]


def chain(models, batches):
    """Each model takes what the one before gives."""
    own = optimizers(models)
    for x, y in batches:
        for model in models:
            x = model(x)
        loss_of(x, y).backward()
        for each in own:
            each.step()
            each.zero_grad()


def adversaries(models, batches):
    """A generator and a discriminator: three backward passes a step, the last one through both."""
    (generator, discriminator), (own, others) = models, optimizers(models)

    def loss(x, wanted):
        found = discriminator(x)
        return F.binary_cross_entropy_with_logits(found, torch.full_like(found, wanted))

    for noise, _ in batches:
        others.zero_grad()
        loss(noise**2, 1.0).backward()
        made = generator(noise)
        loss(made.detach(), 0.0).backward()
        others.step()
        own.zero_grad()
        loss(made, 1.0).backward()
        own.step()


class ActiveNorm(nn.BatchNorm1d):
    """A batch norm with a forward pass of its own."""

    def forward(self, x):
        return torch.tanh(super().forward(x))


class BareNorm(nn.Module):
    """A batch norm that no module of PyTorch's computes."""

    def __init__(self, channels):
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, x):
        return torch.tanh(F.batch_norm(x, self.mean, self.variance, training=self.training))


def several():
    """Models of their own in DDP, and a model that is called twice, or in evaluation mode, in a step."""
    data = mlp()[1]
    torch.manual_seed(1)

    def two():
        return [nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.Tanh()), nn.Linear(16, 5)]

    def in_evaluation_mode(models, batches):
        for each in models:
            each.eval()
        chain(models, batches)

    def twice(models, batches):
        (optimizer,) = optimizers(models)
        for x, _ in batches:
            F.mse_loss(models[0](x), models[0](x**2 - 1)).backward()
            optimizer.step()
            optimizer.zero_grad()

    found = {
        "chain": against_one_device(two(), data, chain),
        "doubles": against_one_device([each.double() for each in two()], double(data), chain),
        "evaluation": against_one_device(two(), data, in_evaluation_mode),
        "own norms": against_one_device([nn.Sequential(nn.Linear(12, 16), ActiveNorm(16), BareNorm(16), nn.Linear(16, 5))], data, chain),
        "compiled": against_one_device([torch.compile(two()[0], backend="eager"), two()[1]], data, chain),
        "wide": against_one_device([nn.Sequential(nn.Linear(12, 4200), nn.BatchNorm1d(4200), nn.Linear(4200, 5))], data, chain),
        "twice": against_one_device(two()[:1], data, twice),
        "adversaries": against_one_device([nn.Sequential(*two(), nn.Linear(5, 12)), nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1))],
                                          data, adversaries),
    }  # fmt: skip
    return found if RANK == 0 else None


def double(data):
    x, y = data.tensors
    return TensorDataset(x.double(), y)


def sharded():
    """fully_shard averages over ranks; `weigh` makes that the mean over the batch."""
    from torch.distributed.fsdp import fully_shard

    model, data = mlp()
    reference = copy.deepcopy(model)
    fully_shard(model)
    loader = shared_loader(data, [5, 2, 1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in loader:
        motley.torch.weigh(loss_of(model(x), y)).backward()
        optimizer.step()
        optimizer.zero_grad()
    whole = {name: each.full_tensor() for name, each in model.state_dict().items()}
    if RANK == 0:
        one_device(reference, data, len(loader))
        return {"max_param_diff": max(float((whole[name] - each).abs().max()) for name, each in reference.state_dict().items())}


class Slept:
    """A pace that clocks measure."""

    def compute(self, seconds):
        time.sleep(seconds)


class Told:
    """A pace in place of `time` where steps are measured: nothing takes any but what is told."""

    EXCHANGE_S = 0.002

    def __init__(self, session_, seconds):
        self._now, self._begun, self._seconds = 0.0, 0.0, seconds
        self._session, self._end_backward = session_, session_.end_backward
        session_.end_backward = self.end_backward
        session_.clock._least_s = lambda: 0.0
        clocks.time = session.time = self

    def perf_counter(self):
        return self._now

    def compute(self, seconds):
        self._now += seconds

    def end_backward(self):
        """The slowest rank is there, and gradients are exchanged."""
        slowest = max(n * self._seconds(rank) for rank, n in enumerate(self._session.samples))
        self._now = self._begun = self._begun + slowest + self.EXCHANGE_S
        self._end_backward()


class Paced(nn.Module):
    """Takes a time for each sample."""

    def __init__(self, seconds):
        super().__init__()
        self.line, self.seconds, self.step, self.pace = nn.Linear(12, 5), seconds, -1, Slept()

    def forward(self, x):
        self.step += 1
        self.pace.compute(len(x) * self.seconds(RANK))
        return self.line(x)


class LateClock(clocks.HostClock):
    """Its times are told a step later, as those of an accelerator."""

    LAG = 1


def learns(workers=0, clock=clocks.HostClock, is_told=True, most=None):
    """Ranks of 1, 2 and 4 ms a sample; from step 30 on the first takes twice as long. After step 39 the second one evaluates.
    `workers`: of the second rank; `most`: samples that the first one's memory is found to hold. Samples of each step, and what is logged."""
    torch.manual_seed(2)
    data = TensorDataset(torch.randn(BATCH * WORLD * 100, 12), torch.randint(5, (BATCH * WORLD * 100,)))
    paced = Paced(lambda rank: 0.001 * 2**rank * (2 if rank == 0 and paced.step >= 30 else 1))
    ours = session.session_of()
    ours.clock = clock()
    model = motley.torch.DDP(paced)
    if is_told:
        paced.pace = Told(ours, paced.seconds)
    if most and RANK == 0:
        ours.memory.most = lambda samples: most
    logged = []
    session.LOG.setLevel(logging.INFO)
    session.LOG.addHandler(type("Kept", (logging.Handler,), {"emit": lambda self, record: logged.append(record.getMessage())})())
    loader = shared_loader(data, workers=workers if RANK == 1 else 0)
    samples = train(model, loader, 70, after=lambda step: step == 39 and RANK == 1 and evaluate(model, data))
    found = [None] * WORLD
    dist.all_gather_object(found, samples)
    if RANK == 0:
        return {"samples": found, "ahead": 2 * workers, "logged": logged}


def evaluate(model, data):
    model.eval()
    step = model.module.step
    with torch.no_grad():
        model(data[:100][0])
    model.module.step = step
    model.train()


def said(call):
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def refused_loaders():
    """What `share` says of what it is given."""
    data, share = mlp()[1], motley.torch.share

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(data)

    sampler = DistributedSampler(data, WORLD, RANK)
    loader = DataLoader(data, BATCH, sampler=sampler)
    alone = {"regions": [{"devices": [0]}], "samples": 12}
    plans = {"two": [alone, alone], "stages": [alone, {"regions": [{"devices": [1]}, {"devices": [2]}], "samples": 12}]}
    with tempfile.TemporaryDirectory() as folder:
        for name, replicas in plans.items():
            pathlib.Path(folder, name).write_text(json.dumps({"replicas": replicas}))
        return {
            "iterable": said(lambda: share(DataLoader(Stream(), BATCH))),
            "batches": said(lambda: share(DataLoader(data, batch_size=None))),
            "order": said(lambda: share(DataLoader(data, BATCH, shuffle=True))),
            "loader": said(lambda: share([loader])),
            "others": said(lambda: share(DataLoader(data, BATCH, sampler=DistributedSampler(data, 2, 0)))),
            "differ": said(lambda: share(DataLoader(data, BATCH + RANK, sampler=sampler))),
            "memory": said(lambda: share(loader, most=7)),
            "none": said(lambda: share(loader, most=99 if RANK else 0)),
            "shares": said(lambda: share(loader, shares=[1, 2])),
            "no share": said(lambda: share(loader, shares=[1, 0, 2])),
            "both": said(lambda: share(loader, shares=[1, 2, 3], plan=f"{folder}/two")),
            "other plan": said(lambda: share(loader, plan=f"{folder}/two")),
            "stages": said(lambda: share(loader, plan=f"{folder}/stages")),
            "loader's weight": said(lambda: share(loader, weight="tokens")),
        }  # fmt: skip


def refused_steps():
    """What is said of models, and of steps as they are taken."""
    data, wrap = mlp()[1], motley.torch.DDP

    def model():
        return nn.Linear(12, 5)

    def step(wrapped, n, loss=loss_of):
        x, y = data[:n]
        return loss(wrapped(x), y)

    def masked():
        wrapped = wrap(model(), weight=lambda batch: 0)
        step(wrapped, 8).backward()
        return wrapped.module.weight.grad.abs().max().item()

    found = {
        "masked": said(masked),
        "join": said(lambda: wrap(model()).join()),
        "weight": said(lambda: wrap(model(), weight="words")),
        "norm": said(lambda: wrap(nn.Sequential(nn.BatchNorm1d(12)))(torch.ones(12))),
    }
    return found | {"frame": said(lambda: session.session_of().mesh.post(torch.ones(8193, dtype=torch.float64), ""))}


def refuses():
    """What each fault says."""
    found = refused_steps() | refused_loaders()
    return found if RANK == 0 else None


def memory():
    model, data = mlp()

    class Hungry(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(12, 5)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls == 3 and RANK == 1:
                torch.empty(1 << 62, dtype=torch.int8)
            return self.line(x)

    train(motley.torch.DDP(Hungry()), shared_loader(data, [3, 2, 1]), 4)


def exchange():
    """Frames taken in another order than they were posted, while a stranger calls. Bits of the sums on each rank."""
    heard = []

    def stranger(server):
        with socket.create_connection(server.getsockname()) as connection:
            connection.sendall(bytes(20))
            heard.append(connection.recv(16))

    connect = mesh.Mesh._connect

    def disturbed(self, server, *others):
        caller = threading.Thread(target=stranger, args=(server,))
        caller.start()
        failure = connect(self, server, *others)
        server.close()
        caller.join()
        return failure

    mesh.Mesh._connect = disturbed
    group = mesh.Mesh(None)
    mesh.Mesh._connect = connect
    torch.manual_seed(RANK)
    values = [torch.randn(n, dtype=torch.float64) for n in (3, 193, 1)]
    posted = [group.post(each, f"{len(each)} numbers") for each in values]
    sums = [group.sum(posted[i]) for i in (2, 0, 1)]
    told, all_values = [None] * WORLD, [None] * WORLD
    dist.all_gather_object(told, ([each.numpy().tobytes().hex() for each in sums], heard == [b""] or not heard))
    dist.all_gather_object(all_values, values)
    wanted = [sum(rank[i] for rank in all_values) for i in (2, 0, 1)]
    group.close()
    threads = [pathlib.Path(ending.TASKS, task, "comm").read_text().strip() for task in os.listdir(ending.TASKS)]
    return {"named": ending.THREADS in threads, "apart": max((a - b).abs().max().item() for a, b in zip(sums, wanted, strict=True)),
            "equal": all(each[0] == told[0][0] for each in told), "refused": all(each[1] for each in told)}  # fmt: skip


def idle():
    """A script that leaves its groups as they are."""
    session.await_idle = lambda: RANK or print('{"case": "waited"}', flush=True)
    session.session_of()


def ends():
    model, data = cnn()
    wrapped, loader = motley.torch.DDP(model), shared_loader(data, [3, 2, 1])
    train(wrapped, loader, 2)
    if RANK == 2:
        os._exit(3)
    train(wrapped, loader, 2)


CASES = {
    "exchange": exchange,
    "ends": ends,
    "idle": idle,
    "mlp": lambda: compare(mlp, [5, 2, 1]),
    "workers": lambda: compare(mlp, [1, 4, 2], workers=2),
    "static": lambda: compare(mlp, [5, 2, 1], steps=6, static_graph=True),
    "cnn": lambda: compare(cnn, [5, 2, 1]),
    "gpt": lambda: compare(gpt, [19, 7, 2], weight="tokens"),
    "accumulated": lambda: compare(gpt, [19, 7, 2], weight="tokens", passes=3, steps=10),
    "norms": lambda: compare(cnn, [19, 7, 2], weight=lambda batch: len(batch[1]), passes=1, steps=10),
    "evaluates": evaluates,
    "unused": unused,
    "several": several,
    "sharded": sharded,
    "learns": learns,
    "learns by the clock": lambda: learns(is_told=False),
    "ahead": lambda: learns(workers=1),
    "limited": lambda: learns(most=10),
    "late": lambda: learns(clock=LateClock if RANK == 1 else clocks.HostClock),
    "refuses": refuses,
    "memory": memory,
}


def main(names):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in names:
        found = CASES[name]()
        if RANK == 0:
            print(json.dumps({"case": name} | (found or {})), flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
