"""What the zoo's models share: a loss on top, and inputs."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 8  # samples of the data, and of a step
CLASSES = 10


class Classifier(nn.Module):
    """Any network of images with a cross-entropy loss on top, of each output if it has several."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, image, label):
        made = self.net(image)
        if isinstance(made, dict):  # segmentation
            made = list(made.values())
        outputs = made if isinstance(made, (tuple, list)) else [made]
        return sum(F.cross_entropy(output, label) for output in outputs)


class Loss(nn.Module):
    """A model of transformers that computes its own loss."""

    def __init__(self, net, names):
        super().__init__()
        self.net, self.names = net, names

    def forward(self, *values):
        return self.net(**dict(zip(self.names, values, strict=True))).loss


def images(net, side=64, channels=3, depth=None, label=()):
    """(module, inputs) of a network of images, or with `depth` of videos."""
    torch.manual_seed(1)
    shape = (BATCH, channels, *(() if depth is None else (depth,)), side, side)
    return Classifier(net), (torch.randn(shape), torch.randint(0, CLASSES, (BATCH, *label)))


def texts(net, vocabulary=64, length=16, labels=None):
    """(module, inputs) of a model of transformers over tokens; `labels`: classes of a text, else it
    predicts tokens."""
    torch.manual_seed(1)
    tokens = torch.randint(3, vocabulary, (BATCH, length))
    wanted = tokens if labels is None else torch.randint(0, labels, (BATCH,))
    return Loss(net, ("input_ids", "labels")), (tokens, wanted.clone())
