"""A small GPT with dropout that learns English letter by letter (data/devils_dictionary.bin).

python -m motley.export examples/char_gpt.py:model -o char_gpt.motley
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

LENGTH = 64  # characters the model looks back
VOCABULARY = (Path(__file__).parent / "data" / "devils_dictionary.vocab").read_text()


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.drop(self.attn(self.norm1(x)))
        return x + self.drop(self.mlp(self.norm2(x)))


class CharGpt(nn.Module):
    def __init__(self, width: int = 96, heads: int = 4, layers: int = 3, dropout: float = 0.1):
        super().__init__()
        self.wte = nn.Embedding(len(VOCABULARY), width)
        self.wpe = nn.Embedding(LENGTH, width)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(VOCABULARY), bias=False)
        self.apply(self.initialize)
        self.head.weight = self.wte.weight

    @staticmethod
    def initialize(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens, targets):
        """Loss of predicting targets [batch, LENGTH] from tokens [batch, LENGTH], and its sum and
        count: a metric of that name is e to their ratio."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        logits = self.head(self.norm(x))
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return {"loss": loss, "perplexity": (loss * targets.numel(), targets.numel())}


def model():
    torch.manual_seed(0)
    tokens = torch.randint(0, len(VOCABULARY), (4, LENGTH + 1))
    return CharGpt(), (tokens[:, :-1], tokens[:, 1:])
