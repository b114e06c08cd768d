"""A convolutional network with BatchNorm that reads handwritten digits (data/digits.npz).

Smooth activations and pooling: with ReLU and max pooling the blank pixels of all samples change sides
together when rounding puts a value across 0, and PyTorch in float32 leaves PyTorch in float64 by a
percent within 20 steps. What is to be compared to 1e-5 must not hang on that.

python -m motley.export examples/digits_cnn.py:model -o digits_cnn.motley
"""

import torch
import torch.nn.functional as F
from torch import nn


class DigitsCnn(nn.Module):
    def __init__(self, width: int = 48):
        super().__init__()
        self.features = nn.Sequential(
            self.block(1, width),
            self.block(width, width),
            nn.AvgPool2d(2),
            self.block(width, 2 * width),
            self.block(2 * width, 2 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.classify = nn.Linear(2 * width, 10)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Module:
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.SiLU())

    def forward(self, x, y):
        """Images x [batch, 1, 8, 8] with labels y [batch]: loss, scores, and how many are right."""
        logits = self.classify(self.features(x))
        best = logits.topk(3).indices == y[:, None]
        return {
            "loss": F.cross_entropy(logits, y),
            "logits": logits,
            "accuracy": (best[:, 0].sum(), y.shape[0]),
            "top3": (best.sum(), y.shape[0]),
        }


def model():
    torch.manual_seed(0)
    return DigitsCnn(), (torch.rand(8, 1, 8, 8), torch.randint(0, 10, (8,)))
