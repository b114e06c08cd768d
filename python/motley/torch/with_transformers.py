"""A Trainer whose ranks share each global batch, through its Accelerator.

What its model or compute_loss_func divides by num_items_in_batch, the items of all ranks, is divided alike on all; any other loss is read like a
script's. Batches are drawn an optimizer step at a time, ahead of the forward passes that train on them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import transformers
from transformers import Trainer

from motley.torch.frameworks import mixed, wait_in
from motley.torch.loaders import Split
from motley.torch.refusals import refuse
from motley.torch.with_accelerate import share_accelerator, skip_first_batches


class SharedTrainer(Trainer):
    """Takes the place of the Trainer that was given."""

    def get_train_dataloader(self):
        return self.accelerator.share_loader(super().get_train_dataloader(), self.accelerator.split)

    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = super().training_step(model, inputs, num_items_in_batch)
        return loss * (self.accelerator.session.part * self.accelerator.num_processes)  # what is logged is the average over ranks


def check_trainer(trainer: Trainer) -> None:
    arguments, smoother = trainer.args, type(trainer.label_smoother)
    refuse(not arguments.average_tokens_across_devices, "average_tokens_across_devices=False makes each rank's mean count alike; leave it at True")
    refuse(
        trainer.label_smoother is not None and "num_items_in_batch" not in inspect.signature(smoother.__call__).parameters,
        f"the label smoothing of transformers {transformers.__version__} averages each rank's tokens alike, and counts them once a rank; leave "
        "label_smoothing_factor out, or use a newer release",
    )
    refuse(arguments.auto_find_batch_size, "auto_find_batch_size tries again on the rank without memory alone; give share(trainer, most=...) there")
    has_trained = trainer.is_in_train or trainer.model_wrapped is not trainer.model
    refuse(has_trained, "the Trainer has trained already; share it before train()")


def share(trainer: Trainer, split: Split, weight: str | Callable | None) -> SharedTrainer:
    check_trainer(trainer)
    share_accelerator(trainer.accelerator, split, "sum" if weight == "items" else weight)
    trainer.__class__ = mixed(type(trainer), SharedTrainer)
    wait_in(trainer, "_maybe_log_save_evaluate")
    transformers.trainer.skip_first_batches = skip_first_batches  # the Trainer's own knows no loader but Accelerate's
    return trainer
