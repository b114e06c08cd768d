"""What the ranks of a process group know of each other's steps: counts, times, and who takes how much.

One small exchange a step says what each rank's compute took. Rank 0 shows that to Motley's planner (motley/adapt, through
motley.library) and its decision goes with a later exchange: so ranks need not be machines that round alike. All change at one
step, behind whatever loaders have drawn: with c batches of a loader taken and P drawn ahead at most, its batch c + P is the first that
nobody has.
"""

from __future__ import annotations

import atexit
import logging
import math
import time
import weakref
from collections import Counter, deque

import torch
import torch.distributed as dist

from motley.library import SplitPolicy, share_batch
from motley.torch.clocks import UNKNOWN, DeviceClock, HostClock, StepClock
from motley.torch.ending import await_idle
from motley.torch.memory import Memory
from motley.torch.mesh import Mesh
from motley.torch.passes import NOTHING, Micro, Passes, Work, add_known, add_seconds

LOG = logging.getLogger("motley.torch")
MOST_ROWS = 64  # backward passes of a step that are told; a loop over batches that nobody shared has no end


class Drawn:
    """What is drawn of a loader, in one pass over it."""

    def __init__(self):
        self.begin([])

    def begin(self, weights: list[float]) -> None:
        self._taken, self._drawn = 0, 0  # batches
        self._samples: deque[list[int]] = deque()  # of each rank, of what is drawn and not taken
        self._splits = [(0, weights)]  # from which batch on

    def change(self, ahead: int, weights: list[float]) -> None:
        """From the batch on that no rank has drawn."""
        self._splits = [*self._splits[-3:], (self._taken + ahead, weights)]

    def next_weights(self) -> list[float]:
        return next(weights for begins, weights in reversed(self._splits) if begins <= self._drawn)

    def draw(self, samples: list[int]) -> None:
        self._samples.append(samples)
        self._drawn += 1

    def take(self) -> list[int]:
        self._taken += 1
        return self._samples.popleft()


class Session:
    def __init__(self, group):
        self.group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.mesh = Mesh(group)
        self.weights = [1.0] * self.world  # of the ranks, in what is drawn next
        self.loaders: weakref.WeakSet[Drawn] = weakref.WeakSet()
        self.most, self.ahead = [], 0
        self.policy: SplitPolicy | None = None
        self.is_fixed = False
        self.wanted: list[int] | None = None  # by the planner, of rank 0; not told yet
        self.batch, self.samples = None, None  # what was taken last, and samples of each rank
        self._taken: dict[Drawn, list[int]] = {}  # samples of each rank, by loader, that no forward pass had a part in yet
        self.models: weakref.WeakSet[Passes] = weakref.WeakSet()  # in DDP
        self.latest: Micro | None = None  # of the last forward pass
        self.clock: HostClock | DeviceClock = HostClock()
        self.steps = StepClock()
        self.lag = 0  # steps after which a step's seconds are told; on all ranks the same
        self.memory: Memory  # of the models in DDP, whose steps these are
        self.work = Work()  # of the step that runs
        self.done = 0  # steps whose gradients were exchanged
        self.fitted = 0  # most samples of such a step here
        self.begun = time.perf_counter()
        self.record = None  # of a run directory (run_log.py)
        self._exchange: list[int] = []  # rows that were posted in the step that runs
        self._reading = None  # of a backward pass, that is not posted yet
        self._took: deque = deque()  # what a pass of steps whose seconds are not told yet took in all
        self._untold: deque[Work] = deque()  # the step that runs, behind those that are told later
        self._told_most: list[int] = []  # samples that the planner knows to fit
        self._why, self._expected = "", None
        self._cache: dict = {}

    def __deepcopy__(self, _memo):
        return self  # batch norms of a copied model (averages of weights) are in the same group

    def __reduce__(self):
        return _no_session, ()  # a saved model is opened elsewhere

    def add_model(self, module: torch.nn.Module) -> Passes:
        """Of whose steps time and memory are kept. All ranks name it together, each where it has it."""
        passes = Passes(module)
        self.models.add(passes)
        parameters = self._parameters()
        device = next((each.device for each in parameters if each.device.type != "cpu"), torch.device("cpu"))
        if device.type != "cpu":
            self.clock = DeviceClock(device)
        self.memory = Memory(device, self._parameters)
        said = [None] * self.world
        dist.all_gather_object(said, (self.clock.LAG, self.memory.of.place()), group=self.group)
        self.lag = max(lag for lag, _ in said)
        self.memory.sharing = Counter(place for _, place in said)[said[self.rank][1]]
        return passes

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [each for passes in self.models for each in passes.parameters]

    # Loaders.

    def agree(self, facts: dict, ahead: int, most: int) -> None:
        """All ranks must have said the same of their loaders; how far they draw ahead and hold may differ."""
        said = [None] * self.world
        dist.all_gather_object(said, (facts, ahead, most), group=self.group)
        for name in facts:
            found = [each[0][name] for each in said]
            if any(each != found[0] for each in found):
                raise ValueError(f"motley.torch.share: {name} differs between ranks: {found}")
        self.ahead = max([self.ahead, *(each[1] for each in said)])
        self.most = [each[2] for each in said]
        self._cache.clear()

    def limit(self, batch: int) -> None:
        """ValueError: the ranks' memory does not hold the batch."""
        if min(self.most) < 1 or sum(self.most) < batch:
            raise ValueError(f"motley.torch.share: a global batch of {batch} samples; the ranks hold at most {self.most}: fewer than 1, or too few together")
        if batch < self.world:
            raise ValueError(f"motley.torch.share: a global batch of {batch} samples for {self.world} ranks; wanted one each at least")

    def fix(self, weights: list[float]) -> None:
        self.is_fixed = True
        self.weights = weights

    def samples_of(self, weights: list[float], batch: int) -> list[int]:
        """Samples of each rank in a step of `batch`."""
        key = (*weights, batch)
        if key not in self._cache:
            self._cache[key] = share_batch(batch, weights, self.most)
        return self._cache[key]

    def new_drawn(self) -> Drawn:
        drawn = Drawn()
        self.loaders.add(drawn)
        return drawn

    def begin_epoch(self) -> None:
        self.settle()
        self.forget()

    def take(self, loader: Drawn, batch) -> None:
        """The loader's next batch is what comes next."""
        if self.work.is_posted or not self.work.is_begun:
            self.work = Work()
            self.work.is_begun = True
            self.steps.take()
        self._taken[loader] = self.samples = loader.take()
        self.batch = batch

    def leave(self, loader: Drawn) -> None:
        """It has no more batches: what was taken of it last is no part of what comes."""
        self._taken.pop(loader, None)

    # Steps.

    def waiting(self):
        """What a block takes is a wait for other ranks."""
        return self.clock.waiting()

    def forget(self) -> None:
        """What comes now is no step's work."""
        self.clock.forget()
        self.steps.forget()
        self._taken.clear()

    def sum_now(self, tensor: torch.Tensor) -> None:
        """Over all ranks, in place; waiting is no compute."""
        with self.waiting():
            if tensor.device.type == "cpu":
                tensor.copy_(self.mesh.sum(self.mesh.post(tensor)))
            else:
                dist.all_reduce(tensor, group=self.group)

    @property
    def is_in_step(self) -> bool:
        """Has some forward pass no backward pass yet?"""
        return any(passes.micros for passes in self.models)

    def begin(self, passes: Passes, count: float | None, is_synced: bool, is_sure: bool) -> None:
        """A forward pass of a model. `count`: what the loss averages over; none: samples that the shared loader gave."""
        unused = passes.drop_unused()
        if unused and not unused.is_sure:
            self.forget()  # it was an evaluation
        if not self.is_in_step:
            self.memory.begin()
        total = None
        if count is None:
            self._check_alike()
            count, total = float(self.samples[self.rank]), float(sum(self.samples))
        self._taken.clear()
        self.latest = Micro(count, total, self, is_sure)
        passes.begin(self.latest, is_synced)

    def _check_alike(self) -> None:
        """One part of a loss is all that a rank's gradients are weighed by."""
        parts = [[each / sum(samples) for each in samples] for samples in self._taken.values()]
        if any(abs(a - b) > 1e-9 for part in parts for a, b in zip(part, parts[0], strict=True)):
            found = " and ".join(":".join(map(str, samples)) for samples in self._taken.values())
            raise ValueError(
                f"motley.torch.share: a step trains on batches of several loaders, which the ranks share as {found}: their losses would weigh "
                "unlike. Use loaders of one batch size, or one of torch.utils.data.StackDataset"
            )

    def _open(self, count: float | None, total: float | None = None) -> list[Micro]:
        """Forward passes that the next backward pass may begin from, the last one of each model, with what they are now said to average over."""
        others = [passes.micros[-1] for passes in self.models if passes.micros and passes.micros[-1] is not self.latest]
        if count is not None:
            self.latest.recount(count, total)
            for micro in others:
                micro.count_as(self.latest)
        return [self.latest, *others]

    def weigh(self, loss: torch.Tensor, count: float | None) -> torch.Tensor:
        for micro in self._open(None if count is None else float(count)):
            micro.is_weighed = True
        return loss * self.latest.count

    def part(self, loss: torch.Tensor, count: float | None = None, total: float | None = None) -> tuple[torch.Tensor, float]:
        """Of a local mean in that of all ranks, and its factor; micro-batches count alike, as a loop on one device has them.
        `count` of `total`, where what the forward pass said does not hold."""
        for micro in self._open(count, total):
            micro.is_part = True
        if self.latest.total() == 0:
            raise ValueError(NOTHING)
        factor = self.latest.count / self.latest.total()
        return loss * factor, factor

    def end_compute(self, passes: Passes) -> None:
        """All gradients of a model are on their way. In a backward pass through several the last one's time counts."""
        self.work.passes = max(self.work.passes, passes.end())
        self._reading = self.clock.stop()

    def post(self) -> None:
        """A backward pass is over: says what this rank's own work took."""
        reading, self._reading = self._reading, None
        if reading is None:
            return  # it was through several models
        self.done += not self.work.is_posted
        if self.samples is None or len(self._exchange) >= MOST_ROWS:
            return
        changes, weights = 0.0, [0.0] * self.world
        if not self.work.is_posted:
            if self.wanted is not None:
                changes, weights = 1.0, self.wanted
                self.wanted = None
            self._untold.append(self.work)
            if len(self._untold) > self.lag + 1:
                self._untold.popleft()
            self.memory.end()
            self.fitted = max(self.fitted, self.samples[self.rank])
        self.work.is_posted, self.work.samples = True, list(self.samples)
        self.work.readings.append(reading)
        told = self._told()
        seconds, loss = (told.seconds(), told.loss()) if told else (UNKNOWN, math.nan)
        most, peak = self.memory.most(self.samples[self.rank]), self.memory.of.peak()
        plan = [changes, *weights] if self.rank == 0 else [0.0] * (self.world + 1)
        self._exchange.append(self.mesh.post(torch.tensor([seconds, most, loss, peak, *plan], dtype=torch.float64)))

    def _told(self) -> Work | None:
        """The step whose seconds are told now."""
        return self._untold[0] if len(self._untold) > self.lag else None

    def end_step(self) -> None:
        """All gradients are there: the next step's work begins."""
        self.steps.end()
        self.clock.begin()

    def settle(self) -> None:
        """Takes up what the last exchange said."""
        if not self._exchange:
            return
        posted, self._exchange = self._exchange, []
        with self.waiting():
            tables = [[row.tolist() for row in self.mesh.take(each)] for each in posted]
        _, most, _, peaks, *_ = zip(*tables[-1], strict=True)
        changes, *weights = tables[0][0][4:]
        seconds = [add_seconds(table[rank][0] for table in tables) for rank in range(self.world)]
        losses = [add_known(table[rank][2] for table in tables) for rank in range(self.world)]
        passes, told = self.work.passes, self._told()
        self._took.append(self.steps.took / passes)
        took = self._took.popleft() if told else UNKNOWN
        if self.record and self.record.log:
            self.record.log.step(self.steps.took, passes, self.work.samples, peaks)
            if told:
                self.record.log.tell(seconds, losses)
        if changes:
            self._change(weights, passes)
        if self.rank == 0 and not self.is_fixed and self.world > 1 and min(seconds) > UNKNOWN:
            self._learn(told.samples, seconds, took, passes, [min(int(a), b) for a, b in zip(most, self.most, strict=True)])

    def _change(self, weights: list[float], passes: int) -> None:
        """Behind what is drawn."""
        self.weights = weights
        for each in self.loaders:
            each.change(self.ahead, weights)
        if self.rank == 0:
            after = -(-self.ahead // passes)
            LOG.info("from step %d on %s samples: %s", self.done + after, ":".join(f"{each:.0f}" for each in weights), self._why)
            if self.record:
                self.record.log.decide("motley", weights, after, self._why, self._expected)

    def _learn(self, samples: list[int], seconds: list[float], took: float, passes: int, most: list[int]) -> None:
        if self.policy is None:
            self.policy, self._told_most = SplitPolicy(self.most), list(self.most)
        for rank, (told, now) in enumerate(zip(self._told_most, most, strict=True)):
            if told != now:
                self.policy.limit(rank, now)
        self._told_most = most
        for choice in self.policy.observe(self.done, time.perf_counter() - self.begun, samples, seconds, took):
            if choice["action"]["do"] == "split":
                self.wanted, self._why, self._expected = [0] * self.world, choice["why"], choice["expected_s"] * passes
                for each in choice["action"]["shares"]:
                    self.wanted[int(each["device"])] = each["samples"]

    def explain_memory(self) -> str:
        had = "" if self.samples is None else f" with {self.samples[self.rank]} samples"
        least = max(1, (self.samples[self.rank] if self.samples else 2) // 2)
        fits = f"{self.fitted} fitted" if self.fitted else f"none fitted yet; try {least}"
        return (
            f"motley.torch: rank {self.rank} ran out of memory{had}; {fits}. "
            f"Say what it holds: share(loader, most={self.fitted or least} if rank == {self.rank} else None)"
        )


_sessions: dict = {}


def session_of(group=None) -> Session:
    """That of a process group, which all its ranks make together; without a group the default one's."""
    if not _sessions:
        atexit.register(await_idle)
    if group not in _sessions:
        _sessions[group] = Session(group)
    return _sessions[group]


def _no_session() -> None:
    """In place of the session of a model that was saved whole: it evaluates."""
