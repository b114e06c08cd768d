"""What all ranks have of a tensor, which now may be of unequal lengths: features of a contrastive loss, outputs of a metric."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from motley.torch.norm import SumOverRanks
from motley.torch.refusals import refuse
from motley.torch.session import SESSIONS, Session, session_of
from motley.torch.trial import Trial

ALL_GATHER, INTO_TENSOR = dist.all_gather, dist.all_gather_into_tensor


def gather_of(session: Session, tensor: torch.Tensor) -> torch.Tensor:
    shape = tuple(tensor.shape)
    if not shape:
        tensor, shape = tensor.unsqueeze(0), (1,)
    trial = Trial.asked()
    if session.world == 1 or trial and trial.is_whole:
        return tensor
    rows = session.said_by_all(shape) if session.is_alone else session.exchange("a gather", [float(each) for each in shape])
    found = ", ".join("x".join(f"{each:.0f}" for each in row) for row in rows)
    differ = any(row[1:] != rows[0][1:] for row in rows)
    refuse(differ, f"the ranks have {found} numbers; they may differ in the first dimension alone", "gather")
    before, after = (sum(int(row[0]) for row in part) for part in (rows[: session.rank], rows[session.rank + 1 :]))
    own = torch.cat([tensor.new_zeros(before, *shape[1:]), tensor, tensor.new_zeros(after, *shape[1:])])
    return SumOverRanks.apply(own, session, "what is gathered")


def explain_gathers() -> None:
    """Gathers of equal buffers say why they fail, where gloo ends the process and NCCL says nothing."""
    dist.all_gather, dist.all_gather_into_tensor = explained(ALL_GATHER), explained(INTO_TENSOR)


def explained(gather: Callable) -> Callable:
    def wrapped(into, tensor, group=None, async_op=False):
        session = SESSIONS.get(None if group is dist.group.WORLD else group)
        if session is not None and session.most and session.world > 1 and not session.is_alone:
            lengths = [int(row[0]) for row in session.exchange("a gather of equal buffers", [float(tensor.numel())])]
            if len(set(lengths)) > 1:
                raise ValueError(
                    f"motley.torch: {gather.__name__} wants as many numbers of each rank, and they have {' : '.join(map(str, lengths))}, as their shares "
                    "are unequal. Write motley.torch.gather(tensor), which joins them, with gradients"
                )
        return gather(into, tensor, group=group, async_op=async_op)

    return wrapped


def gather(tensor: torch.Tensor, group=None) -> torch.Tensor:
    """The ranks' tensors one behind the other, in the order of ranks: [n1 + n2 + ..., ...] of [n_i, ...]. Called by all ranks.

    Gradients come back to each rank's part from the losses of all ranks. A loss over one's own samples against all, and one over all of them
    on each rank, are weighed like any other: nothing is to be multiplied.
    """
    return gather_of(session_of(group), tensor)
