"""What a workload is: a network that answers, or a step that trains. Each has the same weights and data every time it
is made, and nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nimble.bench.workloads.random_weights import enliven
from nimble.packages import need

Example = tuple[nn.Module, tuple[Tensor, ...]]

CLASSES = 10
BATCHES = 8  # different ones, handed out in turn
PAPER_BATCHES = (32, 64, 128)


@dataclass(frozen=True)
class Inference:
    """A network in eval mode and inputs for it, made for a batch size."""

    name: str
    build: Callable[[int], Example]
    batches: tuple[int, ...] = (1,)

    def make(self, batch: int) -> Example:
        # The caller's random numbers are none of our business.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.build(batch)


@dataclass(frozen=True)
class Training:
    """How to make a network that is trained, and what it is fed with."""

    name: str
    build: Callable[[], nn.Module]
    draw: Callable[[int], tuple[Tensor, Tensor]]
    batches: tuple[int, ...] = PAPER_BATCHES
    # torch.compile draws other random numbers than eager, so that losses cannot be compared closely.
    draws_random_numbers: bool = False


Workload = Inference | Training


class Program:
    """A network, its optimizer and the training step, as anybody would write it: SGD with momentum 0.9, as PyTorch
    chooses to run it (foreach on CUDA); in half precision under autocast."""

    def __init__(self, kind: Training, batch: int, device: str, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(0)
        self.device = device
        self.dtype = dtype
        self.model = kind.build().to(device).train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.9)
        self.batches = [tuple(t.to(device) for t in kind.draw(batch)) for _ in range(BATCHES)]
        torch.manual_seed(1)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        if self.dtype == torch.float32:
            return F.cross_entropy(self.model(x), y)
        with torch.autocast(torch.device(self.device).type, dtype=self.dtype):
            return F.cross_entropy(self.model(x), y)

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def torchvision_network(name: str, **options) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        need("torchvision")
        import torchvision

        return getattr(torchvision.models, name)(**options)

    return build


def picture_network(build: Callable[[], nn.Module], size: int) -> Callable[[int], Example]:
    def make(batch: int) -> Example:
        model = build().eval()
        # Half the size serves as well, at a quarter of the time.
        enliven(model, torch.randn(2, 3, size // 2, size // 2))
        return model, (torch.randn(batch, 3, size, size),)

    return make


def pictures(size: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Pictures and their classes, to train with."""
    return lambda batch: (torch.randn(batch, 3, size, size), torch.randint(CLASSES, (batch,)))
