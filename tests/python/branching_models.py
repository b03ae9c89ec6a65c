"""Models with much to do side by side."""

from __future__ import annotations

import torch
from nimble.bench.workloads.nasnet import NASNetA, NASNetConfig
from torch import nn


class Branches(nn.Module):
    """Six branches of different lengths from one input, joined by a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(*[nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()) for _ in range(length)])
            for length in range(1, 7)
        )

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def small_nasnet() -> nn.Module:
    return NASNetA(NASNetConfig(1, 96, stem_filters=8, num_classes=7, imagenet_stem=False))
