"""The CTC loss as an operator of our own: sizes inside PyTorch's depend on the lengths.

    motley::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank) -> losses, gradients

`log_probs` [time, samples, classes]; `targets` [samples, length], of each as many as its length
says; a loss a sample, infinite where no alignment is possible, and its gradient by the log_probs,
zero there (docs/formats/graph.md).
"""

from __future__ import annotations

import torch

from motley.errors import refuse

_library = torch.library.Library("motley", "FRAGMENT")
_library.define(
    "ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank)"
    " -> (Tensor, Tensor)"
)


@torch.library.register_fake("motley::ctc_loss", lib=_library)
def _fake(log_probs, targets, input_lengths, target_lengths, blank):
    return log_probs.new_empty(log_probs.shape[1]), torch.empty_like(log_probs)


@torch.library.impl("motley::ctc_loss", "CPU", lib=_library)
def _run(log_probs, targets, input_lengths, target_lengths, blank):
    lengths = input_lengths.tolist(), target_lengths.tolist()
    losses, alpha = torch._ctc_loss(log_probs, targets, *lengths, blank)
    gradients = torch.ops.aten._ctc_loss_backward(
        torch.ones_like(losses), log_probs, targets, *lengths, losses, alpha, blank, True
    )
    return losses, gradients


def _keep(ctx, inputs, output):
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])


def _backward(ctx, grad, _):
    return grad[None, :, None] * ctx.saved_tensors[0], None, None, None, None


torch.library.register_autograd("motley::ctc_loss", _backward, setup_context=_keep, lib=_library)


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """F.ctc_loss, or torch.ctc_loss, which numbers the reductions."""
    if targets.dim() != 2:
        found, wanted = "targets one behind the other", "rows of them, padded: [samples, length]"
        refuse("the CTC loss cannot be split by samples", "F.ctc_loss", found, wanted, "pad_sequence")
    lengths = [torch.as_tensor(each, dtype=torch.int64) for each in (input_lengths, target_lengths)]
    losses, _ = torch.ops.motley.ctc_loss(log_probs, targets, *lengths, blank)
    if zero_infinity:
        losses = torch.where(losses == torch.inf, 0.0, losses)
    if reduction in ("mean", 1):
        return (losses / lengths[1].clamp(min=1).to(losses.dtype)).mean()
    return losses.sum() if reduction in ("sum", 2) else losses
