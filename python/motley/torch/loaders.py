"""A loader whose ranks share each global batch unevenly.

A step's global batch stays what the ranks' samplers give them together in that step: with W ranks of batch size b and a DistributedSampler in step
k the samples [k b W, (k + 1) b W) of its order. Rank i takes a run of it, as long as its share.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from torch.utils.data import BatchSampler, DataLoader

from motley.library import NO_MOST
from motley.torch.batches import Drawn
from motley.torch.frameworks import adapter_of, mixed
from motley.torch.gather import explain_gathers
from motley.torch.refusals import check_loader, is_distributed, refuse
from motley.torch.run_log import begin_record
from motley.torch.session import Session, session_of
from motley.torch.trial import EPOCH, Trial


class SharedBatches:
    """Batch sampler: this rank's indices of each step. Lives in the main process, which draws ahead of loading workers.

    `own`: the batch sampler that was there, which gives all else (`batch_size`, `set_epoch`). The first `skipped` batches are left out.
    """

    def __init__(self, loader: DataLoader, session: Session):
        self.own, self.session, self.skipped = loader.batch_sampler, session, 0
        self.drawn = Drawn()
        session.loaders.add(self.drawn)

    def facts(self) -> dict:
        """What all ranks must say alike."""
        return {"batches": len(self.own)}

    def sizes(self) -> set[int]:
        """Of the global batches, as far as they are known before they are drawn."""
        return set()

    def together(self) -> Iterable[list[int]]:
        """The global batches of an epoch: the ranks tell each other what their samplers give them."""
        drawn = self.session.said_by_all([list(each) for each in self.own])
        counts = " : ".join(str(len(each)) for each in drawn)
        refuse(len({len(each) for each in drawn}) > 1, f"the ranks' samplers gave {counts} batches; wanted as many on each")
        return (list(itertools.chain(*batches)) for batches in zip(*drawn, strict=True))

    def __len__(self) -> int:
        steps = max(0, len(self.own) - self.skipped)
        return min(steps, EPOCH) if Trial.asked() else steps

    def __iter__(self) -> Iterator[list[int]]:
        rank, trial = self.session.rank, Trial.asked()
        self.drawn.begin(self.session.weights)
        batches = itertools.islice(self.together(), self.skipped, None)
        for batch in trial.shorten(list(batches)) if trial else batches:
            self.session.draw()
            samples = self.session.samples_of(self.drawn.next_weights(), len(batch))
            self.drawn.draw(samples)
            begin = sum(samples[:rank])
            yield trial.part(batch, samples, rank) if trial else batch[begin : begin + samples[rank]]

    def __getattr__(self, name: str):
        if name.startswith("__") or name == "own":
            raise AttributeError(name)
        return getattr(self.own, name)


class DistributedBatches(SharedBatches):
    """Of a DistributedSampler, which is known without asking other ranks."""

    def facts(self) -> dict:
        return {"batch_size": self.batch_size, "drop_last": self.drop_last, "seed": self.sampler.seed, "shuffle": self.sampler.shuffle}

    def sizes(self) -> set[int]:
        whole, every = self.batch_size * self.session.world, self.sampler.total_size
        return {whole} if self.drop_last or every % whole == 0 else {whole, every % whole}

    def together(self) -> Iterable[list[int]]:
        """By the sampler's own shuffle and padding, as if there were one rank."""
        alone = copy.copy(self.sampler)
        alone.num_replicas, alone.rank, alone.num_samples = 1, 0, self.sampler.total_size
        return BatchSampler(alone, self.batch_size * self.session.world, self.drop_last)


class SharedLoader:
    """Of the loader that was given, drawing other batches; made by `share`. A batch is trained on when it is given."""

    def __iter__(self):
        batches = self.batch_sampler
        batches.session.read()
        batches.session.forget()  # what the begin of an epoch takes is no step's work
        for batch in super().__iter__():
            batches.session.take(batches.drawn, batch)
            yield batch
            batches.session.read()


def draw_from(loader: DataLoader, batches: SharedBatches) -> DataLoader:
    """A copy of a loader that draws other batches; Accelerate's has one in it that draws."""
    kind = mixed(type(loader), SharedLoader)
    shared, inner = kind.__new__(kind), loader.__dict__.get("base_dataloader")
    drawing = copy.copy(inner) if inner else shared
    shared.__dict__.update(loader.__dict__, **{"base_dataloader": drawing} if inner else {})
    drawing.__dict__.update(batch_sampler=batches, _iterator=None)
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
        refuse(self.shares is not None and self.plan is not None, "give shares or plan, not both")
        given = read_plan(self.plan, world) if self.plan is not None else self.shares
        if trial := Trial.asked():
            given = trial.shares(world)
        for found in (given, self.start):
            if found is not None:
                is_right = len(found) == world and all(each > 0 for each in found)
                refuse(not is_right, f"shares {list(found)}; wanted {world} numbers above 0, one a rank")
        return None if given is None else [float(each) for each in given]


def begin_sharing(loader: DataLoader, batches: SharedBatches, split: Split, ahead: int) -> None:
    """What all ranks must say alike of a loader is compared; `ahead`: batches that are drawn before the step that trains on them asks."""
    session, sizes, multiple = batches.session, batches.sizes(), split.multiple_of
    given = split.given(session.world)
    facts = {"samples": len(loader.dataset), **batches.facts(), "shares": given, "start": split.start, "multiple_of": multiple}
    session.agree(facts, ahead, NO_MOST if split.most is None else split.most)
    refuse(
        any(size % multiple for size in sizes),
        f"multiple_of={multiple} does not divide global batches of {sorted(sizes)} samples; use another batch size, and drop_last=True",
    )
    explain_gathers()
    session.expect_weighing()
    session.multiple = multiple
    for size in sizes:
        session.limit(size)
    if given is not None:
        session.is_fixed, session.weights = True, given
    elif split.start is not None:
        session.weights = [float(each) for each in split.start]
    if not Trial.asked():
        begin_record(session, split.run_dir, max(sizes, default=session.world * multiple))


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
        refuse(group is not None, "a framework's ranks are those of the default group; leave group out")
        return adapter.share(loader, split, weight)
    refuse(weight is not None, "the weight of a plain loader's batches is the model's: DDP(model, weight=...)")
    session = session_of(group)
    check_loader(loader, session.world)
    batches = (DistributedBatches if is_distributed(loader) else SharedBatches)(loader, session)
    begin_sharing(loader, batches, split, prefetched(loader))
    return draw_from(loader, batches)


def shares(group=None) -> list[float]:
    """Of the ranks, as they are now: to be kept, and given to share(loader, start=...) after a restart."""
    return list(session_of(group).weights)
