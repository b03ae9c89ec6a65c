"""Everything a page or a trace shows, as one plain value."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from nimble import _C
from nimble.optimizers import StatesBefore, observed_steps
from nimble.places import modules_reached_by, outside_tensors
from nimble.report.eager import eager_timeline
from nimble.report.machine import device_name, versions

if TYPE_CHECKING:
    from nimble.compile import CompiledFunction

_NOT_UNDOABLE = (
    "an optimizer computes on the host, where nothing can be undone, so the step was not run eagerly"
)


def _title(function: Callable) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


def _with_backward(function: Callable, args: tuple, kwargs: dict, inputs: list[torch.Tensor]) -> None:
    """One forward and backward pass that leaves all gradients alone."""
    results = torch.utils._pytree.tree_leaves(function(*args, **kwargs))
    results = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    leaves = [*outside_tensors(modules_reached_by(function)), *inputs]
    leaves = [leaf for leaf in leaves if leaf.requires_grad]
    torch.autograd.grad(results, leaves, [torch.ones_like(r) for r in results], allow_unused=True)


class _AttributesBefore:
    """Which attributes and buffers modules had: a forward may set some."""

    def __init__(self, modules: list[torch.nn.Module]):
        places = [values for module in modules for values in (vars(module), module._buffers)]
        self._held = [(values, dict(values)) for values in places]

    def restore(self) -> None:
        for values, before in self._held:
            for name in [name for name in values if name not in before]:
                del values[name]
            for name, value in before.items():
                if values.get(name) is not value:
                    values[name] = value


@contextlib.contextmanager
def _undone(state: _C.StateBefore, modules: list[torch.nn.Module]) -> Iterator[None]:
    optimizers, attributes = StatesBefore(), _AttributesBefore(modules)
    try:
        with observed_steps(optimizers.keep):
            yield
    finally:
        attributes.restore()
        optimizers.restore()
        state.restore()


def measured_document(compiled: CompiledFunction, args: tuple, kwargs: dict, *, eager: bool = True) -> dict:
    """Measures the schedule that answers such a call, and then the function itself. Leaves all state as it was."""
    function = compiled._function
    inputs, variant = compiled._arguments.flatten(args, kwargs)
    document = json.loads(compiled._compiled.report(inputs, variant))
    device = document["parts"][0]["device"] if document["parts"] else "cpu"
    document |= {
        "title": _title(function),
        "device": device,
        "device_name": device_name(device),
        "versions": versions(device),
        "stats": compiled.stats,
        "eager": None,
    }
    if not document["parts"] or not eager:
        return document
    state = compiled._compiled.state_before(inputs, variant)
    if state is None:
        document["eager"] = {"left_out": _NOT_UNDOABLE}
        return document
    goes_back = any(part["name"] == "backward" for part in document["parts"])

    def run() -> None:
        if goes_back:
            _with_backward(function, args, kwargs, inputs)
        else:
            function(*args, **kwargs)

    with _undone(state, modules_reached_by(function)):
        document["eager"] = eager_timeline(run, device)
    return document
