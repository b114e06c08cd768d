"""What unequal batches do not go with, each said with what to do instead."""

from __future__ import annotations

import re
import sys

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from motley.torch.ending import watch_end


def check_release(of: str, name: str, version: str, oldest: tuple[int, int], newest: tuple[int, int]) -> None:
    found = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if not oldest <= found <= newest:
        wanted = " to ".join(dict.fromkeys(".".join(map(str, each)) for each in (oldest, newest)))
        raise ImportError(f"{of}: found {name} {version}, wanted {wanted}")


def check_version(version: str = torch.__version__) -> None:
    check_release("motley.torch", "PyTorch", version, (2, 11), (2, 15))


def refuse(is_so: object, words: str, of: str = "share") -> None:
    """ValueError: what is so does not go."""
    if is_so:
        raise ValueError(f"motley.torch.{of}: {words}")


def is_distributed(loader: DataLoader) -> bool:
    """Is it known without asking what other ranks draw?"""
    draws = getattr(type(loader.sampler), "__iter__", None)
    return draws is DistributedSampler.__iter__ and type(loader.batch_sampler) is BatchSampler


def check_loader(loader: DataLoader, world: int) -> None:
    """Only a loader whose steps are known for all ranks can be shared."""
    if not isinstance(loader, DataLoader):
        raise TypeError(f"motley.torch.share: found a {type(loader).__name__}, wanted a torch.utils.data.DataLoader")
    if isinstance(loader.dataset, IterableDataset):
        raise TypeError(
            "motley.torch.share: the data set is iterable: nobody knows which samples another rank would take. Leave share out, and give each rank's "
            "DataLoader its own batch_size: motley.torch.DDP weighs what comes. Or use one with __getitem__ and __len__, and a DistributedSampler"
        )
    if loader.batch_sampler is None:
        raise TypeError("motley.torch.share: the loader makes no batches (batch_size=None); wanted batch_size= or batch_sampler=, which the ranks share")
    if type(loader.batch_sampler) is BatchSampler and type(loader.sampler) in (RandomSampler, SequentialSampler):
        raise TypeError(
            f"motley.torch.share: the loader's sampler is a {type(loader.sampler).__name__}, so every rank draws all samples; "
            "wanted torch.utils.data.DistributedSampler, which says what the ranks train on together"
        )
    if is_distributed(loader):
        refuse(loader.sampler.num_replicas != world, f"the sampler is for {loader.sampler.num_replicas} ranks; there are {world}")


def explain_unused(module: torch.nn.Module, said: str) -> str:
    """What DistributedDataParallel said of parameters by their number, by their names."""
    trained = [name for name, each in module.named_parameters() if each.requires_grad]
    numbers = re.search(r"did not receive grad for rank \d+: ([\d ]+)", said)
    names = [trained[int(i)] for i in numbers[1].split() if int(i) < len(trained)] if numbers else []
    named = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return (
        f"motley.torch.DDP: parameters without a part in the last step's loss: {named or 'some'}; its gradients were not exchanged. "
        "Freeze them (requires_grad_(False)), or give DDP(model, find_unused_parameters=True)"
    )


def tell_on_memory(session) -> None:
    """When this process ends because memory ran out, it says which share would have fitted."""

    def tell(error: BaseException) -> None:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            print(session.explain_memory(), file=sys.stderr)

    watch_end(tell)
