"""GPTs as HARP trains them (data/harp, after Alpa's): half precision with master weights, attention whose probabilities are
in memory, an embedding that the head does not share. A name is a row's model: GPT-1.3B."""

import torch
from torch import nn

SIZES = {  # hidden, blocks, heads
    "gpt_350m": (1024, 24, 16),
    "gpt_760m": (1536, 24, 16),
    "gpt_1_3b": (2048, 24, 32),
    "gpt_2_6b": (2560, 32, 32),
}
SEQUENCE, VOCABULARY = 1024, 51200


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.register_buffer("mask", torch.full((SEQUENCE, SEQUENCE), -1e4).triu(1))

    def forward(self, x):
        samples, tokens, hidden = x.shape
        q, k, v = self.qkv(self.norm(x)).view(samples, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (hidden // self.heads) ** -0.5 + self.mask
        y = scores.softmax(-1) @ v
        return x + self.out(y.transpose(1, 2).reshape(samples, tokens, hidden))


class Mlp(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x)), approximate="tanh"))


class Embedding(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, hidden), nn.Embedding(SEQUENCE, hidden)

    def forward(self, ids):
        return self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))


class Head(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, VOCABULARY, bias=False)

    def forward(self, x, ids):
        logits = self.head(self.norm(x))[:, :-1].flatten(0, 1).float()
        return nn.functional.cross_entropy(logits, ids[:, 1:].flatten())


class Gpt(nn.Module):
    """Two units a block, one of the embedding and one of the head, as its units are counted."""

    def __init__(self, hidden, blocks, heads):
        super().__init__()
        self.embedding = Embedding(hidden)
        self.units = nn.ModuleList()
        for _ in range(blocks):
            self.units += [Attention(hidden, heads), Mlp(hidden)]
        self.head = Head(hidden)

    def forward(self, ids):
        x = self.embedding(ids)
        for unit in self.units:
            x = unit(x)
        return self.head(x, ids)


def make(name):
    with torch.device("meta"):
        model = Gpt(*SIZES[name]).half()
    return model, (torch.zeros(2, SEQUENCE, dtype=torch.int64),)


def gpt_1_3b():
    return make("gpt_1_3b")


def gpt_2_6b():
    return make("gpt_2_6b")


def gpt_760m():
    return make("gpt_760m")
