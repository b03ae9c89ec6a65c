"""Tries one operator as a layer of a network, compiled with every rewrite, on fresh inputs and weights."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from nearness import assert_as_near_as_eager, in_double
from operator_outcomes import (
    UNINITIALISED,
    Outcome,
    first_line,
    refused_operator,
    stopped_in_capture,
)
from operator_samples import Call, Operator
from support import assert_within_spread, is_same, random_states, varies
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import nimble


class Layer(nn.Module):
    """Of the operator's tensors the first is the input and the others are weights, so that something can be derived
    from them; and it has neighbours that it may be fused with."""

    def __init__(self, operator: Operator, call: Call) -> None:
        super().__init__()
        self.operator = operator
        leaves, self.spec = tree_flatten((call.args, call.kwargs))
        tensors = [number for number, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self.place, *self.weights = tensors
        self.leaves = [None if number in tensors else leaf for number, leaf in enumerate(leaves)]
        for number in self.weights:
            self.register_buffer(f"weight{number}", leaves[number].clone())
        self.input = leaves[self.place]

    def forward(self, x: Tensor) -> Any:
        leaves = list(self.leaves)
        leaves[self.place] = x.neg().neg() if x.is_floating_point() else x.clone()
        for number in self.weights:
            leaves[number] = getattr(self, f"weight{number}")
        args, kwargs = tree_unflatten(leaves, self.spec)
        return tree_map(activated, self.operator.function(*args, **kwargs))


def activated(result: Any) -> Any:
    is_real = isinstance(result, Tensor) and result.is_floating_point() and result.layout == torch.strided
    return result.relu() if is_real else result


def try_as_layer(operator: Operator, count: int) -> Outcome:
    """Equal means: as near as eager to a run in float64."""
    outcome = Outcome(str(operator))
    if operator.info.name in UNINITIALISED:
        outcome.skipped.append("its values are whatever was in memory")
        return outcome
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for sample in operator.samples(count):
            try:
                compiled, fresh, twin = (
                    Layer(operator, call) for call in (sample.recorded, sample.replayed, sample.twin)
                )
                copied = Layer(operator, Call(*in_double((sample.twin.args, sample.twin.kwargs))))
                expected = run(twin, twin.input)
            except Exception as error:  # no tensor at all, or whatever eager refuses
                outcome.skipped.append(f"eager raises {type(error).__name__}")
                continue
            try:
                exact = run(copied, copied.input)
            except Exception:  # the operator knows no float64
                exact = None
            try:
                try_layer(compiled, fresh, twin, expected, exact, outcome)
            except Exception as error:  # neither an answer nor a refusal that names an operator
                outcome.wrong.append(first_line(error))
    return outcome


def try_layer(layer: Layer, fresh: Layer, twin: Layer, expected: Any, exact: Any, outcome: Outcome) -> None:
    def eager_varies() -> bool:
        return twin.operator.device != "cpu" and varies(lambda: run(twin, twin.input))

    fast = nimble.compile(layer, strict=True, rewrites="default", tune=0)
    try:
        fast.prepare(layer.input)
    except nimble.RecordError as error:
        outcome.refused.append(refused_operator(error))
        return
    except nimble.ValidationError as error:
        if stopped := stopped_in_capture(error):
            outcome.refused.append(f"{stopped}, which a CUDA graph cannot hold")
        elif eager_varies():
            outcome.refused.append("refused by the check: eager varies from run to run")
        else:
            outcome.wrong.append(first_line(error))
        return
    for own, others in zip(layer.buffers(), fresh.buffers(), strict=True):
        own.copy_(others)
    replays = fast.stats["replays"]
    actual = run(fast, fresh.input)
    assert fast.stats["replays"] == replays + 1, "the call was not a replay"
    outcome.rewritten += "rewrite " in fast.explain()
    try:
        # Random numbers are others in float64: there, eager's bits are what is asked for.
        if not is_same(actual, expected):
            assert_as_near_as_eager(actual, expected, exact)
    except AssertionError as error:
        if not eager_varies():
            outcome.wrong.append(first_line(error))
            return
        assert_within_spread(actual, lambda: run(twin, twin.input))
    outcome.equal += 1


def run(function: Any, x: Tensor) -> tuple[Any, list[Tensor]]:
    """The result, and where that left the generators."""
    torch.manual_seed(7)
    result = function(x)
    return result, random_states()
