"""A Trainer of Lightning whose ranks share each global batch, through its strategy "ddp".

Lightning itself gives the training loader a DistributedSampler; with its length known, it draws a batch when it trains on it.
"""

from __future__ import annotations

from collections.abc import Callable

from motley.torch.frameworks import wait_in
from motley.torch.loaders import Split
from motley.torch.loaders import share as share_loader
from motley.torch.parallel import DDP
from motley.torch.refusals import refuse


def check_trainer(trainer) -> None:
    strategy = trainer.strategy
    kind, wanted = type(strategy).__name__, "Trainer(strategy='ddp', devices=...)"
    refuse(kind != "DDPStrategy", f"the Trainer's strategy is {kind}; wanted {wanted}: other ones split batches or models their own way")
    start = strategy._start_method
    refuse(start not in ("popen", "fork"), f"ranks are started by {start}, which makes a Trainer of their own; use strategy='ddp'")
    refuse(strategy._model_averaging_period, "model averaging does not go with unequal batches; leave it out")
    is_sampled = trainer._accelerator_connector.use_distributed_sampler
    refuse(not is_sampled, "use_distributed_sampler=False hides which samples other ranks take; leave it out")


def share(trainer, split: Split, weight: str | Callable | None):
    check_trainer(trainer)
    strategy, fit_loop = trainer.strategy, trainer.fit_loop
    process, set_up = strategy.process_dataloader, fit_loop.setup_data

    def setup_model(model):
        return DDP(model, weight=weight, device_ids=strategy.determine_ddp_device_ids(), **strategy._ddp_kwargs)

    def process_dataloader(dataloader):
        dataloader = process(dataloader)
        return share_loader(dataloader, **vars(split)) if trainer.training else dataloader

    def setup_data():
        set_up()
        several = fit_loop._combined_loader is not None and len(fit_loop._combined_loader.flattened) > 1
        refuse(several, "there are several training loaders; a step's samples are shared where there is one")

    strategy._setup_model, strategy.process_dataloader, fit_loop.setup_data = setup_model, process_dataloader, setup_data
    wait_in(strategy, "barrier", "reduce", "all_gather")
    wait_in(fit_loop.epoch_loop, "_broadcast_sigterm_tensor")
    return trainer
