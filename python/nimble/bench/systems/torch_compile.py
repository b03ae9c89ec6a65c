"""torch.compile in its modes. In training, around the forward pass and the loss with the optimizer outside, or around
the whole step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nimble.bench.systems.kinds import Inputs, Ready, System
from nimble.bench.workloads.kinds import Program


def infer(**settings) -> Callable[[nn.Module, Inputs], Ready]:
    def prepare(model: nn.Module, inputs: Inputs) -> Ready:
        fast = torch.compile(model, **settings)

        def call() -> object:
            torch.compiler.cudagraph_mark_step_begin()
            return fast(*inputs)

        for _ in range(3):  # the first compiles, the next ones warm up and capture its CUDA graphs
            call()
        return Ready(call)

    return prepare


def train_outside(mode: str) -> Callable[[Program], Ready]:
    def prepare(program: Program) -> Ready:
        loss_of = torch.compile(program.loss, mode=mode)

        def step(x: Tensor, y: Tensor) -> Tensor:
            torch.compiler.cudagraph_mark_step_begin()
            program.optimizer.zero_grad()
            loss = loss_of(x, y)
            loss.backward()
            program.optimizer.step()
            return loss.detach().clone()

        return Ready(step)

    return prepare


def train_whole(mode: str) -> Callable[[Program], Ready]:
    def prepare(program: Program) -> Ready:
        compiled = torch.compile(program.step, mode=mode)

        def step(x: Tensor, y: Tensor) -> Tensor:
            torch.compiler.cudagraph_mark_step_begin()
            return compiled(x, y).clone()

        return Ready(step)

    return prepare


def system(
    name: str, title: str, mode: str, trains: bool, devices: tuple[str, ...], **limits: float
) -> System:
    train = train_outside(mode) if trains else None
    return System(name, title, infer(mode=mode), train, own_process=True, devices=devices, **limits)


EVERYWHERE, ON_CPUS, ON_GPUS = ("cpu", "cuda"), ("cpu",), ("cuda",)

SYSTEMS = [
    system("torch-compile", "torch.compile", "default", True, EVERYWHERE),
    # Its overhead is that of launching kernels; on a CPU the mode does nothing.
    system(
        "torch-compile-reduce-overhead", "torch.compile reduce-overhead", "reduce-overhead", True, ON_GPUS
    ),
    system(
        "torch-compile-max-autotune",
        "torch.compile max-autotune",
        "max-autotune",
        False,
        EVERYWHERE,
        prepare_limit=600.0,
    ),
    # Weights are constants to it: batch norms fold, and oneDNN's weights are packed once. On a GPU it does less.
    System(
        "torch-compile-freezing",
        "torch.compile, weights frozen",
        infer(options={"freezing": True}),
        own_process=True,
        devices=ON_CPUS,
    ),
    System(
        "torch-compile-whole-step",
        "torch.compile, whole step",
        train=train_whole("default"),
        own_process=True,
    ),
    System(
        "torch-compile-reduce-overhead-whole-step",
        "torch.compile reduce-overhead, whole step",
        train=train_whole("reduce-overhead"),
        own_process=True,
        devices=ON_GPUS,
    ),
]
