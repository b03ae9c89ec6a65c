"""Attention as models write it: three linear layers on one input, whose results are seen as heads."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4, bias: bool = True):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        by_head = lambda y: y.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # noqa: E731
        y = F.scaled_dot_product_attention(*(by_head(f(x)) for f in (self.query, self.key, self.value)))
        return x + self.out(y.transpose(1, 2).flatten(2))
