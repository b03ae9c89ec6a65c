"""Small networks of our own, one for each way in which gradients travel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def mlp(shared: bool = False, activation: type[nn.Module] = nn.GELU) -> nn.Module:
    """Batch norm and dropout inside, so that buffers and random numbers take part."""
    first, second = nn.Linear(16, 16), nn.Linear(16, 16)
    if shared:
        second.weight = first.weight
    return nn.Sequential(
        nn.Linear(12, 16), nn.BatchNorm1d(16), first, activation(), nn.Dropout(0.2), second, nn.Linear(16, 5)
    )


class ClippedSwish(torch.autograd.Function):
    """A user's own function with a backward that autograd would not find."""

    @staticmethod
    def forward(ctx, x: Tensor, limit: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return (grad * (gate + x * gate * (1 - gate))).clamp(-ctx.limit, ctx.limit), None


class OwnActivation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return ClippedSwish.apply(x, 0.05)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.project(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads, dropout))
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attention(x))
        return x + self.drop(self.feed_forward(x))


class GPT(nn.Module):
    """A decoder whose head is tied to its embedding; with `checkpointed`, blocks run again in the backward pass."""

    def __init__(
        self, vocabulary: int, length: int, width: int = 32, depth: int = 2, checkpointed: bool = False
    ) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block(width, 4, 0.1) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.drop(self.tokens(tokens) + self.positions)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x))


def two_convolutions(channels: int, filters: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, filters, 3, padding=1, bias=False),
        nn.BatchNorm2d(filters),
        nn.ReLU(inplace=True),
        nn.Conv2d(filters, filters, 3, padding=1, bias=False),
        nn.BatchNorm2d(filters),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Skip connections: an early activation is needed again late, forward and backward."""

    def __init__(self, classes: int, filters: int = 8) -> None:
        super().__init__()
        self.down_1 = two_convolutions(3, filters)
        self.down_2 = two_convolutions(filters, 2 * filters)
        self.bottom = two_convolutions(2 * filters, 4 * filters)
        self.widen_2 = nn.ConvTranspose2d(4 * filters, 2 * filters, 2, stride=2)
        self.up_2 = two_convolutions(4 * filters, 2 * filters)
        self.widen_1 = nn.ConvTranspose2d(2 * filters, filters, 2, stride=2)
        self.up_1 = two_convolutions(2 * filters, filters)
        self.classify = nn.Conv2d(filters, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.down_1(x)
        two = self.down_2(F.max_pool2d(one, 2))
        bottom = self.bottom(F.max_pool2d(two, 2))
        x = self.up_2(torch.cat([two, self.widen_2(bottom)], dim=1))
        x = self.up_1(torch.cat([one, self.widen_1(x)], dim=1))
        return self.classify(x)


class LanguageLSTM(nn.Module):
    def __init__(self, vocabulary: int, width: int = 24) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        # Dropout between two layers: that of nn.LSTM itself was refused on CUDA, for a number read on the host.
        self.first = nn.LSTM(width, width, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.second = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x, _ = self.first(self.tokens(tokens))
        x, _ = self.second(self.dropout(x))
        return self.head(x)


def generator(noise: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(noise, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 20), nn.Tanh())


def discriminator() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 32), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(32, 1))
