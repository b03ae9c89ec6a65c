"""Hardly any work: what is left is the cost of a call."""

import torch
from torch import Tensor, nn

from nimble.bench.workloads.kinds import CLASSES, Example, Inference, Training


class AddOne(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def add_one(batch: int) -> Example:
    return AddOne().eval(), (torch.zeros(batch),)


def small_perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def points(batch: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 8), torch.randint(CLASSES, (batch,))


WORKLOADS = [
    Inference("add_one", add_one),
    Training("training/small_perceptron", small_perceptron, points),
]
