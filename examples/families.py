"""Small models of many families. Each function returns (module, inputs) for `motley.export`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 6  # of the example inputs


class Classifier(nn.Module):
    """Any network with a cross-entropy loss on top."""

    def __init__(self, net: nn.Module, label_smoothing: float = 0.0):
        super().__init__()
        self.net = net
        self.label_smoothing = label_smoothing

    def forward(self, x, y):
        logits = self.net(x)
        return F.cross_entropy(logits, y, label_smoothing=self.label_smoothing), logits


class Regression(nn.Module):
    """An MLP with a mean squared error; one layer is frozen and one is never used."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.unused = nn.Linear(4, 4)
        self.last = nn.Linear(16, 3)

    def forward(self, features, target):
        hidden = torch.tanh(self.first(features))
        hidden = torch.relu(self.frozen(hidden))
        return F.mse_loss(self.last(hidden), target)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool, dropout: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, causal)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        x = x + self.drop(self.attn(self.norm1(x), mask))
        return x + self.drop(self.mlp(self.norm2(x)))


class Gpt(nn.Module):
    """Next-token prediction with a head tied to the embedding; targets of -100 do not count."""

    def __init__(self, vocabulary=61, length=12, width=32, heads=4, layers=2, dropout=0.0):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads, True, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def logits(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        return self.head(self.norm(x))

    def forward(self, tokens, targets):
        logits = self.logits(tokens).flatten(0, 1)
        return F.cross_entropy(logits, targets.flatten(), ignore_index=-100)


class AutocastGpt(Gpt):
    """The same, computed in bf16 with float32 weights."""

    def forward(self, tokens, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(tokens, targets)


class Bert(nn.Module):
    """An encoder with a padding mask and dropout, which classifies its first token."""

    def __init__(self, vocabulary=50, length=10, width=32, heads=4, layers=2, classes=3):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)
        self.layers = nn.ModuleList(Block(width, heads, False, 0.1) for _ in range(layers))
        self.pool = nn.Linear(width, width)
        self.classify = nn.Linear(width, classes)

    def forward(self, tokens, attention_mask, labels):
        x = self.drop(self.norm(self.token(tokens) + self.position))
        mask = attention_mask[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        logits = self.classify(torch.tanh(self.pool(x[:, 0])))
        return F.cross_entropy(logits, labels), logits


class Recurrent(nn.Module):
    """A recurrent network over a sequence, classified by its last state."""

    def __init__(self, kind: type[nn.RNNBase]):
        super().__init__()
        self.rnn = kind(5, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, sequence, label):
        states, _ = self.rnn(sequence)
        return F.cross_entropy(self.head(states[:, -1]), label)

class Bottleneck(nn.Module):
    """A residual block of ResNet-50: 1x1, 3x3 and 1x1 convolutions."""

    def __init__(self, channels: int, inner: int, out: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.skip = nn.Sequential(
            nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out)
        )

    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))


class VisionTransformer(nn.Module):
    def __init__(self, patch=4, side=8, width=16, heads=2, layers=1, classes=5):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.first = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(*(Block(width, heads, False, 0.0) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.norm(self.layers(x))[:, 0])


class Llama(nn.Module):
    """Blocks with RMS norm, rotary positions, grouped queries and a gated MLP."""

    class Block(nn.Module):
        def __init__(self, width: int, heads: int, groups: int, inner: int):
            super().__init__()
            self.heads, self.groups, self.head_width = heads, groups, width // heads
            self.norm1 = nn.RMSNorm(width)
            self.q = nn.Linear(width, width, bias=False)
            self.k = nn.Linear(width, groups * self.head_width, bias=False)
            self.v = nn.Linear(width, groups * self.head_width, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.norm2 = nn.RMSNorm(width)
            self.gate = nn.Linear(width, inner, bias=False)
            self.up = nn.Linear(width, inner, bias=False)
            self.down = nn.Linear(inner, width, bias=False)

        def rotate(self, x, cos, sin):
            first, second = x.chunk(2, -1)
            return x * cos + torch.cat([-second, first], -1) * sin

        def attend(self, x, cos, sin):
            batch, length, width = x.shape
            split = (batch, length, -1, self.head_width)
            q = self.rotate(self.q(x).view(split).transpose(1, 2), cos, sin)
            k = self.rotate(self.k(x).view(split).transpose(1, 2), cos, sin)
            v = self.v(x).view(split).transpose(1, 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return self.out(y.transpose(1, 2).reshape(batch, length, width))

        def forward(self, x, cos, sin):
            x = x + self.attend(self.norm1(x), cos, sin)
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    def __init__(self, vocabulary=40, length=10, width=24, heads=4, groups=2, layers=2):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            Llama.Block(width, heads, groups, 2 * width) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        half = width // heads // 2
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", torch.cat([angles.cos()] * 2, 1))
        self.register_buffer("sin", torch.cat([angles.sin()] * 2, 1))

    def forward(self, tokens, targets):
        x = self.token(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)


class Fourier(nn.Module):
    """Tokens mixed by an FFT, by a learned filter of frequencies, and by attention whose rotary
    positions are complex numbers."""

    def __init__(self, vocabulary=30, length=8, width=16):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.filter = nn.Parameter(torch.randn(length // 2 + 1, width, 2) / 4)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_and_keys = nn.Linear(width, 2 * width, bias=False)
        self.head = nn.Linear(width, vocabulary)
        half = width // 2
        angles = torch.outer(torch.arange(length), 100.0 ** (-torch.arange(half) / half))
        turns = torch.polar(torch.ones_like(angles), angles)
        self.register_buffer("turns", turns, persistent=False)

    def filtered(self, x):
        waves = torch.fft.rfft(x, dim=1, norm="ortho") * torch.view_as_complex(self.filter)
        return torch.fft.irfft(waves, n=x.shape[1], dim=1, norm="ortho")

    def rotated(self, x):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns).flatten(-2)

    def forward(self, tokens, targets):
        x = self.token(tokens)
        x = self.norm1(x + torch.fft.fft2(x).real)
        x = self.norm2(x + self.filtered(x))
        q, k = (self.rotated(part) for part in self.queries_and_keys(x).chunk(2, -1))
        mixed = (q @ k.transpose(1, 2) / 4).softmax(-1) @ x
        return F.cross_entropy(self.head(mixed).flatten(0, 1), targets.flatten())


class Experts(nn.Module):
    """Top-2 mixture of experts: each sequence sends at most `capacity` tokens to an expert."""

    def __init__(self, width: int, inner: int, experts: int, capacity: int):
        super().__init__()
        self.capacity = capacity
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, inner) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) / inner**0.5)

    def routes(self, x):
        """[batch, tokens, experts, capacity]: weight of each token in each expert's place."""
        share = self.gate(x).softmax(-1)
        best, chosen = share.topk(2, -1)
        best = best / best.sum(-1, keepdim=True)
        taken = F.one_hot(chosen, share.shape[-1]).to(x.dtype)  # [batch, tokens, 2, experts]
        place = (taken.flatten(1, 2).cumsum(1) - 1).view_as(taken)
        kept = taken * (place < self.capacity)
        slot = F.one_hot(place.long().clamp(0, self.capacity - 1), self.capacity).to(x.dtype)
        return torch.einsum("bsk,bske,bskec->bsec", best, kept, slot)

    def forward(self, x):
        combine = self.routes(x)
        sent = torch.einsum("bsec,bsd->becd", (combine > 0).to(x.dtype), x)
        hidden = torch.relu(torch.einsum("becd,edh->bech", sent, self.up))
        back = torch.einsum("bech,ehd->becd", hidden, self.down)
        return torch.einsum("bsec,becd->bsd", combine, back)


class MixtureGpt(Gpt):
    """A GPT whose MLPs are experts."""

    def __init__(self):
        super().__init__(vocabulary=30, length=8, width=16, heads=2, layers=1)
        for block in self.h:
            block.mlp = Experts(16, 24, experts=4, capacity=5)


class Recommender(nn.Module):
    """Wide tables of categories, numbers through an MLP, products of all pairs."""

    def __init__(self, sizes=(50, 31, 17), width=8, numbers=6):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size in sizes)
        self.bottom = nn.Sequential(nn.Linear(numbers, 16), nn.ReLU(), nn.Linear(16, width))
        count = len(sizes) + 1
        self.top = nn.Sequential(nn.Linear(width + count * count, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, numbers, categories, clicked):
        dense = self.bottom(numbers)
        rows = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        features = torch.stack([dense, *rows], 1)
        pairs = torch.bmm(features, features.transpose(1, 2)).flatten(1)
        score = self.top(torch.cat([dense, pairs], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(score, clicked)


def mlp():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
    return Classifier(net), (torch.randn(BATCH, 12), torch.randint(0, 5, (BATCH,)))


def regression():
    torch.manual_seed(0)
    return Regression(), (torch.randn(BATCH, 8), torch.randn(BATCH, 3))


def cnn():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    return Classifier(net), (torch.randn(BATCH, 1, 8, 8), torch.randint(0, 10, (BATCH,)))


def group_norm():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.GroupNorm(4, 8),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(8 * 9, 4),
    )
    return Classifier(net), (torch.randn(BATCH, 3, 8, 8), torch.randint(0, 4, (BATCH,)))


def label_smoothing():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 24), nn.GELU(), nn.Dropout(0.2), nn.Linear(24, 6))
    return Classifier(net, label_smoothing=0.1), (
        torch.randn(BATCH, 10),
        torch.randint(0, 6, (BATCH,)),
    )


def token_inputs(vocabulary: int, length: int):
    tokens = torch.randint(0, vocabulary, (BATCH, length))
    targets = torch.randint(0, vocabulary, (BATCH, length))
    targets[:, -2:] = -100
    return tokens, targets


def gpt_tied():
    torch.manual_seed(0)
    return Gpt(), token_inputs(61, 12)


def gpt_dropout():
    torch.manual_seed(0)
    return Gpt(dropout=0.1), token_inputs(61, 12)


def bf16():
    torch.manual_seed(0)
    return AutocastGpt(), token_inputs(61, 12)


def bert():
    torch.manual_seed(0)
    lengths = torch.tensor([10, 7, 5, 10, 3, 8])
    mask = torch.arange(10)[None, :] < lengths[:, None]
    return Bert(), (torch.randint(0, 50, (BATCH, 10)), mask, torch.randint(0, 3, (BATCH,)))


def lstm():
    torch.manual_seed(0)
    return Recurrent(nn.LSTM), (torch.randn(BATCH, 6, 5), torch.randint(0, 4, (BATCH,)))


def gru():
    torch.manual_seed(0)
    return Recurrent(nn.GRU), (torch.randn(BATCH, 6, 5), torch.randint(0, 4, (BATCH,)))


def vgg():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(48, 32),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(32, 10),
    )
    return Classifier(net), (torch.randn(BATCH, 3, 8, 8), torch.randint(0, 10, (BATCH,)))


def resnet():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        Bottleneck(8, 4, 16, 1),
        Bottleneck(16, 8, 24, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 10),
    )
    return Classifier(net), (torch.randn(BATCH, 3, 16, 16), torch.randint(0, 10, (BATCH,)))


def vit():
    torch.manual_seed(0)
    return Classifier(VisionTransformer()), (
        torch.randn(BATCH, 3, 8, 8),
        torch.randint(0, 5, (BATCH,)),
    )


def llama():
    torch.manual_seed(0)
    return Llama(), token_inputs(40, 10)


def fourier():
    torch.manual_seed(0)
    return Fourier(), token_inputs(30, 8)


def moe():
    torch.manual_seed(0)
    return MixtureGpt(), token_inputs(30, 8)


def recommender():
    torch.manual_seed(0)
    categories = torch.stack([torch.randint(0, n, (BATCH,)) for n in (50, 31, 17)], 1)
    clicked = torch.randint(0, 2, (BATCH,)).float()
    return Recommender(), (torch.randn(BATCH, 6), categories, clicked)


FAMILIES = [
    mlp,
    regression,
    cnn,
    group_norm,
    label_smoothing,
    gpt_tied,
    gpt_dropout,
    bf16,
    bert,
    lstm,
    gru,
    vgg,
    resnet,
    vit,
    llama,
    fourier,
    moe,
    recommender,
]
