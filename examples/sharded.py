"""Small models whose weights are large for their arithmetic: splitting operators pays on slow links.

Each function returns (module, inputs) for `motley.export`; `data` writes samples for them.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import nn

from families import Classifier, Experts, Gpt

BATCH = 4  # of the example inputs
SIDE, CLASSES = 32, 10
VOCABULARY, LENGTH = 512, 32


def vgg():
    """Convolutions, then wide layers that hold nine tenths of the weights."""
    torch.manual_seed(0)
    layers, channels = [], 3
    for width, count in ((32, 2), (64, 2), (64, 2)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU()]
    layers.append(nn.Linear(1024, CLASSES))
    images = torch.randn(BATCH, 3, SIDE, SIDE), torch.randint(0, CLASSES, (BATCH,))
    return Classifier(nn.Sequential(*layers)), images


def mixture():
    """A language model whose MLPs are eight experts, of which a token takes two."""
    torch.manual_seed(0)
    model = Gpt(vocabulary=VOCABULARY, length=LENGTH, width=128, heads=4, layers=2)
    for block in model.h:
        block.mlp = Experts(128, 1536, experts=8, capacity=10)
    shape = (BATCH, LENGTH)
    return model, (torch.randint(0, VOCABULARY, shape), torch.randint(0, VOCABULARY, shape))


def mixed():
    """The same with a wide dense MLP in the first layer and sixteen smaller experts in the second."""
    model, inputs = mixture()
    torch.manual_seed(0)
    model.h[0].mlp = nn.Sequential(nn.Linear(128, 6144), nn.ReLU(), nn.Linear(6144, 128))
    model.h[1].mlp = Experts(128, 768, experts=16, capacity=5)
    return model, inputs


def data(model: str, samples: int):
    rng = np.random.default_rng(0)
    if model == "vgg":
        images = rng.standard_normal((samples, 3, SIDE, SIDE), dtype=np.float32)
        return {"x": images, "y": rng.integers(0, CLASSES, samples)}
    shape = (samples, LENGTH)
    tokens = rng.integers(0, VOCABULARY, shape)
    return {"tokens": tokens, "targets": np.roll(tokens, -1, 1)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Writes samples for a model of this file.")
    parser.add_argument("model", choices=("vgg", "mixture", "mixed"))
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--samples", type=int, default=512)
    options = parser.parse_args()
    np.savez(options.output, **data(options.model, options.samples))
