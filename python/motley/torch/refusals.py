"""What unequal batches do not go with, each said with what to do instead."""

from __future__ import annotations

import re
import sys

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

OLDEST, NEWEST = (2, 11), (2, 15)

# Options of DistributedDataParallel that take gradients past what weighs them.
OPTIONS = {
    "mixed_precision": "use torch.autocast around forward and loss",
    "delay_all_reduce_named_params": "leave it out",
    "param_to_hook_all_reduce": "leave it out",
}


def check_version(version: str = torch.__version__) -> None:
    found = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if not OLDEST <= found <= NEWEST:
        wanted = " to ".join(".".join(map(str, each)) for each in (OLDEST, NEWEST))
        raise ImportError(f"motley.torch: found PyTorch {version}, wanted {wanted}")


def check_group() -> None:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise RuntimeError(
            "motley.torch: there is no process group; call torch.distributed.init_process_group first, and start the script by torchrun"
        )


def check_loader(loader: DataLoader, world: int) -> None:
    """Only a loader whose steps are known for all ranks can be shared."""
    if not isinstance(loader, DataLoader):
        raise TypeError(f"motley.torch.share: found a {type(loader).__name__}, wanted a torch.utils.data.DataLoader")
    if isinstance(loader.dataset, IterableDataset):
        raise TypeError(
            "motley.torch.share: the data set is iterable: nobody knows which samples another rank would take. "
            "Use one with __getitem__ and __len__, and a DistributedSampler"
        )
    if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
        kind = type(loader.batch_sampler).__name__ if loader.batch_sampler is not None else "none"
        raise TypeError(
            f"motley.torch.share: the loader's batch sampler is an own one ({kind}); "
            "wanted batch_size= and sampler=DistributedSampler(dataset), whose global batches can be shared"
        )
    sampler = loader.sampler
    if not isinstance(sampler, DistributedSampler) or type(sampler).__iter__ is not DistributedSampler.__iter__:
        raise TypeError(
            f"motley.torch.share: the loader's sampler is a {type(sampler).__name__}; "
            "wanted torch.utils.data.DistributedSampler, which says what the ranks train on together"
        )
    if sampler.num_replicas != world:
        raise ValueError(f"motley.torch.share: the sampler is for {sampler.num_replicas} ranks; there are {world}")


def check_options(options: dict) -> None:
    for name, instead in OPTIONS.items():
        if options.get(name):
            raise ValueError(f"motley.torch.DDP: {name} does not go with unequal batches; {instead}")


def refuse_sums(root) -> None:
    """A loss that is a sum grows with a rank's samples: weighing it by them would count them twice."""
    node = root
    while node is not None:
        name = node.name()
        if name == "SumBackward0" or getattr(node, "_saved_reduction", None) == 2:
            raise ValueError(
                "motley.torch.DDP: the loss is a sum over this rank's samples; wanted their mean (reduction='mean'). "
                "If it is a mean by your own count, say what it averages over: DDP(model, weight=function of the batch)"
            )
        if not name.startswith(("Mul", "Neg")):  # what a GradScaler or a factor puts on top
            return
        node = next((each for each, _ in node.next_functions if each is not None and each.name() != "torch::autograd::AccumulateGrad"), None)


def check_first_loss() -> None:
    """Looks at the loss of the next backward pass, once."""
    backward = torch.Tensor.backward

    def checked(self, *arguments, **keywords):
        torch.Tensor.backward = backward
        refuse_sums(self.grad_fn)
        return backward(self, *arguments, **keywords)

    torch.Tensor.backward = checked


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


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, (RuntimeError, MemoryError)) and "can't allocate memory" in str(error)
    )


def tell_on_memory(session) -> None:
    """When this process ends because memory ran out, it says which share would have fitted."""
    before = sys.excepthook

    def hook(kind, error, trace):
        before(kind, error, trace)
        if is_out_of_memory(error):
            print(session.explain_memory(), file=sys.stderr)

    sys.excepthook = hook
