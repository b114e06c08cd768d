"""A Trainer of Lightning whose ranks share each global batch, through its strategy "ddp".

Lightning itself gives the training loader a DistributedSampler; with its length known, it draws a batch when it trains on it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable

import torch

from motley.torch.loaders import Split
from motley.torch.loaders import share as share_loader
from motley.torch.parallel import DDP
from motley.torch.session import session_of


def strategy_class(package: str) -> type:
    """Of lightning or pytorch_lightning: both may be installed."""
    DDPStrategy = importlib.import_module(f"{package}.strategies").DDPStrategy

    class SharedStrategy(DDPStrategy):
        """Takes the place of the strategy that the Trainer has."""

        split: Split
        weight: str | Callable | None
        training_loaders: int | None = None  # while they are set up: how many there are

        def _setup_model(self, model):
            session = session_of()
            given = self.split.given(session.world)
            if given is not None:
                session.fix(given)
            return DDP(model, weight=self.weight, device_ids=self.determine_ddp_device_ids(), **self._ddp_kwargs)

        def process_dataloader(self, dataloader):
            dataloader = super().process_dataloader(dataloader)
            if self.training_loaders is None:
                return dataloader
            self.training_loaders += 1
            if self.training_loaders > 1:
                raise ValueError("motley.torch.share: there are several training loaders; a step's samples are shared where there is one")
            return share_loader(dataloader, **dataclasses.asdict(self.split))

        # Who waits for others is not at work.

        def barrier(self, *arguments, **keywords):
            if torch.distributed.is_initialized():
                with session_of().waiting():
                    super().barrier(*arguments, **keywords)

        def all_gather(self, tensor, group=None, sync_grads=False):
            rows = session_of().exchange("a gather", [float(each) for each in tensor.shape])
            if any(row != rows[0] for row in rows):
                raise ValueError("motley.torch: all_gather stacks tensors, and the ranks' are of unequal lengths; use motley.torch.gather, which joins them")
            with session_of().waiting():
                return super().all_gather(tensor, group, sync_grads)

        def reduce(self, *arguments, **keywords):
            with session_of().waiting():
                return super().reduce(*arguments, **keywords)

    SharedStrategy.__name__ = DDPStrategy.__name__  # as Lightning's messages name it
    return SharedStrategy


def check_trainer(trainer, package: str) -> None:
    strategy = trainer.strategy
    if type(strategy) is not importlib.import_module(f"{package}.strategies").DDPStrategy:
        raise ValueError(
            f"motley.torch.share: the Trainer's strategy is {type(strategy).__name__}; wanted Trainer(strategy='ddp', devices=...): "
            "other ones split batches or models their own way"
        )
    if strategy._start_method not in ("popen", "fork"):
        raise ValueError(f"motley.torch.share: ranks are started by {strategy._start_method}, which makes a Trainer of their own; use strategy='ddp'")
    if strategy._model_averaging_period:
        raise ValueError("motley.torch.share: model averaging does not go with unequal batches; leave it out")
    if not trainer._accelerator_connector.use_distributed_sampler:
        raise ValueError("motley.torch.share: use_distributed_sampler=False hides which samples other ranks take; leave it out")


def share(trainer, split: Split, weight: str | Callable | None):
    package = next(kind.__module__ for kind in type(trainer).__mro__ if kind.__name__ == "Trainer").split(".trainer")[0]
    check_trainer(trainer, package)
    strategy = trainer.strategy
    strategy.__class__ = strategy_class(package)
    strategy.split, strategy.weight = split, weight
    loop = trainer.fit_loop.epoch_loop
    set_up, tell_signals = trainer.fit_loop.setup_data, getattr(loop, "_broadcast_sigterm_tensor", None)

    def setup_data():
        strategy.training_loaders = 0
        try:
            set_up()
        finally:
            strategy.training_loaders = None

    def wait_for_signals():
        with session_of().waiting():
            tell_signals()

    trainer.fit_loop.setup_data = setup_data
    if tell_signals is not None:  # since 2.6
        loop._broadcast_sigterm_tensor = wait_for_signals
    return trainer
