"""`torch.compile(model, backend="nimble")`: Dynamo finds the graph, Nimble runs it."""

from collections.abc import Callable

import torch

from nimble.compile import CompiledFunction
from nimble.settings import compile_options


def _is_static(value: object) -> bool:
    """Parameters and buffers that Dynamo turned into inputs: they stay where they are from call to call."""
    return (
        isinstance(value, torch.nn.Parameter) or getattr(value, "_dynamo_static_input_type", None) is not None
    )


def backend(graph: torch.fx.GraphModule, example_inputs: list, **options) -> Callable:
    static = [value for value in example_inputs if isinstance(value, torch.Tensor) and _is_static(value)]
    return CompiledFunction(graph.forward, compile_options(**(options.get("options") or {})), static)
