"""Who runs the step: each system takes a program and gives a function that trains, from its first call on.

What a system needs for preparation happens in its first calls, which train as well, so that the losses of all systems
can be compared step by step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import nimble
from benchmarks.train.programs import Program

Step = Callable[[Tensor, Tensor], Tensor]


def eager(program: Program) -> Step:
    return program.step


class OneStreamGraph:
    """The whole step in one CUDA graph, as PyTorch's documentation does it: a few steps on a side stream, then a
    capture. Data is copied in, and the loss is the caller's own."""

    WARM_UP = 3

    def __init__(self, program: Program) -> None:
        self.program = program
        self.calls = 0
        self.side_stream = torch.cuda.Stream()
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        if self.calls <= self.WARM_UP:
            return self.warm_up(x, y)
        if self.graph is None:
            self.capture(x, y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.loss.clone()

    def warm_up(self, x: Tensor, y: Tensor) -> Tensor:
        self.side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side_stream):
            loss = self.program.step(x, y)
        torch.cuda.current_stream().wait_stream(self.side_stream)
        return loss

    def capture(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x.clone(), y.clone()
        self.program.optimizer.zero_grad(set_to_none=True)  # so that gradients lie in the graph's own memory
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.program.step(self.x, self.y)


def nimble_step(program: Program) -> Step:
    return nimble.compile(program.step)


def compiled_loss(mode: str) -> Callable[[Program], Step]:
    """torch.compile around the forward pass and the loss; the optimizer outside."""

    def make(program: Program) -> Step:
        loss_of = torch.compile(program.loss, mode=mode)

        def step(x: Tensor, y: Tensor) -> Tensor:
            torch.compiler.cudagraph_mark_step_begin()
            program.optimizer.zero_grad()
            loss = loss_of(x, y)
            loss.backward()
            program.optimizer.step()
            return loss.detach().clone()

        return step

    return make


def compiled_step(mode: str) -> Callable[[Program], Step]:
    """torch.compile around everything, the optimizer too."""

    def make(program: Program) -> Step:
        compiled = torch.compile(program.step, mode=mode)

        def step(x: Tensor, y: Tensor) -> Tensor:
            torch.compiler.cudagraph_mark_step_begin()
            return compiled(x, y).clone()

        return step

    return make


# In one process, timed in turn. Their losses must be eager's to the last bit.
EXACT: dict[str, Callable[[Program], Step]] = {
    "eager": eager,
    "CUDA graph, one stream": OneStreamGraph,
    "Nimble": nimble_step,
}
# Each in a process of its own, which can be stopped, timed in turn with eager there. Losses close to eager's.
COMPILED: dict[str, Callable[[Program], Step]] = {
    "torch.compile": compiled_loss("default"),
    "torch.compile, whole step": compiled_step("default"),
    "torch.compile reduce-overhead": compiled_loss("reduce-overhead"),
    "torch.compile reduce-overhead, whole step": compiled_step("reduce-overhead"),
}
