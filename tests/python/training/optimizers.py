"""How parameters are updated, by name: PyTorch's optimizers in their several implementations, and two of our own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop


class SignMomentum(Optimizer):
    """Written by a user, tensors only: nothing in its step changes from call to call but tensors."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 1e-3, beta: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "beta": beta})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["average"] = torch.zeros_like(p)
                state["average"].lerp_(p.grad, 1 - group["beta"])
                p.sub_(group["lr"] * state["average"].sign())


class CountingSGD(Optimizer):
    """Written by a user, counts on the host: the size of its step is another number at every call."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 1e-2) -> None:
        super().__init__(params, {"lr": lr, "calls": 0})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            group["calls"] += 1
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"] / group["calls"] ** 0.5)


@dataclass(frozen=True)
class Recipe:
    cls: type[Optimizer]
    lr: float
    options: dict[str, Any] = field(default_factory=dict)
    tensor_lr: bool = True  # whether it takes a learning rate that is a tensor
    devices: tuple[str, ...] = ("cpu", "cuda")
    host: bool = False  # whether its step computes on the host, with numbers that change from call to call

    @property
    def scales(self) -> bool:
        """Whether it unscales gradients itself, so that a GradScaler need not look at them on the host."""
        return bool(self.options.get("fused")) and self.cls is not Adagrad

    def make(self, params: Iterable[nn.Parameter], lr: float | torch.Tensor | None = None) -> Optimizer:
        return self.cls(params, lr=self.lr if lr is None else lr, **self.options)


LOOP, FOREACH, FUSED = {"foreach": False}, {"foreach": True}, {"fused": True}
CAPTURABLE = {"capturable": True}
MOMENTUM = {"momentum": 0.9}
NESTEROV = MOMENTUM | {"nesterov": True}
DECAY = {"weight_decay": 0.05}
CUDA = ("cuda",)

OPTIMIZERS: dict[str, Recipe] = {
    "sgd": Recipe(SGD, 0.02, LOOP),
    "sgd_foreach": Recipe(SGD, 0.02, FOREACH),
    "momentum": Recipe(SGD, 0.01, LOOP | MOMENTUM),
    "momentum_foreach": Recipe(SGD, 0.01, FOREACH | MOMENTUM),
    "momentum_fused": Recipe(SGD, 0.01, FUSED | MOMENTUM),
    "nesterov": Recipe(SGD, 0.01, LOOP | NESTEROV),
    "nesterov_foreach": Recipe(SGD, 0.01, FOREACH | NESTEROV),
    "nesterov_fused": Recipe(SGD, 0.01, FUSED | NESTEROV),
    "decay": Recipe(SGD, 0.01, LOOP | MOMENTUM | DECAY),
    "decay_foreach": Recipe(SGD, 0.01, FOREACH | MOMENTUM | DECAY),
    "decay_fused": Recipe(SGD, 1e-3, FUSED | DECAY),  # with more, half precision overflows in eager too
    "adam": Recipe(Adam, 1e-3, LOOP, host=True),
    "adam_foreach": Recipe(Adam, 1e-3, FOREACH, tensor_lr=False, host=True),
    "adam_fused": Recipe(Adam, 1e-3, FUSED),
    "adamw": Recipe(AdamW, 1e-3, LOOP | {"weight_decay": 0.1}, host=True),
    "adamw_foreach": Recipe(AdamW, 1e-3, FOREACH | {"amsgrad": True}, tensor_lr=False, host=True),
    "adamw_fused": Recipe(AdamW, 1e-3, FUSED | {"amsgrad": True}),
    "rmsprop": Recipe(RMSprop, 1e-3, LOOP | {"centered": True}),
    "rmsprop_foreach": Recipe(RMSprop, 1e-3, FOREACH | MOMENTUM),
    "adagrad": Recipe(Adagrad, 1e-2, LOOP | {"lr_decay": 0.1}, host=True),
    "adagrad_foreach": Recipe(Adagrad, 1e-2, FOREACH, host=True),
    "adagrad_fused": Recipe(Adagrad, 1e-2, FUSED, devices=("cpu",)),
    "adam_capturable": Recipe(Adam, 1e-3, LOOP | CAPTURABLE, devices=CUDA),
    "adam_foreach_capturable": Recipe(Adam, 1e-3, FOREACH | CAPTURABLE, devices=CUDA),
    "adam_fused_capturable": Recipe(Adam, 1e-3, FUSED | CAPTURABLE | DECAY, devices=CUDA),
    "adamw_capturable": Recipe(AdamW, 1e-3, LOOP | CAPTURABLE | {"amsgrad": True}, devices=CUDA),
    "adamw_foreach_capturable": Recipe(AdamW, 1e-3, FOREACH | CAPTURABLE, devices=CUDA),
    "adamw_fused_capturable": Recipe(AdamW, 1e-3, FUSED | CAPTURABLE, devices=CUDA),
    "rmsprop_capturable": Recipe(RMSprop, 1e-3, LOOP | CAPTURABLE | MOMENTUM, devices=CUDA),
    "rmsprop_foreach_capturable": Recipe(RMSprop, 1e-3, FOREACH | CAPTURABLE, devices=CUDA),
    "own": Recipe(SignMomentum, 1e-3),
    "own_counting": Recipe(CountingSGD, 1e-2, host=True),
}
