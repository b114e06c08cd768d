"""Training steps of HeteroG's eight models, from public definitions.

Each function returns (module, inputs) as `python -m motley.export` wants it; a sample is an image,
a pair of sentences or a text. What the paper leaves open is decided here, with the reason.
"""

import torch
from torch import nn

EXAMPLES = 2  # the batch of the example inputs; the graph holds for every batch


class Classifier(nn.Module):
    """Mean cross entropy of a network that gives logits."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images, labels):
        return nn.functional.cross_entropy(self.network(images), labels)


def classifier(network, side):
    images = torch.zeros(EXAMPLES, 3, side, side)
    return Classifier(network.train()), (images, torch.zeros(EXAMPLES, dtype=torch.long))


def vgg19():
    import torchvision

    return classifier(torchvision.models.vgg19(), 224)


def resnet200():
    import timm

    return classifier(timm.create_model("resnet200"), 224)


def inception_v3():
    """Without the auxiliary head, as TensorFlow's benchmarks define it."""
    import torchvision

    network = torchvision.models.inception_v3(aux_logits=False, init_weights=False)
    return classifier(network, 299)


def mobilenet_v2():
    import torchvision

    return classifier(torchvision.models.mobilenet_v2(), 224)


def nasnet_mobile():
    """NASNet-A (4 @ 1056): of NASNet-A (6 @ 4032) a sample keeps 0.86 GB for the backward pass, and
    24 of them had to fit 11 GB."""
    import pretrainedmodels

    return classifier(pretrainedmodels.nasnetamobile(num_classes=1000, pretrained=None), 224)


class Translation(nn.Module):
    """The encoder-decoder Transformer with one table for source, target and output."""

    def __init__(self, length, width=512, heads=8, inner=2048, layers=6):
        super().__init__()
        self.embedding = nn.Embedding(32768, width)
        self.positions = nn.Parameter(torch.zeros(length, width), requires_grad=False)
        self.body = nn.Transformer(
            width, heads, layers, layers, inner, dropout=0.1, batch_first=True
        )
        mask = torch.full((length, length), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, source, target, labels):
        encoded = self.embedding(source) + self.positions
        decoded = self.embedding(target) + self.positions
        hidden = self.body(encoded, decoded, tgt_mask=self.mask, tgt_is_causal=True)
        logits = nn.functional.linear(hidden, self.embedding.weight)
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def transformer_base():
    """Sentences of 32 pieces, about the mean of the usual translation data."""
    tokens = torch.zeros(EXAMPLES, 32, dtype=torch.long)
    return Translation(32).train(), (tokens, tokens, tokens)


class Answers(nn.Module):
    """Fine-tuning to mark the answer in a text: first and last token."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, tokens, first, last):
        return self.network(input_ids=tokens, start_positions=first, end_positions=last)[0]


def answers(network):
    """128 tokens: with more, 6 samples would not fit a GPU. By their authors' tables of memory (in
    TensorFlow 1), BERT-large takes 6 samples of 128 tokens and 2 of 256 on 12 GB, XLNet-large 8
    and 2 on 16 GB. 48 in all is the batch that XLNet's authors train with on this task."""
    places = torch.zeros(EXAMPLES, dtype=torch.long)
    tokens = torch.zeros(EXAMPLES, 128, dtype=torch.long)
    return Answers(network.train()), (tokens, places, places)


def bert_large():
    import transformers

    config = transformers.BertConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        attn_implementation="eager",
    )
    return answers(transformers.BertForQuestionAnswering(config))


def xlnet_large():
    """The defaults of XLNetConfig are XLNet-large."""
    import transformers

    return answers(transformers.XLNetForQuestionAnsweringSimple(transformers.XLNetConfig()))
