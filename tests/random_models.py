"""Small models drawn at random: layers of every family, in any order that their shapes allow."""

import random

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 5


class Residual(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return x + self.part(x)


class Scaled(nn.Module):
    """Each feature by a learned factor, as gates and layer scales do."""

    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        return x * self.scale


class Attention(nn.Module):
    def __init__(self, features, heads, is_causal):
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.qkv, self.out = nn.Linear(features, 3 * features), nn.Linear(features, features)

    def forward(self, x):
        batch, length, features = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, features // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, features))


class Pick(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Trained(nn.Module):
    """A net and what it is trained to."""

    def __init__(self, net, loss):
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, x, y):
        return self.loss(self.net(x), y)


def _activation(draw):
    return draw.choice([nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU, nn.Sigmoid])()


def _vector_layer(draw, width):
    """A layer of vectors, and how wide they are then."""
    wide = draw.choice([6, 8, 12, 16])
    return draw.choice(
        [
            lambda: (nn.Linear(width, wide, bias=draw.random() < 0.7), wide),
            lambda: (_activation(draw), width),
            lambda: (nn.LayerNorm(width), width),
            lambda: (Scaled(width), width),
            lambda: (
                Residual(nn.Sequential(nn.Linear(width, wide), _activation(draw), nn.Linear(wide, width))),
                width,
            ),
        ]
    )()


def _image_layer(draw, channels):
    """A layer of images with even sides, which it keeps, and their channels then."""
    more = draw.choice([2, 4, 6])
    return draw.choice(
        [
            lambda: (nn.Conv2d(channels, more, 3, padding=1, bias=draw.random() < 0.7), more),
            lambda: (nn.Conv2d(channels, channels, 3, padding=1, groups=channels), channels),
            lambda: (nn.BatchNorm2d(channels), channels),
            lambda: (nn.GroupNorm(1, channels), channels),
            lambda: (_activation(draw), channels),
            lambda: (Residual(nn.Conv2d(channels, channels, 1)), channels),
        ]
    )()


def _sequence_layer(draw, width):
    heads = draw.choice([1, 2, 4])
    return draw.choice(
        [
            lambda: Residual(nn.Sequential(nn.LayerNorm(width), Attention(width, heads, draw.random() < 0.5))),
            lambda: Residual(nn.Sequential(nn.Linear(width, 2 * width), _activation(draw), nn.Linear(2 * width, width))),
            lambda: nn.LayerNorm(width),
            lambda: Scaled(width),
            lambda: nn.Linear(width, width),
        ]
    )()


def _head(draw, width):
    """Layers from `width` numbers to CLASSES, and a loss of those and of labels."""
    layers = []
    for _ in range(draw.randrange(3)):
        layer, width = _vector_layer(draw, width)
        layers.append(layer)
    return [*layers, nn.Linear(width, CLASSES)], draw.choice(
        [
            lambda x, y: F.cross_entropy(x, y),
            lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
            lambda x, y: F.multi_margin_loss(x, y),
            lambda x, y: F.mse_loss(x, F.one_hot(y, CLASSES).to(x.dtype)),
        ][: 2 + 2 * (draw.random() < 0.3)]
    )


def _of_vectors(draw, batch):
    layers, width = [], 8
    for _ in range(draw.randint(1, 4)):
        layer, width = _vector_layer(draw, width)
        layers.append(layer)
    return layers, width, torch.randn(batch, 8)


def _of_images(draw, batch):
    layers, channels, side = [], 3, 8
    for _ in range(draw.randint(1, 4)):
        layer, channels = _image_layer(draw, channels)
        layers.append(layer)
        if side > 2 and draw.random() < 0.4:
            layers.append(draw.choice([nn.MaxPool2d, nn.AvgPool2d])(2))
            side //= 2
    end = draw.choice([nn.Flatten(), Pick(lambda x: x.mean((2, 3)))])
    return [*layers, end], channels * (side * side if isinstance(end, nn.Flatten) else 1), torch.randn(batch, 3, 8, 8)


def _of_sequences(draw, batch):
    words, width, length = 20, 8, 6
    layers = [nn.Embedding(words, width)] + [_sequence_layer(draw, width) for _ in range(draw.randint(1, 3))]
    end = draw.choice([lambda x: x.mean(1), lambda x: x[:, 0], lambda x: x.amax(1)])
    return [*layers, Pick(end)], width, torch.randint(0, words, (batch, length))


def draw_model(seed, batch):
    """(module, example inputs) of `batch` samples: same seed, same model."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    layers, width, x = draw.choice([_of_vectors, _of_images, _of_sequences])(draw, batch)
    head, loss = _head(draw, width)
    return Trained(nn.Sequential(*layers, *head), loss), (x, torch.randint(0, CLASSES, (batch,)))
