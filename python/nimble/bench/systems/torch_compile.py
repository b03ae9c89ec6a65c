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


def infer_by_templates(mode: str) -> Callable[[nn.Module, Inputs], Ready]:
    """Convolutions by templates of its own, too. Whether those may use TF32 they ask of another switch than cuDNN,
    which is off by default: without it each is written out in float32 arithmetic, takes minutes to compile, and never
    wins. Products are convolutions of one pixel to it, so that this switch is for both."""
    prepare_as_usual = infer(mode=mode)

    def prepare(model: nn.Module, inputs: Inputs) -> Ready:
        if any(tensor.is_cuda for tensor in inputs):
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.fp32_precision = "tf32"
        return prepare_as_usual(model, inputs)

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


def system(name: str, title: str, mode: str, devices: tuple[str, ...]) -> System:
    return System(name, title, infer(mode=mode), train_outside(mode), own_process=True, devices=devices)


EVERYWHERE, ON_CPUS, ON_GPUS = ("cpu", "cuda"), ("cpu",), ("cuda",)

SYSTEMS = [
    system("torch-compile", "torch.compile", "default", EVERYWHERE),
    # Its overhead is that of launching kernels; on a CPU the mode does nothing.
    system("torch-compile-reduce-overhead", "torch.compile reduce-overhead", "reduce-overhead", ON_GPUS),
    System(
        "torch-compile-max-autotune",
        "torch.compile max-autotune",
        infer_by_templates("max-autotune"),
        own_process=True,
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
