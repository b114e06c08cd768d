"""A loader whose ranks share each global batch of a DistributedSampler unevenly.

Step k's global batch stays what DistributedSampler gives all ranks in step k: with W ranks of batch size b, the samples
[k b W, (k + 1) b W) of its order. Rank i takes a run of it, as long as its share.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Sequence

import torch.distributed as dist
from torch.utils.data import DataLoader

from motley.library import NO_MOST
from motley.torch.frameworks import adapter_of
from motley.torch.gather import explain_gathers
from motley.torch.refusals import check_group, check_loader, is_distributed
from motley.torch.run_log import begin_record
from motley.torch.session import Session, session_of
from motley.torch.trial import EPOCH, Trial


class DistributedBatches:
    """The global batches of a DistributedSampler."""

    def __init__(self, loader: DataLoader, session: Session):
        self.sampler, self.world, self.batch_sampler = loader.sampler, session.world, loader.batch_sampler
        self.batch_size, self.drop_last = loader.batch_size, loader.drop_last

    def facts(self) -> dict:
        """What all ranks must say alike."""
        return {"batch_size": self.batch_size, "drop_last": self.drop_last, "seed": self.sampler.seed, "shuffle": self.sampler.shuffle}

    def sizes(self) -> set[int]:
        """Of the global batches."""
        whole, every = self.batch_size * self.world, self.sampler.total_size
        return {whole} if self.drop_last or every % whole == 0 else {whole, every % whole}

    def __len__(self) -> int:
        each = self.sampler.num_samples
        return each // self.batch_size if self.drop_last else -(-each // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order, whole = self._order(), self.batch_size * self.world
        for k in range(len(self)):
            yield order[k * whole : (k + 1) * whole]

    def _order(self) -> list[int]:
        """Of all ranks: the sampler's own shuffle and padding, as if there were one rank."""
        alone = copy.copy(self.sampler)
        alone.num_replicas, alone.rank, alone.num_samples = 1, 0, self.sampler.total_size
        return list(alone)


class DrawnBatches:
    """Of any other sampler, or batch sampler: what the ranks draw in a step, together. They tell each other where an epoch begins."""

    def __init__(self, loader: DataLoader, session: Session):
        self.sampler, self.batch_sampler, self.session = loader.sampler, loader.batch_sampler, session
        self.batch_size, self.drop_last = getattr(loader, "batch_size", None), getattr(loader, "drop_last", False)

    def facts(self) -> dict:
        return {"batches": len(self)}

    def sizes(self) -> set[int]:
        return set()  # not known before they are drawn

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[int]]:
        drawn = [None] * self.session.world
        dist.all_gather_object(drawn, [list(each) for each in self.batch_sampler], group=self.session.group)
        if len({len(each) for each in drawn}) > 1:
            raise ValueError(f"motley.torch.share: the ranks' samplers gave {' : '.join(str(len(each)) for each in drawn)} batches; wanted as many on each")
        for batches in zip(*drawn, strict=True):
            yield sum(batches, [])


class SharedBatches:
    """Batch sampler: this rank's indices of each step. Lives in the main process, which draws ahead of loading workers.

    `together`: what the ranks draw in each step, with `batch_size` of a rank, `sampler` and `drop_last`. The first `skipped` are left out.
    """

    def __init__(self, together, session: Session, skipped: int = 0):
        self.together, self.session, self.skipped = together, session, skipped
        self.sampler, self.batch_size, self.drop_last = together.sampler, together.batch_size, together.drop_last
        self.drawn = session.new_drawn()

    def __len__(self) -> int:
        steps = max(0, len(self.together) - self.skipped)
        return min(steps, EPOCH) if Trial.asked() else steps

    def __iter__(self) -> Iterator[list[int]]:
        rank, trial = self.session.rank, Trial.asked()
        self.drawn.begin(self.session.weights)
        batches = itertools.islice(self.together, self.skipped, None)
        for batch in trial.shorten(list(batches)) if trial else batches:
            self.session.draw()
            samples = self.session.samples_of(self.drawn.next_weights(), len(batch))
            self.drawn.draw(samples)
            begin = sum(samples[:rank])
            yield trial.part(batch, samples, rank) if trial else batch[begin : begin + samples[rank]]

    def __getattr__(self, name: str):
        """Of the batch sampler that was there: `set_epoch` of a script's own."""
        if name.startswith("__") or name == "together":
            raise AttributeError(name)
        return getattr(self.together.batch_sampler, name)

    def take(self, batch) -> None:
        """The next batch in order is what the coming step trains on."""
        self.session.take(self.drawn, batch)


class DrawingLoader(DataLoader):
    """Draws its batches from SharedBatches; who trains on one says so by `take`."""

    def __iter__(self):
        self.session.begin_epoch()
        iterator = super().__iter__()
        while True:
            self.session.read()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            yield batch

    def __len__(self):
        return len(self.batch_sampler)


class SharedLoader(DrawingLoader):
    """The loader that was given, drawing other batches; made by `share`. A batch is trained on when it is given."""

    def __iter__(self):
        for batch in super().__iter__():
            self.batch_sampler.take(batch)
            yield batch


def draw_from(loader: DataLoader, batches: SharedBatches, kind: type[DrawingLoader]) -> DataLoader:
    """A copy of a loader, of its own class and of `kind`, that draws other batches."""
    own = type(loader)
    if not issubclass(own, kind):
        own = kind if own is DataLoader else type("Shared" + own.__name__, (kind, own), {})
    shared = own.__new__(own)
    shared.__dict__.update(loader.__dict__)
    shared.__dict__.update(session=batches.session, batch_sampler=batches, _iterator=None)
    return shared


def read_plan(path: str, world: int) -> list[int]:
    """Samples of each rank, by a plan that splits the batch alone (docs/formats/plan.md)."""
    with open(path, encoding="utf-8") as file:
        replicas = json.load(file)["replicas"]
    if any(len(each["regions"]) != 1 or len(each["regions"][0]["devices"]) != 1 for each in replicas):
        raise ValueError(f"{path}: the plan splits more than the batch, which a script's own loop cannot; make one with --planner split")
    if len(replicas) != world:
        raise ValueError(f"{path}: the plan is for {len(replicas)} devices; there are {world} ranks")
    return [each["samples"] for each in replicas]


def prefetched(loader: DataLoader) -> int:
    """Batches that are drawn before the step that trains on them asks."""
    return loader.num_workers * (loader.prefetch_factor or 0)


@dataclasses.dataclass(frozen=True)
class Split:
    """How a user wants batches shared: see `share`."""

    shares: Sequence[float] | None = None
    plan: str | None = None
    most: int | None = None
    run_dir: str | None = None
    start: Sequence[float] | None = None
    multiple_of: int = 1

    def given(self, world: int) -> list[float] | None:
        """Of each rank; none: they are learned."""
        if self.shares is not None and self.plan is not None:
            raise ValueError("motley.torch.share: give shares or plan, not both")
        given = read_plan(self.plan, world) if self.plan is not None else self.shares
        if trial := Trial.asked():
            given = trial.shares(world)
        for found in (given, self.start):
            if found is not None and (len(found) != world or not all(each > 0 for each in found)):
                raise ValueError(f"motley.torch.share: shares {list(found)}; wanted {world} numbers above 0, one a rank")
        return None if given is None else [float(each) for each in given]


def begin_sharing(session: Session, loader: DataLoader, together, split: Split, ahead: int) -> SharedBatches:
    """What all ranks must say alike of a loader is compared; `ahead`: batches that are drawn before the step that trains on them asks."""
    given, multiple = split.given(session.world), split.multiple_of
    facts = {"samples": len(loader.dataset), **together.facts(), "shares": given, "start": split.start, "multiple_of": multiple}
    session.agree(facts, ahead, NO_MOST if split.most is None else split.most)
    if any(size % multiple for size in together.sizes()):
        raise ValueError(
            f"motley.torch.share: multiple_of={multiple} does not divide global batches of {sorted(together.sizes())} samples; "
            "use another batch size, and drop_last=True"
        )
    explain_gathers(session)
    session.expect_weighing()
    session.multiple = multiple
    for size in together.sizes():
        session.limit(size)
    if given is not None:
        session.fix(given)
    elif split.start is not None:
        session.weights = [float(each) for each in split.start]
    if not Trial.asked():
        begin_record(session, split.run_dir, max(together.sizes(), default=session.world * multiple))
    return SharedBatches(together, session)


def share(
    loader,
    *,
    shares: Sequence[float] | None = None,
    plan: str | None = None,
    most: int | None = None,
    weight: str | Callable | None = None,
    run_dir: str | None = None,
    start: Sequence[float] | None = None,
    multiple_of: int = 1,
    group=None,
):
    """The same loader with unequal batches: `sampler`, `set_epoch`, workers, `len` and collate stay.

    Called by all ranks. `shares`: of each rank, only ratios count. `plan`: a plan.json whose replicas are the ranks, in their order.
    Neither: Motley's planner learns them from what the ranks' steps take, from an even split on. `most`: samples that this rank's memory
    holds. `start`: shares to begin from, as `shares` gave them before. `multiple_of`: each rank's samples are a multiple of it. All but the
    number of samples a rank is as before: a step's global batch is what the ranks' samplers would have given them together.
    `run_dir` (or MOTLEY_RUN_DIR): where rank 0 writes what `motley report` reads.
    In place of a loader, the same of what draws and weighs for a framework (docs/scripts.md): a `Trainer` of transformers, an
    `Accelerator` and loaders that it prepared, a `Trainer` of Lightning; `weight` is DDP's there.
    TypeError, ValueError, ImportError: a loader, a framework, shares or limits that do not go.
    """
    split = Split(shares, plan, most, run_dir, start, multiple_of)
    if adapter := adapter_of(loader):
        if group is not None:
            raise ValueError("motley.torch.share: a framework's ranks are those of the default group; leave group out")
        return adapter.share(loader, split, weight)
    if weight is not None:
        raise ValueError("motley.torch.share: the weight of a plain loader's batches is the model's: DDP(model, weight=...)")
    check_group()
    session = session_of(group)
    check_loader(loader, session.world)
    kind = DistributedBatches if is_distributed(loader) else DrawnBatches
    return draw_from(loader, begin_sharing(session, loader, kind(loader, session), split, prefetched(loader)), SharedLoader)


def shares(group=None) -> list[float]:
    """Of the ranks, as they are now: to be kept, and given to share(loader, start=...) after a restart."""
    check_group()
    return list(session_of(group).weights)
