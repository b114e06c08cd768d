"""Steps of a script that `motley verify -- COMMAND` asks for, each from weights that are given, without dropout; then the process ends.

What is right is known from a run without motley.torch's exchange: under PyTorch's own DistributedDataParallel, every rank with the whole global
batch, so that each is one device ("whole"; "turned": the samples in another order), or with an even part ("ddp").
"""

from __future__ import annotations

import json
import os
import sys

import torch
from torch.nn.modules.dropout import _DropoutNd
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

VARIABLE = "MOTLEY_TORCH_TRIAL"  # {"folder", "kind": of those of verify.py}
EPOCH = 6  # batches of a shortened epoch: its first ones and its last, which may be short
STEPS = 4, 12  # of optimizers: the fewest, and the most where no epoch ended before


def make_alike(models: list[torch.nn.Module], path: str, rank: int) -> None:
    """They have the state that the first trial had here, so that each step's gradients are of the same weights."""
    if os.path.exists(path):
        for model, each in zip(models, torch.load(path, weights_only=True), strict=True):
            model.load_state_dict(each)
    elif rank == 0:
        torch.save([dict(model.state_dict()) for model in models], path + ".new")
        os.replace(path + ".new", path)  # at once, as other ranks look for it


class Trial:
    models: list[torch.nn.Module] = []  # in DDP, in the order in which the script makes them
    has_drawn, has_epoch = False, False  # an epoch's batches; those of a further one

    def __init__(self, folder: str, kind: str):
        self.folder, self.kind = folder, kind
        self.is_whole, self.is_plain = kind in ("whole", "turned"), kind in ("whole", "turned", "ddp")

    @staticmethod
    def asked() -> Trial | None:
        told = os.environ.get(VARIABLE)
        return Trial(**json.loads(told)) if told else None

    def file(self, step: int) -> str:
        return os.path.join(self.folder, f"{self.kind}-{step}.pt")

    def shares(self, world: int) -> list[int]:
        """The uneven split gives the first ranks more: W, W - 1, ..., 1."""
        return list(range(world, 0, -1)) if self.kind == "uneven" else [1] * world

    def part(self, batch: list[int], samples: list[int], rank: int) -> list[int]:
        """Of a step's samples those of a rank."""
        if self.kind == "turned":
            return batch[::-1]
        begin = sum(samples[:rank])
        return batch if self.is_whole else batch[begin : begin + samples[rank]]

    @staticmethod
    def shorten(batches: list) -> list:
        Trial.has_epoch = Trial.has_drawn
        Trial.has_drawn = True
        return batches if len(batches) <= EPOCH else [*batches[: EPOCH - 1], batches[-1]]

    def begin(self, module: torch.nn.Module, session) -> None:
        """Of a model: from the weights that the first trial had."""
        for each in module.modules():
            if isinstance(each, _DropoutNd):
                each.p = 0.0
        make_alike([module], os.path.join(self.folder, f"weights-{len(Trial.models)}.pt"), session.rank)
        Trial.models.append(module)
        if len(Trial.models) == 1:
            self._watch(session)

    def _watch(self, session) -> None:
        steps = 0

        def named(of: str) -> dict[str, torch.Tensor]:
            each_model = ((f"{i}: " if len(Trial.models) > 1 else "", model) for i, model in enumerate(Trial.models))
            return {prefix + name: each for prefix, model in each_model for name, each in getattr(model, of)()}

        def before(optimizer, arguments, keywords):
            closure = arguments[1] if len(arguments) > 1 else keywords.get("closure")  # behind the optimizer
            if closure is not None:  # which makes the gradients (Lightning, L-BFGS)
                with torch.enable_grad():
                    closure()
            if session.rank == 0:
                own = {id(each) for group in optimizer.param_groups for each in group["params"]}
                gradients = {name: each.grad for name, each in named("named_parameters").items() if each.grad is not None and id(each) in own}
                buffers = {name: each for name, each in named("named_buffers").items() if each.is_floating_point()}
                torch.save({"gradients": gradients, "buffers": buffers, "samples": session.samples, "epochs": Trial.has_epoch}, self.file(steps))

        def after(*_):
            nonlocal steps
            make_alike(Trial.models, os.path.join(self.folder, f"state-{steps}.pt"), session.rank)
            steps += 1
            if steps >= STEPS[1] or steps >= STEPS[0] and Trial.has_epoch:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)  # without taking down groups whose exchanges may be under way

        register_optimizer_step_pre_hook(before)
        register_optimizer_step_post_hook(after)
