"""Batch norm with the statistics of the global batch, on any device: what one device would compute.

With n samples of all ranks for each channel, n_i here, local mean m_i and variance v_i:
    mean = sum n_i m_i / n        var = sum n_i (v_i + m_i^2) / n - mean^2
in float64, so that the difference keeps its digits. Each xhat depends on all samples; gradients dy are weighed already (losses.py). So with
G and H the sums over all ranks of dy and of dy xhat
    dx = weight / std (dy - (G + xhat H) / n)
A module's class, and what it does outside of a model in DDP, stay PyTorch's: within its forward and backward pass F.batch_norm is ours.
"""

from __future__ import annotations

import contextlib
import functools

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


class SumOverRanks(torch.autograd.Function):
    """Of a tensor. What one rank's sum owes to each rank's tensor is in the gradients of all ranks."""

    @staticmethod
    def forward(context, x, session, what):
        context.session, context.what = session, what
        return session.sum_now(x.clone(memory_format=torch.contiguous_format), what)

    @staticmethod
    def backward(context, gradient):
        return SumOverRanks.apply(gradient, context.session, context.what + ", derived"), None, None


def derivable(x, weight, bias, eps, session, what):
    """The same as GlobalStatistics, by operations that may be derived any number of times."""
    channels, dims = x.shape[1], [0, *range(2, x.dim())]
    rows = x.double()
    own = torch.tensor([x.numel() // channels], dtype=torch.float64, device=x.device)
    sums = SumOverRanks.apply(torch.cat([own, rows.sum(dims), rows.square().sum(dims)]), session, what)
    shape = [1, channels] + [1] * (x.dim() - 2)
    mean, square = (sums[1:] / sums[0]).chunk(2)
    out = (rows - mean.view(shape)) * torch.rsqrt(square - mean**2 + eps).view(shape)
    out = out if weight is None else out * weight.view(shape)
    out = out if bias is None else out + bias.view(shape)
    return out.to(x.dtype)


class GlobalStatistics(torch.autograd.Function):
    """(x normalised, mean, biased variance, count) over all ranks."""

    @staticmethod
    def forward(context, x, weight, bias, eps, session, what):
        channels = x.shape[1]
        sums = session.sum_now(sums_of(x), what)
        count = sums[0]
        mean = sums[1 : channels + 1] / count
        variance = (sums[channels + 1 :] / count - mean**2).clamp_(min=0)
        mean, variance = mean.to(wide(x)), variance.to(wide(x))
        context.save_for_backward(x, weight, bias, mean, variance, count)
        context.eps, context.session, context.what = eps, session, what + ", derived"
        weight, bias = (None if each is None else each.to(wide(x)) for each in (weight, bias))
        out = torch.native_batch_norm(x, weight, bias, mean, variance, False, 0.0, eps)[0]
        context.mark_non_differentiable(mean, variance, count)
        return out, mean, variance, count

    @staticmethod
    def backward(context, gradient, *_):
        x, weight, bias, mean, variance, count = context.saved_tensors
        if torch.is_grad_enabled():  # the result is to be derived once more
            inputs = [each for each in (x, weight, bias) if each is not None and each.requires_grad]
            out = derivable(x, weight, bias, context.eps, context.session, context.what)
            found = iter(torch.autograd.grad(out, inputs, gradient, create_graph=True))
            return *(next(found) if each is not None and each.requires_grad else None for each in (x, weight, bias)), None, None, None
        factor = None if weight is None else weight.to(wide(x))
        own, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            gradient.contiguous(), x, factor, mean, variance, None, None, False, context.eps, [True, True, True]
        )
        sums = context.session.sum_now(torch.cat([of_bias, of_weight]).double(), context.what)
        of_bias_all, of_weight_all = (sums / count).to(wide(x)).chunk(2)
        if weight is not None:
            of_weight_all, of_bias_all = of_weight_all * factor, of_bias_all * factor
        # What all samples' statistics owe to this one is affine in xhat: a batch norm's kernel is the fastest for that.
        invstd = torch.rsqrt(variance + context.eps)
        owed = torch.native_batch_norm(x, of_weight_all * invstd, of_bias_all * invstd, mean, variance, False, 0.0, context.eps)[0]
        of_parameters = (None if each is None else of.to(each.dtype) for each, of in ((weight, of_weight), (bias, of_bias)))
        return own.sub_(owed), *of_parameters, None, None, None


class GlobalNorms(TorchFunctionMode):
    """Within it F.batch_norm takes the statistics of all ranks, whoever calls it."""

    def __init__(self, session, what: str):
        super().__init__()
        self.session, self.what, self.found = session, what, False

    def __torch_function__(self, function, _types, arguments=(), keywords=None):
        return (self.batch_norm if function is F.batch_norm else function)(*arguments, **(keywords or {}))

    def batch_norm(self, input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
        """F.batch_norm, whose parameters these are."""
        if not training:
            return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
        self.found = True
        out, mean, variance, count = normalise(input, weight, bias, eps, self.session, self.what)
        if running_mean is not None:
            unbiased = variance * (count / (count - 1)).to(variance.dtype)
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
        return out


# Who compiles the model cannot compile an exchange.
normalise = torch.compiler.disable(GlobalStatistics.apply)


@torch.compiler.disable
def forward_over_ranks(module: nn.Module, session, what: str, *arguments, **keywords):
    """In place of the forward pass of a batch norm in training."""
    own = type(module).forward
    with GlobalNorms(session, what):
        return (nn.modules.batchnorm._BatchNorm.forward if own is nn.SyncBatchNorm.forward else own)(module, *arguments, **keywords)


class Norms:
    """Batch norms of a model. `buffers`: names of those that surely are of all ranks' statistics.

    Others, that no module of PyTorch's computes, are seen in the first pass in training, and from then on where there are any. Not looked for in
    compiled models: each function called costs some microseconds, and they would be compiled twice.
    """

    def __init__(self, module: nn.Module, session):
        found = {name: each for name, each in module.named_modules() if isinstance(each, nn.modules.batchnorm._BatchNorm) and "forward" not in each.__dict__}
        self.buffers = [f"{name}.{buffer}" if name else buffer for name, each in found.items() for buffer, _ in each.named_buffers()]
        is_compiled = any(hasattr(each, "_orig_mod") or each._compiled_call_impl is not None for each in module.modules())
        self._session, self._others = session, False if is_compiled else None  # None: not known
        self._depth = 0
        self._forwards = [(each, functools.partial(forward_over_ranks, each, session, f"batch norm {name}")) for name, each in found.items()]

    @contextlib.contextmanager
    def within(self):
        """In a forward or backward pass, which may compute the forward pass again (checkpoints)."""
        self._depth += 1
        for module, forward in self._forwards:
            # In evaluation a module without running statistics, too, has its rank's own; so has one that was saved whole, and opened elsewhere.
            if module.training and self._session is not None:
                module.__dict__["forward"] = forward
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                for module, _ in self._forwards:
                    module.__dict__.pop("forward", None)

    @contextlib.contextmanager
    def made_global(self, trains: bool):
        """In a forward pass."""
        with self.within():
            if self._others is False or not trains:
                yield
                return
            with GlobalNorms(self._session, "a batch norm of the script's own") as mode:
                yield
            self._others = self._others or mode.found
