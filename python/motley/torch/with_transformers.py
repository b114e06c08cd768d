"""A Trainer whose ranks share each global batch, through its Accelerator.

It weighs by itself what its model or compute_loss_func divides by num_items_in_batch, the items of all ranks: the average over ranks is
then the whole. Any other loss is a mean over this rank's items, and weighs as many of them as it has. Batches are drawn an optimizer
step at a time, ahead of the forward passes that train on them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
import transformers
from transformers import Trainer
from transformers.loss.loss_utils import LOSS_MAPPING, ForCausalLMLoss

from motley.torch.loaders import Split
from motley.torch.parallel import MASKED
from motley.torch.with_accelerate import SharedShard, share_accelerator

OWN_LOSS = (
    "motley.torch.share: the Trainer has a compute_loss of its own. Say what its loss is a mean over: weight='samples', 'tokens' or a function "
    "of the batch; 'items' if it is a sum divided by num_items_in_batch, times the number of ranks, as the Trainer's own"
)


class SharedTrainer(Trainer):
    """Takes the place of the Trainer that was given."""

    loader: SharedShard
    split: Split
    weight: str | Callable | None

    def get_train_dataloader(self):
        self.loader = self.accelerator.share_loader(super().get_train_dataloader(), self.split, is_taken_later=True)
        return self.loader

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.loader.batches.take(inputs)
        self.accelerator.is_weighed = self.weighs(num_items_in_batch)
        loss = super().training_step(model, inputs, num_items_in_batch)
        return loss * (self.accelerator.factor * self.accelerator.num_processes)  # what is logged is the average over ranks

    def weighs(self, num_items_in_batch) -> bool:
        """Is the loss the Trainer's own over the items of all ranks?"""
        if self.weight is not None:
            return self.weight == "items"
        return num_items_in_batch is not None and bool(self.model_accepts_loss_kwargs or self.compute_loss_func)

    def count(self, batch) -> float | None:
        """What a local mean is over. None: nobody asks, or the batch's samples."""
        if callable(self.weight):
            return self.weight(batch)
        if self.weight in ("samples", "items") or self.weight is None and (self.model_accepts_loss_kwargs or self.compute_loss_func):
            return None
        labels = batch.get("labels")
        if not isinstance(labels, torch.Tensor):
            if self.weight == "tokens":
                raise ValueError(f"motley.torch.share: weight='tokens' counts the batch's labels; found {sorted(batch)}")
            return None
        return float(((labels[..., 1:] if shifts_labels(self) else labels) != MASKED).sum())

    def _maybe_log_save_evaluate(self, *arguments, **keywords):
        with self.accelerator.session.waiting():
            super()._maybe_log_save_evaluate(*arguments, **keywords)


def shifts_labels(trainer: Trainer) -> bool:
    """Is the first label of a text no target? Trainers say so since 5.1."""
    if hasattr(trainer, "_loss_shifts_labels"):
        return trainer._loss_shifts_labels
    model = trainer.model
    is_pair = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    return LOSS_MAPPING.get(getattr(model, "loss_type", None)) is ForCausalLMLoss and not is_pair


def skip_first_batches(dataloader, num_batches=0):
    if isinstance(dataloader, SharedShard):
        return dataloader.without_first(num_batches)
    return _skip_first_batches(dataloader, num_batches)


_skip_first_batches = transformers.trainer.skip_first_batches


def check_trainer(trainer: Trainer, weight) -> None:
    if weight not in (None, "samples", "tokens", "items") and not callable(weight):
        raise ValueError(f"motley.torch.share: weight={weight!r}; wanted 'samples', 'tokens', 'items' or a function of the batch")
    if weight is None and type(trainer).compute_loss is not Trainer.compute_loss:
        raise ValueError(OWN_LOSS)
    arguments = trainer.args
    if not arguments.average_tokens_across_devices:
        raise ValueError("motley.torch.share: average_tokens_across_devices=False makes each rank's mean count alike; leave it at True")
    smoother = trainer.label_smoother
    if smoother is not None and "num_items_in_batch" not in inspect.signature(type(smoother).__call__).parameters:
        raise ValueError(
            f"motley.torch.share: the label smoothing of transformers {transformers.__version__} averages each rank's tokens alike, and counts them once a "
            "rank; leave label_smoothing_factor out, or use a newer release"
        )
    if arguments.auto_find_batch_size:
        raise ValueError("motley.torch.share: auto_find_batch_size tries again on the rank without memory alone; give share(trainer, most=...) there")
    if trainer.is_in_train or trainer.model_wrapped is not trainer.model:
        raise ValueError("motley.torch.share: the Trainer has trained already; share it before train()")


def share(trainer: Trainer, split: Split, weight: str | Callable | None) -> SharedTrainer:
    check_trainer(trainer, weight)
    kind = type(trainer)
    share_accelerator(trainer.accelerator, split, None)
    trainer.__class__ = type("Shared" + kind.__name__, (SharedTrainer, kind), {})
    trainer.split, trainer.weight = split, weight
    trainer.accelerator.weight = trainer.count
    transformers.trainer.skip_first_batches = skip_first_batches  # the Trainer's own knows no loader but Accelerate's
    return trainer
