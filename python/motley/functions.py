"""Functions of PyTorch that are captured as other operators than its own."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.overrides import TorchFunctionMode

from motley.ctc import ctc_loss


class OwnFunctions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return OWN.get(func, func)(*args, **(kwargs or {}))


def embedding_bag(
    input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean",
    sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None,
):  # fmt: skip
    """Bags that are rows as sums over looked-up rows: PyTorch's operator takes the bags of all samples
    one behind the other, which cannot be split."""
    if input.dim() != 2 or max_norm is not None or scale_grad_by_freq or mode == "max":
        return F.embedding_bag(
            input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse,
            per_sample_weights, include_last_offset, padding_idx,
        )  # fmt: skip
    rows = F.embedding(input, weight, padding_idx, sparse=sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if padding_idx is None:
        return rows.mean(1) if mode == "mean" else rows.sum(1)
    kept = (input != padding_idx % len(weight)).unsqueeze(-1)
    total = torch.where(kept, rows, 0.0).sum(1)
    return total / kept.sum(1).clamp(min=1) if mode == "mean" else total


def chunk(input, chunks, dim=0):
    """Equal parts of a size that depends on the batch: by their sizes, as how many a rounded size gives
    is nothing that holds for all batches to torch.export."""
    size = input.shape[dim]
    if not isinstance(size, torch.SymInt) or not statically_known_true(size % chunks == 0):
        return torch.chunk(input, chunks, dim)
    return torch.split(input, [size // chunks] * chunks, dim)


@contextlib.contextmanager
def averaged_norms(module: nn.Module):
    """Batch norms whose running statistics are the mean of all batches' (momentum=None): PyTorch reads
    their part of it out of the counter as a number, which no graph has."""
    norms = [
        each
        for each in module.modules()
        if isinstance(each, nn.modules.batchnorm._BatchNorm) and is_averaged(each)
    ]
    for norm in norms:
        norm.forward = lambda x, norm=norm: average_norm(norm, x)
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def is_averaged(norm: nn.modules.batchnorm._BatchNorm) -> bool:
    is_own = "forward" in vars(norm) or type(norm).forward is not nn.modules.batchnorm._BatchNorm.forward
    tracks = norm.num_batches_tracked is not None and norm.running_mean is not None
    return norm.training and norm.momentum is None and tracks and not is_own


def average_norm(norm, x):
    norm._check_input_dim(x)
    norm.num_batches_tracked.add_(1)
    part = 1.0 / norm.num_batches_tracked
    running = (norm.running_mean, norm.running_var)
    found = [each.clone() for each in running]  # which momentum 1 replaces
    y = F.batch_norm(x, *found, norm.weight, norm.bias, True, 1.0, norm.eps)
    for old, new in zip(running, found, strict=True):
        old.copy_(new * part + old * (1 - part))
    return y


OWN = {
    F.ctc_loss: ctc_loss,
    torch.ctc_loss: ctc_loss,
    F.embedding_bag: embedding_bag,
    torch.chunk: chunk,
    torch.Tensor.chunk: chunk,
}
