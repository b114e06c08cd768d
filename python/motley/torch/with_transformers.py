"""A Trainer whose ranks share each global batch, through its Accelerator.

What its model or compute_loss_func divides by num_items_in_batch, the items of all ranks, is divided alike on all; any other loss is read like a
script's. Batches are drawn an optimizer step at a time, ahead of the forward passes that train on them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import transformers
from transformers import Trainer

from motley.torch.loaders import Split
from motley.torch.with_accelerate import SharedShard, share_accelerator

class SharedTrainer(Trainer):
    """Takes the place of the Trainer that was given."""

    loader: SharedShard
    split: Split

    def get_train_dataloader(self):
        self.loader = self.accelerator.share_loader(super().get_train_dataloader(), self.split, is_taken_later=True)
        return self.loader

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.loader.batches.take(inputs)
        loss = super().training_step(model, inputs, num_items_in_batch)
        return loss * (self.accelerator.session.part * self.accelerator.num_processes)  # what is logged is the average over ranks

    def _maybe_log_save_evaluate(self, *arguments, **keywords):
        with self.accelerator.session.waiting():
            super()._maybe_log_save_evaluate(*arguments, **keywords)


def skip_first_batches(dataloader, num_batches=0):
    if isinstance(dataloader, SharedShard):
        return dataloader.without_first(num_batches)
    return _skip_first_batches(dataloader, num_batches)


_skip_first_batches = transformers.trainer.skip_first_batches


def check_trainer(trainer: Trainer) -> None:
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
    check_trainer(trainer)
    kind = type(trainer)
    share_accelerator(trainer.accelerator, split, "sum" if weight == "items" else weight)
    trainer.__class__ = type("Shared" + kind.__name__, (SharedTrainer, kind), {})
    trainer.split = split
    transformers.trainer.skip_first_batches = skip_first_batches  # the Trainer's own knows no loader but Accelerate's
    return trainer
