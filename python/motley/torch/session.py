"""What the ranks of a process group know of each other's steps: counts, times, and who takes how much.

One small exchange a step says what each rank's compute took. Rank 0 shows that to Motley's planner (motley/adapt, through
motley.library) and its decision goes with a later exchange: so ranks need not be machines that round alike. All change at one
step, behind whatever loaders have drawn: with c batches of a loader taken and P drawn ahead at most, its batch c + P is the first that
nobody has.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from motley.library import SplitPolicy, share_batch
from motley.torch import backward
from motley.torch.batches import Batches, Drawn, tensors_of
from motley.torch.clocks import UNKNOWN, DeviceClock, HostClock, StepClock
from motley.torch.ending import await_idle
from motley.torch.memory import Memory
from motley.torch.mesh import LARGEST, Mesh
from motley.torch.norm import Norms
from motley.torch.refusals import refuse, tell_on_memory
from motley.torch.run_log import LOG, keep_losses
from motley.torch.trial import Trial
from motley.torch.work import Work, add_known, add_seconds

MOST_NODES = 1000  # between a loss and the model's outputs
OUTPUT = "motley.torch"  # in what PyTorch keeps of a node that makes an output
MOST_ROWS = 64  # backward passes of a step that are told; a loop over batches that nobody shared has no end


def accumulator_of(parameter: torch.nn.Parameter):
    """The node that adds to its gradient."""
    with torch.enable_grad():
        return parameter.view_as(parameter).grad_fn.next_functions[0][0]


class Session:
    """Of one process group. All ranks make it together."""

    def __init__(self, group):
        self.group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.mesh = Mesh(group)
        trial = Trial.asked()
        self.is_alone = trial is not None and trial.is_plain  # then no exchange is motley.torch's
        self.weights = [1.0] * self.world  # of the ranks, in what is drawn next
        self.multiple = 1  # samples of a rank are a multiple of it
        self.loaders: weakref.WeakSet[Drawn] = weakref.WeakSet()
        self.most, self.ahead = [], 0
        self.policy: SplitPolicy | None = None
        self.is_fixed = False
        self.wanted: list[int] | None = None  # by the planner, of rank 0; not told yet
        self.batches = Batches(self.rank)
        self.models: list = []  # in DDP, with their batch norms
        self.weight: str | Callable | None = None  # of the last one that had a forward pass
        self._forwards: Counter = Counter()  # passes of each model whose gradients are not exchanged
        self._is_synced = True
        self.part = 1.0 / self.world  # of this rank's last loss in that of all
        self.has_nested = False  # backward passes within one another
        self.has_weighed = False
        self._guard = None
        self.accumulated = 0.0  # what the gradients that are there average over, of losses that `weigh` marked
        self.clock: HostClock | DeviceClock = HostClock()
        self.steps = StepClock()
        self.lag = 0  # steps after which a step's seconds are told; on all ranks the same
        self.memory: Memory  # of the models in DDP, whose steps these are
        self.work = Work()  # of the step that runs
        self.done = 0  # steps whose gradients were exchanged
        self.fitted = 0  # most samples of such a step here
        self.begun = time.perf_counter()
        self.is_logged, self.log = False, None  # are losses kept, and what writes a run directory (run_log.py) on rank 0
        self._exchange: list[int] = []  # rows that were posted in the step that runs
        self._took: deque = deque()  # what a pass of steps whose seconds are not told yet took in all
        self._untold: deque[Work] = deque()  # the step that runs, behind those that are told later
        self._why, self._expected = "", None
        self._thread = threading.get_ident()  # that trains
        self.is_read_elsewhere = False  # loaders, by another thread
        self._cache: dict = {}

    def __deepcopy__(self, _memo):
        return self  # of a copied model (averages of weights)

    def __reduce__(self):
        return type(None), ()  # a saved model is opened elsewhere: it evaluates

    @property
    def samples(self) -> list[int] | None:
        """Of each rank, in the batch of the last forward pass."""
        return self.batches.samples

    # Models.

    def add_model(self, module: torch.nn.Module, norms: Norms) -> None:
        """Whose steps' time and memory are kept. All ranks name it together, each where it has it."""
        backward.watch(self)
        self.models.append((weakref.ref(module), norms))
        device = next((each.device for each in self.parameters() if each.device.type != "cpu"), torch.device("cpu"))
        if device.type != "cpu":
            self.clock = DeviceClock(device)
        self.memory = Memory(device, self.parameters)
        said = self.said_by_all((self.clock.LAG, self.memory.of.place()))
        self.lag = max(lag for lag, _ in said)
        self.memory.sharing = Counter(place for _, place in said)[said[self.rank][1]]

    def parameters(self) -> list[torch.nn.Parameter]:
        modules = [module for each, _ in self.models if (module := each()) is not None]
        return [each for module in modules for each in module.parameters() if each.requires_grad]

    def within_models(self) -> contextlib.ExitStack:
        """A backward pass, which may compute forward passes again (checkpoints)."""
        stack = contextlib.ExitStack()
        for _, norms in self.models:
            stack.enter_context(norms.within())
        return stack

    def reaches_model(self) -> bool:
        """Does the backward pass that runs derive a parameter, of a forward pass in DDP? Behind reentrant checkpoints nobody sees, so there it does."""
        if self.has_nested or not self._forwards:
            return bool(self._forwards)
        executes, modules = torch._C._will_engine_execute_node, (each.module for each in self._forwards)
        return any(executes(accumulator_of(each)) for module in modules for each in module.parameters() if each.requires_grad)

    def is_exchanged(self, roots: list[torch.Tensor]) -> bool:
        """Is it a backward pass through an output of a model in DDP, though no forward pass waits for one? A model's own forward pass may be anyone's."""
        waiting, seen = [each.grad_fn for each in roots], set()
        while waiting and self.models and len(seen) < MOST_NODES:
            node = waiting.pop()
            if OUTPUT in node.metadata:
                return True
            seen.add(node)
            waiting += [each for each, _ in node.next_functions if each is not None and each not in seen]
        return False

    # Loaders.

    def agree(self, facts: dict, ahead: int, most: int) -> None:
        """All ranks must have said the same of their loaders; how far they draw ahead and hold may differ."""
        said = self.said_by_all((facts, ahead, most))
        for name in facts:
            found = [each[0][name] for each in said]
            refuse(any(each != found[0] for each in found), f"{name} differs between ranks: {found}")
        self.ahead = max([self.ahead, *(each[1] for each in said)])
        self.most = [each[2] for each in said]
        self._cache.clear()

    def limit(self, batch: int) -> None:
        """ValueError: the ranks' memory does not hold the batch."""
        most = [each - each % self.multiple for each in self.most]
        held, wanted = f"{self.most}: fewer than {self.multiple}, or too few together", "one" if self.multiple == 1 else self.multiple
        refuse(min(most) < 1 or sum(most) < batch, f"a global batch of {batch} samples; the ranks hold at most {held}")
        is_small = batch < self.world * self.multiple
        refuse(is_small, f"a global batch of {batch} samples for {self.world} ranks; wanted {wanted} each at least")

    def expect_weighing(self) -> None:
        """Of what is trained on a shared loader's batches."""
        if self._guard is None and not self.is_alone:
            self._guard = register_optimizer_step_post_hook(self._check_weighed)

    def _check_weighed(self, *_) -> None:
        if self.batches.taken and self.world > 1 and not self.has_weighed:
            raise ValueError(
                "motley.torch: an optimizer steps on batches of unequal lengths, whose gradients nobody weighs. Write motley.torch.DDP(model) in place of "
                "DistributedDataParallel(model), or motley.torch.weigh(loss).backward() where fully_shard averages them"
            )

    def close(self) -> None:
        self.mesh.close()
        backward.forget(self)
        if self._guard is not None:
            self._guard.remove()

    def samples_of(self, weights: list[float], batch: int) -> list[int]:
        """Samples of each rank in a step of `batch`."""
        key = (*weights, batch)
        if key not in self._cache:
            m = self.multiple
            self._cache[key] = [m * each for each in share_batch(batch // m, weights, [most // m for most in self.most])]
        return self._cache[key]

    def read(self) -> None:
        """A loader is asked for a batch: what was decided is in force before it is drawn."""
        if threading.get_ident() == self._thread:
            self.settle()

    def draw(self) -> None:
        """A batch is drawn."""
        self.is_read_elsewhere = threading.get_ident() != self._thread

    def take(self, loader: Drawn, batch) -> None:
        """The loader's next batch is what comes next."""
        if self.work.is_posted or not self.work.is_begun:
            self.work = Work()
            self.work.is_begun = True
            self.steps.take()
        self.batches.take(loader.take(), batch)

    # Steps.

    def waiting(self):
        """What a block takes is a wait for other ranks."""
        return self.clock.waiting()

    def forget(self) -> None:
        """What comes now is no step's work."""
        self.clock.forget()
        self.steps.forget()

    def said_by_all(self, own) -> list:
        """What each rank says: anything, in a millisecond."""
        said = [None] * self.world
        dist.all_gather_object(said, own, group=self.group)
        return said

    def exchange(self, what: str, row: list[float]) -> list[list[float]]:
        """What all ranks say; waiting is no compute."""
        if self.is_alone:
            return [row]
        with self.waiting():
            return [each.tolist() for each in self.mesh.take(self.mesh.post(torch.tensor(row, dtype=torch.float64), what))]

    def sum_now(self, tensor: torch.Tensor, what: str) -> torch.Tensor:
        """Over all ranks, in place; waiting is no compute."""
        with self.waiting():
            if tensor.device.type == "cpu" and tensor.dtype == torch.float64 and tensor.nbytes + len(what) <= LARGEST:
                return tensor.copy_(self.mesh.sum(self.mesh.post(tensor, what)).view_as(tensor))
            dist.all_reduce(tensor, group=self.group)
            return tensor

    def begin_forward(self, model, weight: str | Callable | None, arguments, is_synced: bool) -> None:
        """A forward pass of a model that is trained."""
        # Shares that change must find all ranks at one place: a thread of the script's may be anywhere.
        refuse(
            self.is_read_elsewhere and not self.is_fixed and self.world > 1,
            "a thread of its own reads the loader, so that ranks would change shares at different batches. Give shares=[...], or read ahead by "
            "num_workers and prefetch_factor",
        )
        if self.is_read_elsewhere:
            self.settle()
        if not self._forwards:
            self.memory.begin()
        self._forwards[model] += 1
        self.weight, self._is_synced, self._thread = weight, is_synced, threading.get_ident()
        self.batches.begin_forward(weight, arguments)

    def end_forward(self, outputs) -> None:
        for each in tensors_of(outputs):
            if each.grad_fn is not None:
                each.grad_fn.metadata[OUTPUT] = True

    def has_gradients(self) -> bool:
        """Of this rank alone: its targets may all be masked."""
        return any(each.grad is not None and bool(each.grad.any()) for each in self.parameters())

    def accumulate(self, totals: list[float], has_gradients: bool) -> float:
        """What the gradients that are there average over. They become their part of the mean over that and `totals`, of each term."""
        if len(set(totals)) > 1:
            raise ValueError(f"motley.torch.weigh: the loss has terms that average over {totals}; give it the number: weigh(loss, weight=...)")
        before = self.accumulated if has_gradients else 0.0
        self.accumulated = before + (totals[0] if totals else 0.0)
        if before and self.accumulated > before:
            part = before / self.accumulated
            for each in self.parameters():
                if each.grad is not None:
                    each.grad.mul_(part)
            self.work.losses = [(value, part * own) for value, own in self.work.losses]
        return before

    def begin_backward(self, roots: list[torch.Tensor], part: float) -> None:
        """`part`: of this rank's loss in that of all."""
        self.part, self.has_weighed = part, True
        if self.is_logged:
            keep_losses(roots, part, self.work)

    def end_compute(self) -> None:
        """All gradients are derived, and on their way to the other ranks."""
        self.batches.end_backward()
        if not (self._is_synced and self.models):
            return
        self.work.passes = max(self.work.passes, *self._forwards.values(), 1)
        self.post(self.clock.stop())

    def end_backward(self) -> None:
        """All gradients are there: the next step's work begins."""
        if self._is_synced:
            self._forwards.clear()
            self.steps.end()
            self.clock.begin()

    def post(self, reading) -> None:
        """Says what this rank's own work took."""
        self.done += not self.work.is_posted
        if self.samples is None or len(self._exchange) >= MOST_ROWS:
            return
        plan = [0.0] * self.world  # the samples of each rank that rank 0 wants; none: as it is
        if not self.work.is_posted:
            plan, self.wanted = self.wanted or plan, None
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
        row = [seconds, most, loss, peak, self.batches.taken, *plan]
        self._exchange.append(self.mesh.post(torch.tensor(row, dtype=torch.float64), "the end of a step"))

    def _told(self) -> Work | None:
        """The step whose seconds are told now."""
        return self._untold[0] if len(self._untold) > self.lag else None

    def settle(self) -> None:
        """Takes up what the last exchange said."""
        if not self._exchange:
            return
        posted, self._exchange = self._exchange, []
        with self.waiting():
            tables = [[row.tolist() for row in self.mesh.take(each)] for each in posted]
        _, most, _, peaks, taken, *_ = zip(*tables[-1], strict=True)
        weights = tables[0][0][5:]
        if any(weights) and len(set(taken)) > 1:
            raise ValueError(
                f"motley.torch.share: the ranks have read {' : '.join(f'{each:.0f}' for each in taken)} batches of their loaders, so shares cannot change at one of "
                "them. Read ahead alike on all ranks, or give shares=[...]"
            )
        seconds = [add_seconds(table[rank][0] for table in tables) for rank in range(self.world)]
        losses = [add_known(table[rank][2] for table in tables) for rank in range(self.world)]
        passes, told = self.work.passes, self._told()
        self._took.append(self.steps.took / passes)
        took = self._took.popleft() if told else UNKNOWN
        if self.log:
            self.log.step(self.steps.took, passes, self.work.samples, peaks)
            if told:
                self.log.tell(seconds, losses)
        if any(weights):
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
            if self.log:
                self.log.decide("motley", weights, after, self._why, self._expected)

    def _learn(self, samples: list[int], seconds: list[float], took: float, passes: int, most: list[int]) -> None:
        self.policy = self.policy or SplitPolicy(self.most)
        for rank, each in enumerate(most):
            self.policy.limit(rank, each)
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


SESSIONS: dict = {}  # by process group


def session_of(group=None) -> Session:
    """That of a process group, which all its ranks make together; without a group the default one's."""
    if not dist.is_initialized():
        wanted = "call torch.distributed.init_process_group first, and start the script by torchrun"
        raise RuntimeError(f"motley.torch: there is no process group; {wanted}")
    if not SESSIONS:
        atexit.register(await_idle)
    if group not in SESSIONS:
        SESSIONS[group] = Session(group)
        tell_on_memory(SESSIONS[group])
    return SESSIONS[group]


def forget_all() -> None:
    """As in a process that begins: of a script after another."""
    for each in SESSIONS.values():
        each.close()
    SESSIONS.clear()
