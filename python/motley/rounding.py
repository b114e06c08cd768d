"""How much rounding alone changes a model: its weights moved to the numbers next to them."""

from __future__ import annotations

import copy

import torch
from torch import nn


def change_last_bits(module: nn.Module, generator: torch.Generator) -> None:
    """Makes every weight the next larger or the next smaller number, at random."""
    with torch.no_grad():
        for weight in module.parameters():
            if weight.is_floating_point():
                up = torch.rand(weight.shape, generator=generator) < 0.5
                infinity = torch.full_like(weight, torch.inf)
                weight.copy_(torch.nextafter(weight, torch.where(up, infinity, -infinity)))


def with_last_bits_changed(module: nn.Module, seed: int) -> nn.Module:
    """A copy of the module with such weights."""
    module = copy.deepcopy(module)
    change_last_bits(module, torch.Generator().manual_seed(seed))
    return module
