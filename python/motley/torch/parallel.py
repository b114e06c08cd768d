"""DistributedDataParallel for unequal batches: its own exchange, of gradients that are weighed where they begin (backward.py)."""

import contextlib
from collections.abc import Callable

import torch
from torch.nn.parallel import DistributedDataParallel

from motley.torch.backward import Mark, watch
from motley.torch.norm import Norms
from motley.torch.refusals import explain_unused, refuse
from motley.torch.session import session_of
from motley.torch.trial import Trial


class DDP(DistributedDataParallel):
    """In place of torch.nn.parallel.DistributedDataParallel, whose options it takes.

    A step's gradients are those of the mean over the global batch, as one device computes them. What a loss averages over is read from its
    graph. Where that does not say (a loss in a compiled function), `weight` does: "samples", along the first tensor of the model's arguments;
    "sum", nothing is weighed; or a function of the batch that the shared loader gave (without one, of the model's arguments) that gives the
    number. "tokens" is what the graph says. Batch norm takes the statistics of the global batch.
    ValueError, in a backward pass: a loss that nobody can read.
    """

    def __init__(self, module, *, weight: str | Callable | None = None, **options):
        is_known = weight in (None, "samples", "tokens", "sum") or callable(weight)
        refuse(not is_known, f"weight={weight!r}; wanted 'samples', 'tokens', 'sum' or a function of the batch", "DDP")
        session = session_of(options.get("process_group"))
        self._is_plain = False
        if trial := Trial.asked():
            trial.begin(module, session)
            self._is_plain = trial.is_plain
        if self._is_plain:
            super().__init__(module, **options)
            return
        self._norms = Norms(module, session)
        super().__init__(module, **options)
        # Statistics are equal on all ranks from here on: they need not be sent before each step.
        self.parameters_to_ignore |= set(self._norms.buffers)
        self._assign_modules_buffers()
        session.add_model(module, self._norms)
        session.batches.keeps |= callable(weight)
        self._session, self._weight = session, None if weight == "tokens" else weight

    def join(self, *_, **__):
        raise ValueError("motley.torch.DDP: join() is for ranks with other numbers of steps; the ranks of a shared loader have the same")

    @torch.compiler.disable(recursive=False)  # who compiles this one compiles the module in it
    def forward(self, *inputs, **keywords):
        if self._is_plain:
            return super().forward(*inputs, **keywords)
        session, trains = self._session, self.module.training
        if not torch.is_grad_enabled():
            if not trains:
                session.forget()  # what evaluation takes is no training
            with self._norms.made_global(trains):
                return super().forward(*inputs, **keywords)
        session.begin_forward(self, self._weight, keywords or inputs, self.require_backward_grad_sync)
        try:
            with self._norms.made_global(trains):
                outputs = super().forward(*inputs, **keywords)
        except RuntimeError as error:
            if "Expected to have finished reduction" not in str(error):
                raise
            raise ValueError(explain_unused(self.module, str(error))) from None
        session.end_forward(outputs)
        return outputs

    def _sync_buffers(self):
        with contextlib.nullcontext() if self._is_plain else self._session.waiting():
            super()._sync_buffers()


def weigh(loss: torch.Tensor, weight: float | None = None) -> torch.Tensor:
    """The loss of a micro-batch, whose gradients count with those that were accumulated before as much as it averages over:

    for loss in losses_of_micro_batches:
        motley.torch.weigh(loss).backward()       # in place of (loss / len(losses)).backward()

    At every moment the gradients are those of the mean over all that was accumulated since they were zero. `weight`: what it averages over,
    where its graph does not say. Without a model in DDP (fully_shard averages over ranks by itself) micro-batches count alike.
    """
    watch(session_of())
    return Mark.apply(loss, -1.0 if weight is None else float(weight))
