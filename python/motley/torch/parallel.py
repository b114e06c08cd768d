"""DistributedDataParallel for unequal batches: gradients weighed by what each rank's loss averages over."""

from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from motley.torch.norm import OwnNorms, make_global
from motley.torch.passes import Passes
from motley.torch.refusals import check_first_loss, check_group, check_options, explain_unused, tell_on_memory
from motley.torch.session import Session, session_of
from motley.torch.trial import Trial

MASKED = -100  # a label that PyTorch's losses leave out


def count_tokens(batch) -> int:
    """Labels of a batch that are not masked: its "labels", or its last tensor."""
    labels = batch["labels"] if isinstance(batch, Mapping) else batch[-1]
    return int((labels != MASKED).sum())


def count_samples(batch) -> int:
    """Of a model's arguments: the length of the first tensor."""
    values = list(batch.values()) if isinstance(batch, Mapping) else list(batch)
    return next(value.shape[0] for value in values if isinstance(value, torch.Tensor) and value.dim())


class DDP(DistributedDataParallel):
    """In place of torch.nn.parallel.DistributedDataParallel, whose options it takes.

    `weight`: what the loss is a mean over: "samples" (default); "tokens", labels of the batch other than -100; or a function of the
    batch that the shared loader gave (without one, of the model's arguments) that gives their number. Batch norm takes the statistics
    of the global batch. A step's gradients are those of the mean over the global batch, as one device computes them.
    ValueError: options that take gradients past this; the first loss is a sum.
    """

    def __init__(self, module, *, weight: str | Callable = "samples", **options):
        check_group()
        check_options(options)
        if weight not in ("samples", "tokens") and not callable(weight):
            raise ValueError(f"motley.torch.DDP: weight={weight!r}; wanted 'samples', 'tokens' or a function of the batch")
        session = session_of(options.get("process_group"))
        if trial := Trial.asked():
            trial.begin(module, session)
        self._skip_statistics(module, session)
        super().__init__(module, **options)
        self._passes = session.add_model(module)
        self._norms = OwnNorms(module, session)
        self._session, self._weight, self._is_checked = session, weight, callable(weight)
        self._sums = Sums(session, self._passes)
        super().register_comm_hook(self._sums, Sums.reduce)
        tell_on_memory(session)

    @staticmethod
    def _skip_statistics(module, session: Session) -> None:
        """Statistics are equal on all ranks from the first step on: they need not be sent before each one."""
        names = make_global(module, session)
        buffers = dict(module.named_buffers())
        for name in names:
            dist.broadcast(buffers[name], src=0 if session.group is None else dist.get_global_rank(session.group, 0), group=session.group)
        if names:
            ignored = list(getattr(module, "_ddp_params_and_buffers_to_ignore", []))
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ignored + names)

    def register_comm_hook(self, state, hook):
        raise ValueError("motley.torch.DDP: the communication hook weighs gradients; another one does not go with unequal batches")

    def join(self, *_, **__):
        raise ValueError("motley.torch.DDP: join() is for ranks with other numbers of steps; the ranks of a shared loader have the same")

    @torch.compiler.disable(recursive=False)  # who compiles this one compiles the module in it
    def forward(self, *inputs, **keywords):
        session, trains = self._session, self.module.training
        if not torch.is_grad_enabled():
            if not trains:
                session.forget()  # what evaluation takes is no training
            return super().forward(*inputs, **keywords)
        session.begin(self._passes, self._count(inputs, keywords), self.require_backward_grad_sync, trains)
        self._sums.is_static = self.static_graph
        self._sums.under_way = []  # of a backward pass that failed
        if not self._is_checked:
            self._is_checked = True
            check_first_loss()
        try:
            with self._norms.made_global(trains):
                return super().forward(*inputs, **keywords)
        except RuntimeError as error:
            if "Expected to have finished reduction" not in str(error):
                raise
            raise ValueError(explain_unused(self.module, str(error))) from None

    def _count(self, inputs, keywords) -> float | None:
        """None: the samples that the shared loader gave."""
        session = self._session
        batch = session.batch if session.batch is not None else keywords or inputs
        if callable(self._weight):
            count = self._weight(batch)
            return None if count is None else float(count)
        if self._weight == "tokens":
            return float(count_tokens(batch))
        return float(count_samples(keywords or inputs)) if session.samples is None else None

    def _sync_buffers(self):
        with self._session.waiting():
            super()._sync_buffers()


class Sums:
    """The exchange of one backward pass: each bucket is summed over the ranks as soon as it is full, weighed.

    The sums are taken in the thread of the backward pass, just before DDP waits for them: a callback of theirs would be Python in a thread of
    the process group's, which may outlive the interpreter.
    """

    def __init__(self, session: Session, passes: Passes):
        self.session, self.passes = session, passes
        self.is_static = False  # then DDP exchanges all at the end of its first backward pass, and waits at once
        self.under_way: list[tuple] = []

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer, factor = bucket.buffer(), self.passes.factor()
        if factor == 0:
            buffer.zero_()  # a mean over nothing is no number
        else:
            buffer.mul_(factor)
        done = torch.futures.Future(devices=[] if buffer.device.type == "cpu" else [buffer.device])
        self.under_way.append((dist.all_reduce(buffer, group=self.session.group, async_op=True), buffer, done))
        if bucket.is_last():
            self.session.end_compute(self.passes)
        if not self.is_static:
            if len(self.under_way) == 1:
                torch.autograd.Variable._execution_engine.queue_callback(self.finish)
        elif bucket.is_last():
            self.finish()
        else:
            self.take()
        return done

    def take(self) -> None:
        for work, buffer, done in self.under_way:
            work.wait()
            done.set_result(buffer)
        self.under_way = []

    def finish(self) -> None:
        self.session.post()
        self.take()
        self.session.end_step()


def weigh(loss: torch.Tensor, weight: float | None = None) -> torch.Tensor:
    """A local mean weighed by what it averages over, so that unequal micro-batches may be accumulated:

    for loss in losses_of_micro_batches:          # within model.no_sync() but for the last
        motley.torch.weigh(loss).backward()       # in place of (loss / len(losses)).backward()

    `weight`: what it averages over, where DDP's own `weight` does not say. The step's gradient is that of the mean over all. Without a
    model in DDP (fully_shard averages over ranks by itself) the loss is weighed so that the average over ranks is that mean.
    """
    check_group()
    session = session_of()
    if session.is_in_step:
        return session.weigh(loss, weight)
    count = float(session.samples[session.rank]) if weight is None and session.samples is not None else weight
    if count is None:
        raise ValueError("motley.torch.weigh: share a loader, or say what the loss averages over: weigh(loss, weight=...)")
    total = torch.tensor([float(count)], dtype=torch.float64)
    session.sum_now(total)
    return loss * (float(count) * session.world / total.item())
