"""What the ranks of a process group know of each other's steps: counts, times, and who takes how much.

One small exchange a step says what each rank's compute took. Rank 0 shows that to Motley's planner (motley/adapt, through
motley.library) and its decision goes with a later exchange: so ranks need not be machines that round alike. All change at one
step, behind whatever loaders have drawn: with c batches taken and P drawn ahead at most, step c + P is the first that nobody has.
"""

from __future__ import annotations

import atexit
import logging
import math
import time
from collections import Counter, deque

import torch
import torch.distributed as dist

from motley.library import SplitPolicy, share_batch
from motley.torch.clocks import UNKNOWN, DeviceClock, HostClock, StepClock
from motley.torch.ending import await_idle
from motley.torch.memory import Memory
from motley.torch.mesh import Mesh

LOG = logging.getLogger("motley.torch")
NOTHING = "motley.torch.DDP: the losses of all ranks average over nothing: every target is masked"


class Micro:
    """One forward pass: what its loss averages over here, and on all ranks."""

    def __init__(self, count: float, total: float | None, session: Session):
        self.count, self.is_weighed, self.is_part = count, False, False
        self._total, self._session = total, session
        if total is None:
            self._posted = session.mesh.post(torch.tensor([count], dtype=torch.float64))

    def total(self) -> float:
        if self._total is None:
            with self._session.waiting():
                self._total = self._session.mesh.sum(self._posted).item()
        return self._total


class Session:
    def __init__(self, group):
        self.group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.mesh = Mesh(group)
        self.step = 0  # batches taken from shared loaders; on all ranks the same
        self.splits: list[tuple[int, list[float]]] = [(0, [1.0] * self.world)]  # from which step on
        self.most, self.ahead = [], 0
        self.policy: SplitPolicy | None = None
        self.is_fixed = False
        self.wanted: list[int] | None = None  # by the planner, of rank 0; not told yet
        self.batch, self.samples = None, None  # what was taken last, and samples of each rank
        self.micros: list[Micro] = []
        self.is_synced = False  # the last forward pass exchanges gradients
        self.clock: HostClock | DeviceClock = HostClock()
        self.steps = StepClock()
        self.lag = 0  # steps after which a step's seconds are told; on all ranks the same
        self.memory: Memory  # of the model in DDP, whose steps these are
        self.passes = 1  # forward passes of the last step
        self.done = 0  # steps whose gradients were exchanged
        self.fitted = 0  # most samples of such a step here
        self.begun = time.perf_counter()
        self.record = None  # of a run directory (run_log.py)
        self._exchange = None
        self._took: deque = deque()  # what a pass of steps whose seconds are not told yet took in all
        self._timed: deque = deque()  # samples and passes of steps whose seconds are not told yet, and how to read them
        self._told_most: list[int] = []  # samples that the planner knows to fit
        self._why, self._expected = "", None
        self._cache: dict = {}

    def __deepcopy__(self, _memo):
        return self  # batch norms of a copied model (averages of weights) are in the same group

    def __reduce__(self):
        return _no_session, ()  # a saved model is opened elsewhere

    def keep_time(self, module: torch.nn.Module) -> None:
        """Of steps of a model, which all ranks name together, each where it has it."""
        parameters = [each for each in module.parameters() if each.requires_grad]
        device = next((each.device for each in parameters if each.device.type != "cpu"), torch.device("cpu"))
        if device.type != "cpu":
            self.clock = DeviceClock(device)
        self.memory = Memory(device, parameters)
        said = [None] * self.world
        dist.all_gather_object(said, (self.clock.LAG, self.memory.of.place()), group=self.group)
        self.lag = max(lag for lag, _ in said)
        self.memory.sharing = Counter(place for _, place in said)[said[self.rank][1]]

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
        self.splits = [(self.step, weights)]

    def samples_of(self, step: int, batch: int) -> list[int]:
        """Samples of each rank in a step of `batch`."""
        weights = next(weights for begins, weights in reversed(self.splits) if begins <= step)
        key = (*weights, batch)
        if key not in self._cache:
            self._cache[key] = share_batch(batch, weights, self.most)
        return self._cache[key]

    def begin_epoch(self) -> None:
        self.settle()
        self.forget()

    def take(self, samples: list[int], batch) -> None:
        if not self.micros:
            self.steps.take()
        self.samples, self.batch = samples, batch
        self.step += 1

    # Steps.

    def waiting(self):
        """What a block takes is a wait for other ranks."""
        return self.clock.waiting()

    def forget(self) -> None:
        """What comes now is no step's work."""
        self.clock.forget()
        self.steps.forget()

    def sum_now(self, tensor: torch.Tensor) -> None:
        """Over all ranks, in place; waiting is no compute."""
        with self.waiting():
            if tensor.device.type == "cpu":
                tensor.copy_(self.mesh.sum(self.mesh.post(tensor)))
            else:
                dist.all_reduce(tensor, group=self.group)

    def begin(self, count: float | None, is_synced: bool, has_loaded: bool) -> None:
        """A forward pass. `count`: what the loss averages over; none: samples that the shared loader gave."""
        if self.is_synced and self.micros:
            self.micros.pop()  # it had no backward pass
        if not self.micros:
            self.memory.begin()
        total = None
        if count is None and has_loaded:
            count, total = float(self.samples[self.rank]), float(sum(self.samples))
        self.micros.append(Micro(count, total, self))
        self.is_synced = is_synced

    def loss_part(self) -> float:
        """Of this rank's loss in that of all ranks; of a weighed loss 1, as its sums need no more."""
        micro = self.micros[-1]
        return 1.0 if micro.is_weighed or micro.is_part else micro.count / micro.total()

    def weigh(self, loss: torch.Tensor, count: float | None) -> torch.Tensor:
        if count is not None:
            self.micros[-1] = Micro(float(count), None, self)
        micro = self.micros[-1]
        micro.is_weighed = True
        return loss * micro.count

    def part(self, loss: torch.Tensor, count: float | None = None, total: float | None = None) -> tuple[torch.Tensor, float]:
        """Of a local mean in that of all ranks, and its factor; micro-batches count alike, as a loop on one device has them.
        `count` of `total`, where what the forward pass said does not hold."""
        if count is not None:
            self.micros[-1] = Micro(count, total, self)
        micro = self.micros[-1]
        micro.is_part = True
        if micro.total() == 0:
            raise ValueError(NOTHING)
        factor = micro.count / micro.total()
        return loss * factor, factor

    def factor(self) -> float:
        """Of the gradients here, summed over the micro-batches, in those of all ranks."""
        if all(micro.is_part for micro in self.micros):
            return 1.0
        weighed = sum(micro.is_weighed for micro in self.micros)
        total = sum(micro.total() for micro in self.micros)
        if total == 0:
            raise ValueError(NOTHING)
        if weighed == len(self.micros):
            return 1.0 / total
        if weighed:
            raise ValueError(f"motley.torch.weigh: {weighed} of {len(self.micros)} micro-batches were weighed; weigh the loss of each")
        if len({(micro.count, micro.total()) for micro in self.micros}) > 1:
            found = [micro.count for micro in self.micros]
            raise ValueError(
                f"motley.torch.DDP: micro-batches that average over {found} are accumulated; a mean of their means is not the mean. "
                "Write motley.torch.weigh(loss).backward(), without a division by the number of micro-batches"
            )
        return sum(micro.count for micro in self.micros) / total

    def end_compute(self) -> None:
        """All gradients are on their way: says what this rank's own work took."""
        samples, passes = self.samples, max(1, len(self.micros))
        self.passes = passes
        reading = self.clock.stop()
        if samples is not None:
            begins, weights = 0, [0.0] * self.world
            if self.wanted is not None:
                begins, weights = self.step + self.ahead, self.wanted
                self.wanted = None
            self._timed.append((list(samples), passes, reading))
            timed = self._timed.popleft() if len(self._timed) > self.lag else None
            seconds = timed[2]() / timed[1] if timed else UNKNOWN
            most, peak = self.memory.most(samples[self.rank]), self.memory.of.peak()
            loss = self.record.loss(timed is not None) if self.record else math.nan
            plan = [begins, *weights] if self.rank == 0 else [0.0] * (self.world + 1)
            row = torch.tensor([seconds, most, loss, peak, *plan], dtype=torch.float64)
            self._exchange = (self.mesh.post(row), list(samples), timed[0] if timed else None)
            self.fitted = max(self.fitted, samples[self.rank])
        self.micros, self.is_synced = [], False
        self.done += 1

    def end_step(self) -> None:
        """All gradients are there: the next step's work begins."""
        self.steps.end()
        self.clock.begin()

    def settle(self) -> None:
        """Takes up what the last exchange said."""
        if self._exchange is None:
            return
        posted, samples, timed = self._exchange
        self._exchange = None
        with self.waiting():
            table = [row.tolist() for row in self.mesh.take(posted)]
        seconds, most, losses, peaks, begins, *weights = zip(*table, strict=True)
        begins, weights = begins[0], [each[0] for each in weights]
        self._took.append(self.steps.took / self.passes)
        took = self._took.popleft() if timed else UNKNOWN
        if self.record and self.record.log:
            self.record.log.step(self.steps.took, self.passes, samples, peaks)
            if timed:
                self.record.log.tell(seconds, losses)
        if begins > 0:
            self.splits.append((int(begins), weights))
            if self.rank == 0:
                LOG.info("from step %d on %s samples: %s", begins, ":".join(f"{each:.0f}" for each in weights), self._why)
                if self.record:
                    self.record.log.decide("motley", weights, -(-(int(begins) - self.step) // self.passes), self._why, self._expected)
            self.splits = self.splits[-4:]  # steps that are drawn already had theirs
        if self.rank == 0 and not self.is_fixed and self.world > 1 and min(seconds) > UNKNOWN:
            self._learn(timed, seconds, took, [min(int(a), b) for a, b in zip(most, self.most, strict=True)])

    def _learn(self, samples: list[int], seconds: list[float], took: float, most: list[int]) -> None:
        if self.policy is None:
            self.policy, self._told_most = SplitPolicy(self.most), list(self.most)
        for rank, (told, now) in enumerate(zip(self._told_most, most, strict=True)):
            if told != now:
                self.policy.limit(rank, now)
        self._told_most = most
        for choice in self.policy.observe(self.done, time.perf_counter() - self.begun, samples, seconds, took):
            if choice["action"]["do"] == "split":
                self.wanted, self._why, self._expected = [0] * self.world, choice["why"], choice["expected_s"] * self.passes
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
