"""The schedules and the loop that trainings are compared with, beside PyTorch's own parts."""

import copy
import math

import pytest
import torch
from motley.eager import Loop
from motley.schedule import factor
from torch import nn

SCHEDULE = {"kind": "constant", "warmup": 0, "steps": 20, "floor": 0.0, "every": 1, "gamma": 0.1, "factors": []}  # fmt: skip
OPTIMIZER = {"kind": "sgd", "lr": 0.1, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0,
             "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}  # fmt: skip


def rates(make, steps):
    """What a scheduler of PyTorch gives an optimizer of rate 1."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


SCHEDULERS = torch.optim.lr_scheduler
CASES = {
    "cosine": ({"kind": "cosine", "floor": 0.1}, lambda o: SCHEDULERS.CosineAnnealingLR(o, 20, 0.1)),
    "step": ({"kind": "step", "every": 3, "gamma": 0.5}, lambda o: SCHEDULERS.StepLR(o, 3, 0.5)),
    "linear": ({"kind": "linear"}, lambda o: SCHEDULERS.LinearLR(o, 1.0, 0.0, 20)),
    "one-cycle": (
        {"kind": "one-cycle"},
        lambda o: SCHEDULERS.OneCycleLR(o, 1.0, total_steps=21, cycle_momentum=False),
    ),
    "warm-up": (
        {"kind": "cosine", "warmup": 5},
        # As transformers.get_cosine_schedule_with_warmup has it.
        lambda o: SCHEDULERS.LambdaLR(
            o, lambda s: s / 5 if s < 5 else 0.5 * (1 + math.cos(math.pi * (s - 5) / 15))
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_schedules_are_pytorchs(name):
    changes, make = CASES[name]
    steps = 21 if name == "one-cycle" else 20
    schedule = SCHEDULE | {"steps": steps} | changes
    assert [factor(schedule, step) for step in range(20)] == pytest.approx(rates(make, 20), abs=1e-12)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.head(self.fc(x).tanh()), y)


def batches(count):
    torch.manual_seed(1)
    return [(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(count)]


def test_groups_are_torch_optims():
    torch.manual_seed(0)
    ours = Net()
    theirs = copy.deepcopy(ours)
    plan = {
        "optimizer": OPTIMIZER | {"kind": "adamw", "weight_decay": 0.1},
        "recipe": {"no_decay": ["*.bias"], "lr_scale": {"head.*": 0.5}, "freeze": ["fc.bias"], "clip_norm": 0.5},
    }  # fmt: skip
    loop = Loop(ours, plan)
    theirs.fc.bias.requires_grad_(False)
    optimizer = torch.optim.AdamW(
        [
            {"params": [theirs.fc.weight], "weight_decay": 0.1},
            {"params": [theirs.head.weight], "weight_decay": 0.1, "lr": 0.05},
            {"params": [theirs.head.bias], "weight_decay": 0.0, "lr": 0.05},
        ],
        lr=0.1,
    )
    for inputs in batches(4):
        loss = loop.step(inputs)
        wanted = theirs(*inputs)
        optimizer.zero_grad()
        wanted.backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        optimizer.step()
        assert loss == wanted.item()
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name


def test_masters_keep_what_half_precision_drops():
    torch.manual_seed(0)
    module = Net().bfloat16()
    plan = {"optimizer": OPTIMIZER | {"lr": 1e-4}, "recipe": {"master_weights": True, "average": 0.5}}
    loop = Loop(module, plan)
    before = loop.trained[0].updated.detach().clone()
    for x, y in batches(3):
        loop.step((x.bfloat16(), y))
    assert loop.trained[0].updated.dtype == torch.float32
    assert not torch.equal(before, loop.trained[0].updated)
    assert torch.equal(module.fc.weight, loop.trained[0].updated.bfloat16())
    assert set(loop.averages()) == {"fc.weight", "fc.bias", "head.weight", "head.bias"}


def test_a_step_with_an_infinite_gradient_changes_nothing():
    torch.manual_seed(0)
    module = Net()
    scale = {"initial": 1024.0, "growth": 2.0, "backoff": 0.5, "interval": 100}
    module.head.bias.register_hook(lambda gradient: gradient * math.inf)
    loop = Loop(module, {"optimizer": OPTIMIZER, "recipe": {"loss_scale": scale}})
    before = copy.deepcopy(module.state_dict())
    loop.step(batches(1)[0])
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert loop.scaler.get_scale() == 512.0


def test_a_scale_that_stays_changes_no_step():
    scale = {"initial": 256.0, "growth": 1.0, "backoff": 1.0, "interval": 2}
    ways = []
    for recipe in ({}, {"loss_scale": scale}):
        torch.manual_seed(0)
        loop = Loop(Net(), {"optimizer": OPTIMIZER, "recipe": recipe})
        ways.append([loop.step(batch) for batch in batches(5)])
    assert ways[0] == pytest.approx(ways[1], rel=1e-6)
    assert loop.scaler.get_scale() == 256.0
