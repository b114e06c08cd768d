"""A first step that `motley verify -- COMMAND` asks for: from equal weights, without dropout, under a split; then the process ends."""

from __future__ import annotations

import json
import os
import sys

import torch
from torch.nn.modules.dropout import _DropoutNd
from torch.optim.optimizer import register_optimizer_step_pre_hook

VARIABLE = "MOTLEY_TORCH_TRIAL"  # {"folder", "split": "even", "uneven" or "turned"}

_models: list[torch.nn.Module] = []  # in DDP, in the order in which the script makes them


class Trial:
    def __init__(self, folder: str, split: str):
        self.folder, self.split = folder, split
        self.gradients = os.path.join(folder, f"{split}.pt")

    @staticmethod
    def asked() -> Trial | None:
        told = os.environ.get(VARIABLE)
        return Trial(**json.loads(told)) if told else None

    def shares(self, world: int) -> list[int]:
        """The uneven split gives the first ranks more: W, W - 1, ..., 1."""
        return list(range(world, 0, -1)) if self.split == "uneven" else [1] * world

    def order(self, batch: list[int]) -> list[int]:
        """Of all ranks' samples of a step; turned: ranks sum up others."""
        return batch[::2] + batch[1::2] if self.split == "turned" else batch

    def begin(self, module: torch.nn.Module, session) -> None:
        """Rank 0's weights of the first trial are those of the second; the first optimizer step ends the process."""
        for each in module.modules():
            if isinstance(each, _DropoutNd):
                each.p = 0.0
        weights = os.path.join(self.folder, f"weights-{len(_models)}.pt")
        _models.append(module)
        if session.rank == 0:
            if os.path.exists(weights):
                module.load_state_dict(torch.load(weights, weights_only=True))
            else:
                torch.save(dict(module.state_dict()), weights)
        if len(_models) > 1:
            return

        def end(_optimizer, arguments, keywords):
            closure = arguments[1] if len(arguments) > 1 else keywords.get("closure")  # behind the optimizer
            if closure is not None:  # which makes the gradients (Lightning, L-BFGS)
                with torch.enable_grad():
                    closure()
            if session.rank == 0:
                of_all = ((f"{i}: " if len(_models) > 1 else "", model) for i, model in enumerate(_models))
                named = ((f"{of}{name}", each.grad) for of, model in of_all for name, each in model.named_parameters())
                found = {name: gradient for name, gradient in named if gradient is not None}
                torch.save({"gradients": found, "samples": session.samples}, self.gradients)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # without taking down groups whose exchanges may be under way

        register_optimizer_step_pre_hook(end)
