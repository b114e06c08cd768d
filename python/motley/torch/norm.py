"""Batch norm with the statistics of the global batch, on any device: what one device would compute.

With n samples of all ranks for each channel, n_i here, local mean m_i and variance v_i:
    mean = sum n_i m_i / n        var = sum n_i (v_i + m_i^2) / n - mean^2
in float64, so that the difference keeps its digits. The loss of all is sum w_i loss_i (w_i: this rank's part of what it
averages over), and xhat depends on all samples. So with g_i = sum dy and h_i = sum dy xhat of this rank
    dx = weight / std (dy - (G + xhat H) / (n w_i))        G = sum w_i g_i,  H = sum w_i h_i
is the gradient of this rank's loss that, weighed by w_i and summed over ranks, is that of one device.
"""

from __future__ import annotations

import contextlib
import inspect

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


def wide(x: torch.Tensor) -> torch.dtype:
    """What statistics of such values are kept in."""
    return torch.promote_types(x.dtype, torch.float32)


def sums_of(x: torch.Tensor) -> torch.Tensor:
    """[1 + 2 C] float64 of x [N, C, ...]: samples of a channel, and for each channel sum x and sum x^2.

    Squares are summed around the local mean, in float32 (of float64: in that): several times as quick as torch.var_mean over these dimensions.
    """
    rows = x.to(wide(x))
    rows = rows.flatten(2) if x.dim() > 2 else rows.unsqueeze(2)
    own = x.numel() // x.shape[1]
    mean = rows.sum(2).double().sum(0) / own
    centred = rows - mean.to(wide(x)).unsqueeze(1)
    shift = mean - mean.to(wide(x)).double()  # of the rounded mean
    squares = torch.linalg.vector_norm(centred, dim=2).double().square().sum(0) - own * shift**2
    return torch.cat([torch.tensor([own], dtype=torch.float64, device=x.device), mean * own, squares + own * mean**2])


class GlobalStatistics(torch.autograd.Function):
    """(x normalised, mean, biased variance, count) over all ranks."""

    @staticmethod
    def forward(context, x, weight, bias, eps, session):
        channels = x.shape[1]
        sums = sums_of(x)
        session.sum_now(sums)
        count = sums[0]
        mean = sums[1 : channels + 1] / count
        variance = (sums[channels + 1 :] / count - mean**2).clamp_(min=0)
        mean, variance = mean.to(wide(x)), variance.to(wide(x))
        weight, bias = (None if each is None else each.to(wide(x)) for each in (weight, bias))
        context.save_for_backward(x, weight, mean, variance, count)
        context.eps, context.session, context.micro = eps, session, session.latest
        out = torch.native_batch_norm(x, weight, bias, mean, variance, False, 0.0, eps)[0]
        context.mark_non_differentiable(mean, variance, count)
        return out, mean, variance, count

    @staticmethod
    def backward(context, gradient, *_):
        x, weight, mean, variance, count = context.saved_tensors
        own, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            gradient.contiguous(), x, weight, mean, variance, None, None, False, context.eps, [True, True, True]
        )
        part = context.micro.loss_part()
        sums = torch.cat([of_bias, of_weight]).double() * part
        context.session.sum_now(sums)
        of_bias_all, of_weight_all = (sums / (count * part)).to(wide(x)).chunk(2)
        if weight is not None:
            of_weight_all, of_bias_all = of_weight_all * weight, of_bias_all * weight
        # What all samples' statistics owe to this one is affine in xhat: a batch norm's kernel is the quickest for that.
        invstd = torch.rsqrt(variance + context.eps)
        owed = torch.native_batch_norm(x, of_weight_all * invstd, of_bias_all * invstd, mean, variance, False, 0.0, context.eps)[0]
        return own.sub_(owed), of_weight if weight is not None else None, of_bias if weight is not None else None, None, None


# Who compiles the model cannot compile an exchange.
normalise = torch.compiler.disable(GlobalStatistics.apply)


def batch_norm(session, x, running_mean, running_var, weight, bias, momentum, eps):
    """F.batch_norm in training."""
    out, mean, variance, count = normalise(x, weight, bias, eps, session)
    if running_mean is not None:
        unbiased = variance * (count / (count - 1)).to(variance.dtype)
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return out


class GlobalBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Takes the place of BatchNorm1d, 2d, 3d and SyncBatchNorm: the same parameters, buffers and names."""

    session = None

    def _check_input_dim(self, x):
        if x.dim() < 2:
            raise ValueError(f"batch norm: found {x.dim()} dimensions, wanted 2 or more")

    def forward(self, x):
        self._check_input_dim(x)
        # Without running statistics, too, evaluation is each rank's own; a model that was saved whole has no group.
        if not self.training or self.session is None:
            return super().forward(x)
        running, momentum = (None, None), self.momentum
        if self.track_running_stats and self.running_mean is not None:
            self.num_batches_tracked.add_(1)
            running = self.running_mean, self.running_var
            momentum = 1.0 / float(self.num_batches_tracked) if momentum is None else momentum
        return batch_norm(self.session, x, *running, self.weight, self.bias, momentum, self.eps)


class GlobalNorms(TorchFunctionMode):
    """Within it F.batch_norm takes the statistics of all ranks, whoever calls it."""

    def __init__(self, session):
        super().__init__()
        self.session, self.found = session, False

    def __torch_function__(self, function, _types, arguments=(), keywords=None):
        keywords = keywords or {}
        if function is F.batch_norm and (given := BATCH_NORM.bind(*arguments, **keywords).arguments).get("training"):
            self.found = True
            given = {name: given.get(name, each.default) for name, each in BATCH_NORM.parameters.items() if name != "training"}
            return batch_norm(self.session, given.pop("input"), **given)
        return function(*arguments, **keywords)


BATCH_NORM = inspect.signature(F.batch_norm)


def begin_norm(module: nn.Module, _inputs) -> None:
    """Before the forward pass of a batch norm with a forward pass of its own (timm's, with an activation in it)."""
    if module.training and module._motley_session is not None:
        module.__dict__["_motley_mode"] = GlobalNorms(module._motley_session)
        module._motley_mode.__enter__()


def end_norm(module: nn.Module, *_) -> None:
    if mode := module.__dict__.pop("_motley_mode", None):
        mode.__exit__(None, None, None)


def make_global(module: nn.Module, session) -> list[str]:
    """Gives every batch norm the statistics of all ranks, in place; the names of the buffers that surely are those of all ranks."""
    buffers = []
    for name, each in module.named_modules():
        if type(each) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm):
            each.__class__ = GlobalBatchNorm
            each.session = session
        if isinstance(each, GlobalBatchNorm):
            buffers += [f"{name}.{buffer}" if name else buffer for buffer, _ in each.named_buffers()]
        elif isinstance(each, nn.modules.batchnorm._BatchNorm) and not hasattr(each, "_motley_session"):
            each._motley_session = session
            each.register_forward_pre_hook(begin_norm)
            each.register_forward_hook(end_norm, always_call=True)
    return buffers


class OwnNorms:
    """Batch norms of a model that no module of PyTorch's computes: seen in its first pass in training, and from then on where there are any.

    Not looked for in compiled models: each function called costs some microseconds, and they would be compiled twice.
    """

    def __init__(self, module: nn.Module, session):
        is_compiled = any(hasattr(each, "_orig_mod") or each._compiled_call_impl is not None for each in module.modules())
        self._session, self._are_there = session, False if is_compiled else None  # None: not known

    @contextlib.contextmanager
    def made_global(self, trains: bool):
        if self._are_there is False or not trains:
            yield
            return
        with GlobalNorms(self._session) as mode:
            yield
        self._are_there = self._are_there or mode.found
