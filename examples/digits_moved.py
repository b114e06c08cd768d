"""Handwritten digits (data/digits.npz) as datasets of PyTorch: the first 1500, each turned, leaned,
resized and moved at random when it is read, and the last 297 as they are.

motley run -m cnn.motley ... --data python:examples/digits_moved.py:train --shuffle 0 --eval-data python:examples/digits_moved.py:test
"""

import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset

TRAINED = 1500


class Digits(Dataset):
    def __init__(self, numbers: slice, transform=None):
        arrays = np.load(Path(__file__).parent / "data" / "digits.npz")
        self.x, self.y = (torch.from_numpy(arrays[name][numbers]) for name in ("x", "y"))
        self.transform = transform

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return (self.transform(self.x[i]) if self.transform else self.x[i]), self.y[i]


def move(image):
    """By up to 15 degrees, a slant of 0.2, 12 % of the size and a pixel."""
    turn, lean, grow, right, down = (2 * torch.rand(5) - 1).tolist()
    turn, grow = math.radians(15 * turn), 1 + 0.12 * grow
    cos, sin = math.cos(turn) / grow, math.sin(turn) / grow
    affine = torch.tensor([[[cos, 0.2 * lean - sin, 0.25 * right], [sin, cos, 0.25 * down]]])
    grid = F.affine_grid(affine, [1, *image.shape], align_corners=False)
    return F.grid_sample(image[None], grid, align_corners=False)[0]


def train():
    return Digits(slice(TRAINED), move)


def test():
    return Digits(slice(TRAINED, None))
