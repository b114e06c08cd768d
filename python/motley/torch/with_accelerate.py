"""An Accelerator whose ranks share each global batch: it makes motley.torch.DDP of models.

A global batch is what the ranks' BatchSamplerShard would give them together in a step. The prepared loader looks one batch
ahead, to know which is the last.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator

import torch
from accelerate import Accelerator
from accelerate.data_loader import BatchSamplerShard, DataLoaderDispatcher, DataLoaderShard
from torch.utils._pytree import tree_map
from torch.utils.data import BatchSampler, IterableDataset

from motley.torch.gather import gather_of
from motley.torch.loaders import DrawingLoader, SharedBatches, Split, begin_sharing, draw_from, prefetched
from motley.torch.parallel import DDP
from motley.torch.refusals import check_group
from motley.torch.session import Session, session_of

PLAIN = ("MULTI_CPU", "MULTI_GPU", "MULTI_XPU")  # whose models are in DistributedDataParallel


class ShardedBatches:
    """The global batches of what Accelerate gives one rank."""

    def __init__(self, shard: BatchSamplerShard):
        self.seed = getattr(shard.batch_sampler.sampler, "initial_seed", None)
        self.shard, self.batch_sampler, self.num_processes = shard, shard.batch_sampler, shard.num_processes
        self.batch_size, self.drop_last = shard.batch_size, shard.drop_last

    @property
    def sampler(self):
        return self.batch_sampler.sampler

    def facts(self) -> dict:
        return {"batch_size": self.batch_size, "drop_last": self.drop_last, "seed": self.seed}

    def sizes(self) -> set[int]:
        return {self.batch_size * self.num_processes}  # even_batches fills the last one up

    def __len__(self) -> int:
        return len(self.shard)

    def __iter__(self) -> Iterator[list[int]]:
        """The sampler is asked once: it may draw from a generator."""
        order, ranks = list(self.batch_sampler), []
        for rank in range(self.num_processes):
            alone = copy.copy(self.shard)
            alone.process_index, alone.batch_sampler = rank, [list(batch) for batch in order]
            ranks.append(alone)
        for batches in zip(*ranks, strict=True):
            yield sum(batches, [])


class SharedShard(DataLoaderShard):
    """The prepared loader, drawing other batches. With `is_taken_later` who trains on a batch says so."""

    def __iter__(self):
        for batch in super().__iter__():
            if not self.is_taken_later:
                self.batches.take(batch)
            yield batch

    @property
    def batches(self) -> SharedBatches:
        return self.base_dataloader.batch_sampler

    @property
    def total_batch_size(self):
        return self.batches.together.batch_size * self.batches.together.num_processes

    def set_epoch(self, epoch: int):
        self.iteration = epoch
        if hasattr(self.batches.sampler, "set_epoch"):
            self.batches.sampler.set_epoch(epoch)
        elif hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def without_first(self, skipped: int) -> SharedShard:
        """Of one pass: for a training that goes on inside an epoch."""
        batches = SharedBatches(self.batches.together, self.batches.session, skipped)
        batches.drawn = self.batches.drawn  # who takes them later knows the whole loader
        rest = copy.copy(self)
        rest.base_dataloader = draw_from(self.base_dataloader, batches, DrawingLoader)
        return rest


class SharedAccelerator(Accelerator):
    """Takes the place of the Accelerator that was given."""

    session: Session
    split: Split
    weight: str | Callable | None
    def prepare_model(self, model, *arguments, **keywords):
        with ddp_in_place(self.weight):
            return super().prepare_model(model, *arguments, **keywords)

    def skip_first_batches(self, dataloader, num_batches=0):
        if isinstance(dataloader, SharedShard):
            return dataloader.without_first(num_batches)
        return super().skip_first_batches(dataloader, num_batches)

    # Who waits for others is not at work.

    def gather(self, tensor):
        """Of ranks with unequal batches, too."""
        if self.session.is_alone:
            return super().gather(tensor)
        return tree_map(lambda each: gather_of(self.session, each.detach()) if isinstance(each, torch.Tensor) else each, tensor)

    def reduce(self, *arguments, **keywords):
        with self.session.waiting():
            return super().reduce(*arguments, **keywords)

    def wait_for_everyone(self):
        with self.session.waiting():
            super().wait_for_everyone()

    def share_loader(self, loader: DataLoaderShard, split: Split, is_taken_later: bool = False) -> SharedShard:
        check_shard(loader)
        together = ShardedBatches(loader.batch_sampler)
        batches = begin_sharing(self.session, loader, together, split, 1 + prefetched(loader.base_dataloader))
        shared = SharedShard.__new__(SharedShard)
        shared.__dict__.update(loader.__dict__)
        shared.base_dataloader = draw_from(loader.base_dataloader, batches, DrawingLoader)
        shared.is_taken_later = is_taken_later
        self._dataloaders = [shared if each is loader else each for each in self._dataloaders]
        return shared


_shared: list[SharedAccelerator] = []  # whose loaders `share` may be given


@contextlib.contextmanager
def ddp_in_place(weight):
    """Accelerate names DistributedDataParallel where it makes one."""

    class Weighed(DDP):
        def __init__(self, module, **options):
            super().__init__(module, weight=weight, **options)

    before = torch.nn.parallel.DistributedDataParallel
    torch.nn.parallel.DistributedDataParallel = Weighed
    try:
        yield
    finally:
        torch.nn.parallel.DistributedDataParallel = before


def check_accelerator(accelerator: Accelerator) -> None:
    kind = accelerator.distributed_type.value
    if kind not in PLAIN:
        raise ValueError(
            f"motley.torch.share: the Accelerator's engine is {kind}, which splits batches or models its own way; wanted plain data "
            "parallelism: leave the DeepSpeed, FSDP or Megatron plugin out"
        )
    if getattr(accelerator, "parallelism_config", None):
        raise ValueError("motley.torch.share: parallelism_config does not go with unequal batches; leave it out")
    for name, instead in {
        "split_batches": "leave it out, and give each rank's batch size",
        "dispatch_batches": "leave it out: each rank then loads its own samples",
    }.items():
        if getattr(accelerator, name):
            raise ValueError(f"motley.torch.share: {name}=True does not go with unequal batches; {instead}")
    if not accelerator.even_batches:
        raise ValueError("motley.torch.share: even_batches=False leaves ranks without a batch in the last step; leave it out")
    if accelerator.state.dynamo_plugin.backend.value != "NO":
        raise ValueError("motley.torch.share: the Accelerator compiles models with their gradient exchange; compile the model before, or leave it out")
    if accelerator._models:
        raise ValueError("motley.torch.share: the Accelerator has prepared a model already; share it before `prepare`")


def check_shard(loader) -> None:
    if isinstance(loader.dataset, IterableDataset) or type(loader) is DataLoaderDispatcher:
        raise TypeError(
            "motley.torch.share: the data set is iterable, or its batches come from rank 0 (dispatch_batches): nobody knows which samples "
            "another rank would take. Use a data set with __getitem__ and __len__"
        )
    if type(loader.batch_sampler) is not BatchSamplerShard or type(loader.batch_sampler.batch_sampler) is not BatchSampler:
        raise TypeError("motley.torch.share: the loader's batch sampler is an own one; wanted batch_size=, whose global batches can be shared")


def share(thing, split: Split, weight: str | Callable | None):
    """An Accelerator, or a loader that a shared one prepared."""
    if isinstance(thing, Accelerator):
        return share_accelerator(thing, split, weight)
    if weight is not None:
        raise ValueError("motley.torch.share: weight belongs to the Accelerator: share(Accelerator(), weight=...)")
    if type(thing) is SharedShard:
        raise ValueError("motley.torch.share: the loader is shared already")
    owner = next((each for each in _shared if any(loader is thing for loader in each._dataloaders)), None)
    if owner is None:
        raise ValueError("motley.torch.share: the Accelerator that prepared the loader is not shared: accelerator = motley.torch.share(Accelerator())")
    return owner.share_loader(thing, split if split != Split() else owner.split)


def share_accelerator(accelerator: Accelerator, split: Split, weight: str | Callable | None) -> SharedAccelerator:
    if accelerator.distributed_type.value != "NO":
        check_accelerator(accelerator)
    check_group()
    session = session_of()
    given = split.given(session.world)
    if given is not None:
        session.fix(given)
    kind = type(accelerator)
    accelerator.__class__ = type("Shared" + kind.__name__, (SharedAccelerator, kind), {})
    accelerator.session, accelerator.split, accelerator.weight = session, split, weight
    _shared.append(accelerator)
    return accelerator
