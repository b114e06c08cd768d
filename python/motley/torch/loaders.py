"""A loader whose ranks share each global batch of a DistributedSampler unevenly.

Step k's global batch stays what DistributedSampler gives all ranks in step k: with W ranks of batch size b, the samples
[k b W, (k + 1) b W) of its order. Rank i takes a run of it, as long as its share.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence

from torch.utils.data import DataLoader

from motley.library import NO_MOST
from motley.torch.refusals import check_group, check_loader
from motley.torch.session import Session, session_of
from motley.torch.trial import Trial


class SharedBatches:
    """Batch sampler: this rank's indices of each step. Lives in the main process, which draws ahead of loading workers."""

    def __init__(self, loader: DataLoader, session: Session):
        self.sampler, self.session = loader.sampler, session
        self.batch_size, self.drop_last = loader.batch_size, loader.drop_last
        self.drawn: dict[int, list[int]] = {}  # samples of each rank, of steps that are drawn and not taken yet

    def __len__(self) -> int:
        each = self.sampler.num_samples
        return each // self.batch_size if self.drop_last else -(-each // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order()
        world, rank = self.session.world, self.session.rank
        whole = self.batch_size * world
        first = self.session.step
        self.drawn.clear()
        for k in range(len(self)):
            batch = order[k * whole : (k + 1) * whole]
            samples = self.session.samples_of(first + k, len(batch))
            self.drawn[first + k] = samples
            begin = sum(samples[:rank])
            yield batch[begin : begin + samples[rank]]

    def _order(self) -> list[int]:
        """Of all ranks: the sampler's own shuffle and padding, as if there were one rank."""
        alone = copy.copy(self.sampler)
        alone.num_replicas, alone.rank, alone.num_samples = 1, 0, self.sampler.total_size
        return list(alone)


class SharedLoader(DataLoader):
    """The loader that was given, drawing other batches; made by `share`."""

    def __iter__(self):
        session, batches = self.session, self.batch_sampler
        session.begin_epoch()
        iterator = super().__iter__()
        step = session.step
        while True:
            session.settle()  # what was decided is in force before the next batch is drawn
            try:
                batch = next(iterator)
            except StopIteration:
                return
            session.take(batches.drawn.pop(step), batch)
            step += 1
            yield batch

    def __len__(self):
        return len(self.batch_sampler)


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


def share(
    loader: DataLoader, *, shares: Sequence[float] | None = None, plan: str | None = None, most: int | None = None, group=None
) -> DataLoader:
    """The same loader with unequal batches: `sampler`, `set_epoch`, workers, `len` and collate stay.

    Called by all ranks. `shares`: of each rank, only ratios count. `plan`: a plan.json whose replicas are the ranks, in their order.
    Neither: Motley's planner learns them from what the ranks' steps take, from an even split on. `most`: samples that this rank's memory
    holds. All but the number of samples a rank is as before: a step's global batch is that of DistributedSampler.
    TypeError, ValueError: a loader, shares or limits that do not go.
    """
    check_group()
    session = session_of(group)
    check_loader(loader, session.world)
    if shares is not None and plan is not None:
        raise ValueError("motley.torch.share: give shares or plan, not both")
    given = read_plan(plan, session.world) if plan is not None else shares
    if trial := Trial.asked():
        given = trial.shares(session.world)
    if given is not None and (len(given) != session.world or not all(each > 0 for each in given)):
        raise ValueError(f"motley.torch.share: shares {list(given)}; wanted {session.world} numbers above 0, one a rank")
    session.agree(
        {
            "samples": len(loader.dataset),
            "batch_size": loader.batch_size,
            "drop_last": loader.drop_last,
            "seed": loader.sampler.seed,
            "shuffle": loader.sampler.shuffle,
            "shares": None if given is None else [float(each) for each in given],
        },
        prefetched(loader),
        NO_MOST if most is None else most,
    )
    session.limit(loader.batch_size * session.world)
    if given is not None:
        session.fix(list(given))
    kind = type(loader)
    shared = SharedLoader.__new__(SharedLoader if kind is DataLoader else type("Shared" + kind.__name__, (SharedLoader, kind), {}))
    shared.__dict__.update(loader.__dict__)
    shared.__dict__.update(session=session, batch_sampler=SharedBatches(loader, session), _iterator=None)
    return shared
