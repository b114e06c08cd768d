"""PyTorch's own training loop of one process, with a recipe as a plan holds it: what a training
over several devices is compared with.

Everything but Lion, LAMB and their formulas is PyTorch's: torch.optim, torch.amp.GradScaler,
torch.nn.utils.clip_grad_norm_, torch.optim.swa_utils.AveragedModel.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from motley.step import name_outputs


class Lion(torch.optim.Optimizer):
    """Chen et al., Symbolic Discovery of Optimization Algorithms, 2023."""

    def __init__(self, parameters, lr, betas, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                mean = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * (beta1 * mean + (1 - beta1) * p.grad).sign())
                mean.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Lamb(torch.optim.Optimizer):
    """You et al., Large Batch Optimization for Deep Learning, 2020."""

    def __init__(self, parameters, lr, betas, eps, weight_decay):
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, mean=torch.zeros_like(p), square=torch.zeros_like(p))
                state["step"] += 1
                mean, square, count = state["mean"], state["square"], state["step"]
                mean.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                square.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                direction = (mean / (1 - beta1**count)) / (
                    (square / (1 - beta2**count)).sqrt() + group["eps"]
                )
                direction = direction + group["weight_decay"] * p
                of_p, of_direction = p.norm().item(), direction.norm().item()
                trust = of_p / of_direction if of_p > 0 and of_direction > 0 else 1.0
                p.sub_(group["lr"] * trust * direction)


def make_optimizer(kind: str, parameters, optimizer: dict, lr: float, decay: float):
    betas = (optimizer["beta1"], optimizer["beta2"])
    eps, momentum, nesterov = (optimizer[name] for name in ("eps", "momentum", "nesterov"))
    common = {"lr": lr, "weight_decay": decay}
    makers = {
        "sgd": lambda: torch.optim.SGD(
            parameters, momentum=momentum, nesterov=nesterov, **common
        ),
        "adam": lambda: torch.optim.Adam(parameters, betas=betas, eps=eps, **common),
        "adamw": lambda: torch.optim.AdamW(parameters, betas=betas, eps=eps, **common),
        "adagrad": lambda: torch.optim.Adagrad(parameters, eps=eps, **common),
        "rmsprop": lambda: torch.optim.RMSprop(
            parameters, alpha=betas[1], eps=eps, momentum=momentum, **common
        ),
        "lion": lambda: Lion(parameters, betas=betas, **common),
        "lamb": lambda: Lamb(parameters, betas=betas, eps=eps, **common),
        "adafactor": lambda: torch.optim.Adafactor(parameters, eps=(None, eps), **common),
        "muon": lambda: torch.optim.Muon(
            parameters, momentum=momentum, nesterov=nesterov, **common
        ),
    }
    return makers[kind]()


def make_scaler(scale: dict) -> torch.amp.GradScaler:
    scaler = torch.amp.GradScaler("cpu", scale["initial"], growth_interval=scale["interval"])
    # Its constructor refuses factors of 1, with which a scale stays.
    scaler.set_growth_factor(scale["growth"])
    scaler.set_backoff_factor(scale["backoff"])
    return scaler


@dataclass
class Trained:
    """A parameter with what it is called and what is updated: itself, or its master copy."""

    names: list[str]
    parameter: nn.Parameter
    updated: nn.Parameter

    def matches(self, patterns) -> bool:
        return any(fnmatch.fnmatchcase(name, each) for name in self.names for each in patterns)


def named_parameters(module: nn.Module) -> dict[nn.Parameter, list[str]]:
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return names


class Loop:
    """`plan` holds "optimizer" and may hold "recipe" (docs/formats/plan.md). `forward` computes what
    the module does, if it is not called itself."""

    def __init__(self, module: nn.Module, plan: dict, forward=None):
        self.module, self.recipe = module, plan.get("recipe", {})
        self.forward = forward or module
        self.trained = self.find_trained()
        self.optimizers = self.make_optimizers(plan["optimizer"])
        self.rates = [[group["lr"] for group in each.param_groups] for each in self.optimizers]
        scale = self.recipe.get("loss_scale")
        self.scaler = scale and make_scaler(scale)
        decay = self.recipe.get("average")
        self.averaged = decay and AveragedModel(
            nn.ParameterList([each.updated for each in self.trained]),
            multi_avg_fn=get_ema_multi_avg_fn(decay),
        )
        self.norm = None

    def find_trained(self) -> list[Trained]:
        found = []
        for parameter, names in named_parameters(self.module).items():
            each = Trained(names, parameter, parameter)
            if each.matches(self.recipe.get("freeze", [])):
                parameter.requires_grad_(False)
            if not parameter.requires_grad:
                continue
            if self.recipe.get("master_weights") and parameter.dtype in (torch.half, torch.bfloat16):
                each.updated = nn.Parameter(parameter.detach().float())
            found.append(each)
        return found

    def make_optimizers(self, optimizer: dict) -> list[torch.optim.Optimizer]:
        groups: dict[tuple, list[nn.Parameter]] = {}
        for each in self.trained:
            kind, rate, decay = optimizer["kind"], optimizer["lr"], optimizer["weight_decay"]
            is_matrix = each.parameter.dim() == 2
            if kind == "muon" and (not is_matrix or each.matches(self.recipe.get("adamw", []))):
                kind = "adamw"
            for pattern, factor in self.recipe.get("lr_scale", {}).items():
                rate *= factor if each.matches([pattern]) else 1
            if each.matches(self.recipe.get("no_decay", [])):
                decay = 0.0
            groups.setdefault((kind, rate, decay), []).append(each.updated)
        return [
            make_optimizer(kind, parameters, optimizer, rate, decay)
            for (kind, rate, decay), parameters in groups.items()
        ]

    def step(self, inputs, factor: float = 1.0, backward=None) -> float:
        """One step at `factor` of every learning rate; the loss. `backward` takes the backward passes
        of the inputs, if there is not one of all (motley.micro_batches)."""
        for optimizer, rates in zip(self.optimizers, self.rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
        self.module.zero_grad(set_to_none=True)
        loss = (backward or self.backward)(inputs)
        self.update()
        return loss

    def backward(self, inputs, part: float = 1.0) -> float:
        """Adds the gradients of a part of the loss, which it gives."""
        loss, _ = name_outputs(self.forward(*inputs))
        if part != 1:
            loss = loss * part
        (self.scaler.scale(loss) if self.scaler else loss).backward()
        return loss.item()

    def update(self) -> None:
        for each in self.trained:
            if each.updated is not each.parameter and each.parameter.grad is not None:
                each.updated.grad = each.parameter.grad.float()
        used = [each for each in self.trained if each.updated.grad is not None]
        if self.scaler:
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
        self.clip([each.updated for each in used])
        for optimizer in self.optimizers:
            if self.scaler:
                self.scaler.step(optimizer)
            else:
                optimizer.step()
        if self.scaler:
            self.scaler.update()
        with torch.no_grad():
            for each in self.trained:
                if each.updated is not each.parameter:
                    each.parameter.copy_(each.updated)
        if self.averaged:
            self.averaged.update_parameters(nn.ParameterList([e.updated for e in self.trained]))

    def clip(self, parameters) -> None:
        if "clip_norm" in self.recipe:
            self.norm = nn.utils.clip_grad_norm_(parameters, self.recipe["clip_norm"]).item()
        if "clip_value" in self.recipe:
            nn.utils.clip_grad_value_(parameters, self.recipe["clip_value"])

    def averages(self) -> dict[str, torch.Tensor]:
        """Of the parameters, by first name."""
        means = self.averaged.module.parameters() if self.averaged else []
        return {each.names[0]: mean.detach() for each, mean in zip(self.trained, means)}
