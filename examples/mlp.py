"""A multilayer perceptron that reads handwritten digits (data/digits.npz).

python -m motley.export examples/mlp.py:model -o mlp.motley
"""

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    def __init__(self, width: int = 512):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 10),
        )

    def forward(self, x, y):
        """Loss and scores of images x [batch, 1, 8, 8] with labels y [batch]."""
        logits = self.net(x)
        return F.cross_entropy(logits, y), logits


def model():
    torch.manual_seed(0)
    return Mlp(), (torch.rand(8, 1, 8, 8), torch.randint(0, 10, (8,)))
