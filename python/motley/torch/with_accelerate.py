"""An Accelerator whose ranks share each global batch: it makes motley.torch.DDP of models.

A global batch is what the ranks' BatchSamplerShard would give them together in a step. The prepared loader looks one batch
ahead, to know which is the last.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import accelerate
import torch
from accelerate import Accelerator
from accelerate.data_loader import BatchSamplerShard, DataLoaderDispatcher, DataLoaderShard
from torch.utils._pytree import tree_map
from torch.utils.data import BatchSampler, IterableDataset

from motley.torch.frameworks import mixed, wait_in
from motley.torch.gather import gather_of
from motley.torch.loaders import SharedBatches, SharedLoader, Split, begin_sharing, draw_from, prefetched
from motley.torch.parallel import DDP
from motley.torch.refusals import refuse
from motley.torch.session import session_of

PLAIN = ("MULTI_CPU", "MULTI_GPU", "MULTI_XPU")  # whose models are in DistributedDataParallel


class ShardBatches(SharedBatches):
    """Of the BatchSamplerShard that Accelerate gives a rank."""

    def facts(self) -> dict:
        seed = getattr(self.own.batch_sampler.sampler, "initial_seed", None)
        return super().facts() | {"batch_size": self.batch_size, "drop_last": self.drop_last, "seed": seed}

    def sizes(self) -> set[int]:
        return {self.batch_size * self.num_processes}  # even_batches fills the last one up


def skip_first_batches(dataloader, num_batches=0):
    """Of one pass: for a training that goes on inside an epoch."""
    if not isinstance(dataloader, SharedLoader):
        return _skip_first_batches(dataloader, num_batches)
    batches = copy.copy(dataloader.batch_sampler)
    batches.skipped = num_batches
    return draw_from(dataloader, batches)


_skip_first_batches = accelerate.skip_first_batches


class SharedAccelerator(Accelerator):
    """Takes the place of the Accelerator that was given."""

    def prepare_model(self, model, *arguments, **keywords):
        """Accelerate names DistributedDataParallel where it makes one."""
        parallel, own = torch.nn.parallel, torch.nn.parallel.DistributedDataParallel
        weighed = functools.partialmethod(DDP.__init__, weight=self.weight)
        parallel.DistributedDataParallel = type("Weighed", (DDP,), {"__init__": weighed})
        try:
            return super().prepare_model(model, *arguments, **keywords)
        finally:
            parallel.DistributedDataParallel = own

    def gather(self, tensor):
        """Of ranks with unequal batches, too."""
        if self.session.is_alone:
            return super().gather(tensor)
        return tree_map(lambda each: gather_of(self.session, each.detach()) if isinstance(each, torch.Tensor) else each, tensor)

    def share_loader(self, loader: DataLoaderShard, split: Split) -> DataLoaderShard:
        check_shard(loader)
        batches = ShardBatches(loader, self.session)
        begin_sharing(loader, batches, split, 1 + prefetched(loader))  # it looks a batch ahead
        shared = draw_from(loader, batches)
        self._dataloaders = [shared if each is loader else each for each in self._dataloaders]
        return shared


_shared: list[SharedAccelerator] = []  # whose loaders `share` may be given


def check_accelerator(accelerator: Accelerator) -> None:
    kind = accelerator.distributed_type.value
    refuse(
        kind not in PLAIN,
        f"the Accelerator's engine is {kind}, which splits batches or models its own way; wanted plain data parallelism: leave the DeepSpeed, "
        "FSDP or Megatron plugin out",
    )
    refuse(getattr(accelerator, "parallelism_config", None), "parallelism_config does not go with unequal batches; leave it out")
    refuse(accelerator.split_batches, "split_batches=True does not go with unequal batches; leave it out, and give each rank's batch size")
    refuse(accelerator.dispatch_batches, "dispatch_batches=True does not go with unequal batches; leave it out: each rank then loads its own samples")
    refuse(not accelerator.even_batches, "even_batches=False leaves ranks without a batch in the last step; leave it out")
    is_compiled = accelerator.state.dynamo_plugin.backend.value != "NO"
    refuse(is_compiled, "the Accelerator compiles models with their gradient exchange; compile the model before, or leave it out")
    refuse(accelerator._models, "the Accelerator has prepared a model already; share it before `prepare`")


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
    refuse(weight is not None, "weight belongs to the Accelerator: share(Accelerator(), weight=...)")
    refuse(isinstance(thing, SharedLoader), "the loader is shared already")
    owner = next((each for each in _shared if any(loader is thing for loader in each._dataloaders)), None)
    refuse(owner is None, "the Accelerator that prepared the loader is not shared: accelerator = motley.torch.share(Accelerator())")
    return owner.share_loader(thing, split if split != Split() else owner.split)


def share_accelerator(accelerator: Accelerator, split: Split, weight: str | Callable | None) -> SharedAccelerator:
    if accelerator.distributed_type.value != "NO":
        check_accelerator(accelerator)
    session = session_of()
    split.given(session.world)  # or what does not go
    accelerator.__class__ = mixed(type(accelerator), SharedAccelerator)
    wait_in(accelerator, "reduce", "wait_for_everyone")
    accelerator.session, accelerator.split, accelerator.weight = session, split, weight
    accelerate.accelerator.skip_first_batches = skip_first_batches
    _shared.append(accelerator)
    return accelerator
