"""The training step that everybody writes, in a small form, and data for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer


def small_model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def momentum(model: nn.Module, lr: float = 0.1) -> SGD:
    return SGD(model.parameters(), lr=lr, momentum=0.9)


def batches(
    count: int, size: int = 5, first: int = 0, device: torch.device | str = "cpu"
) -> Iterator[tuple[Tensor, Tensor]]:
    """The same ones every time, whatever was drawn from the default generator."""
    for number in range(first, first + count):
        source = torch.Generator().manual_seed(number)
        x, y = torch.randn(size, 4, generator=source), torch.randint(3, (size,), generator=source)
        yield x.to(device), y.to(device)


def step_of(
    model: nn.Module, optimizer: Optimizer, set_to_none: bool = True
) -> Callable[[Tensor, Tensor], Tensor]:
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def ordinary_loop(
    model: nn.Module,
    fast: Callable[[Tensor], Tensor],
    optimizer: Optimizer,
    batches: Iterable[tuple[Tensor, Tensor]],
) -> list:
    """Trains `model` through `fast`, which is the model itself or what was compiled of it; losses and gradients."""
    seen = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(x), y)
        loss.backward()
        optimizer.step()
        seen += [loss, gradients(model)]
    return seen


def step_without_labels(model: nn.Module, optimizer: Optimizer) -> Callable[[Tensor], Tensor]:
    """Whatever the model gives shall become zero."""

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [None if p.grad is None else p.grad.detach().clone() for p in model.parameters()]


def weights(model: nn.Module) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in model.state_dict().values()]
