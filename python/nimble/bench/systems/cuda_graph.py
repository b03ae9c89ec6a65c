"""What torch.cuda.graph gives: the same kernels, captured on one stream."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from nimble.bench.systems.kinds import Inputs, Ready, System
from nimble.bench.workloads.kinds import Program


class Captured:
    """A forward pass in a graph. `pool_bytes` is what the graph reserves that is alone in its process."""

    def __init__(self, model: nn.Module, inputs: Inputs) -> None:
        torch.cuda.synchronize()
        # PyTorch keeps a cuBLAS workspace for the stream of captures, so only the first graph's pool would hold one.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        self.given = inputs
        self.inputs = tuple(tensor.clone() for tensor in inputs)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = model(*self.inputs)
        torch.cuda.synchronize()
        self.pool_bytes = torch.cuda.memory_reserved() - before

    def replay(self) -> object:
        self.graph.replay()
        return self.outputs

    def replay_with_copies(self) -> object:
        """As safe as eager: inputs copied in, outputs the caller's own."""
        for mine, given in zip(self.inputs, self.given, strict=True):
            mine.copy_(given)
        self.graph.replay()
        return pytree.tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, self.outputs)

    def facts(self) -> dict:
        return {"owned_bytes": self.pool_bytes}


def infer(model: nn.Module, inputs: Inputs) -> Ready:
    captured = Captured(model, inputs)
    return Ready(captured.replay, captured.facts)


def infer_with_copies(model: nn.Module, inputs: Inputs) -> Ready:
    captured = Captured(model, inputs)
    return Ready(captured.replay_with_copies, captured.facts)


class CapturedStep:
    """The whole step in one graph, as PyTorch's documentation does it: a few steps on a side stream, then a capture.
    Data is copied in, and the loss is the caller's own."""

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


def train(program: Program) -> Ready:
    return Ready(CapturedStep(program))


SYSTEMS = [
    System("cuda-graph", "CUDA graph, one stream", infer, train, devices=("cuda",)),
    System(
        "cuda-graph-copies",
        "CUDA graph, one stream, with copies",
        infer_with_copies,
        devices=("cuda",),
    ),
]
