"""Models of the families in the sizes that people train, for planning: `motley.export --graph-only`.

Each function returns (module, inputs) with little memory: weights are made on the meta device.
"""

from __future__ import annotations

import torch
from torch import nn

from families import Bert, Bottleneck, Classifier, Experts, Gpt, Llama, Recommender, VisionTransformer

BATCH = 4  # of the example inputs


def tokens(vocabulary: int, length: int):
    shape = (BATCH, length)
    return torch.randint(0, vocabulary, shape), torch.randint(0, vocabulary, shape)


def images(side: int, classes: int):
    return torch.randn(BATCH, 3, side, side), torch.randint(0, classes, (BATCH,))


def mlp():
    """Wide layers and few samples: weights outweigh activations."""
    widths = (1024, 8192, 8192, 8192, 1000)
    layers = []
    for before, after in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return Classifier(nn.Sequential(*layers[:-1])), (
        torch.randn(BATCH, 1024),
        torch.randint(0, 1000, (BATCH,)),
    )


def vgg19():
    layers, channels = [], 3
    for width, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Dropout(0.5)]
    layers += [nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4096, 1000)]
    return Classifier(nn.Sequential(*layers)), images(224, 1000)


def resnet50():
    stem = [nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers, channels = [*stem, nn.MaxPool2d(3, stride=2, padding=1)], 64
    for inner, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(channels, inner, 4 * inner, stride if block == 0 else 1))
            channels = 4 * inner
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return Classifier(nn.Sequential(*layers)), images(224, 1000)


def vit():
    net = VisionTransformer(patch=16, side=224, width=768, heads=12, layers=12, classes=1000)
    return Classifier(net), images(224, 1000)


def bert(layers: int = 12):
    model = Bert(vocabulary=30522, length=128, width=768, heads=12, layers=layers, classes=3)
    mask = torch.ones(BATCH, 128, dtype=torch.bool)
    return model, (tokens(30522, 128)[0], mask, torch.randint(0, 3, (BATCH,)))


def bert24():
    return bert(24)


def gpt():
    model = Gpt(vocabulary=50257, length=256, width=768, heads=12, layers=12)
    return model, tokens(50257, 256)


def llama():
    model = Llama(vocabulary=32000, length=256, width=2048, heads=16, groups=4, layers=8)
    return model, tokens(32000, 256)


class Translation(nn.Module):
    """The base Transformer of 2017: six layers each way, one table for sources, targets and answers."""

    def __init__(self, vocabulary=37000, length=64, width=512):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(length, width))
        self.body = nn.Transformer(width, 8, 6, 6, 2048, batch_first=True)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, source, target, answer):
        made = self.body(self.words(source) + self.places, self.words(target) + self.places, tgt_mask=self.mask,
                         tgt_is_causal=True)
        return nn.functional.cross_entropy((made @ self.words.weight.T).flatten(0, 1), answer.flatten())


def transformer():
    return Translation(), (*tokens(37000, 64), tokens(37000, 64)[0])


def moe():
    """Every block's MLP is eight experts, of which a token takes two."""
    model = Gpt(vocabulary=30522, length=128, width=768, heads=12, layers=12)
    for block in model.h:
        block.mlp = Experts(768, 3072, experts=8, capacity=40)
    return model, tokens(30522, 128)


def recommender():
    sizes = (1_000_000, 400_000, 200_000, 100_000, 50_000, 20_000)
    categories = torch.stack([torch.randint(0, size, (BATCH,)) for size in sizes], 1)
    model = Recommender(sizes=sizes, width=64, numbers=13)
    return model, (torch.randn(BATCH, 13), categories, torch.rand(BATCH))


MODELS = (mlp, vgg19, resnet50, vit, bert, bert24, gpt, llama, moe, recommender)
