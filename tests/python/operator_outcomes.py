"""Tries one operator: records a sample, replays it on fresh values and compares with eager."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from operator_samples import Call, Operator, Sample
from support import assert_same, assert_within_spread, describe, is_same, random_states, varies
from torch import Tensor
from torch.utils._pytree import tree_map

import nimble

# The values of these are whatever was in memory: only shape, strides and type can be compared.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}


# Asked of eager only where a replay's answer is another one: a 3-d transposed convolution gives its usual bits 96 times
# of 100, so a few runs show nothing.
EAGER_RUNS = 200


@dataclass
class Outcome:
    """What came of an operator's samples. Wrong must stay empty."""

    operator: str
    equal: int = 0
    rewritten: int = 0  # how many of these a rewrite changed
    refused: list[str] = field(default_factory=list)  # the operator that each refusal named
    skipped: list[str] = field(default_factory=list)  # why
    wrong: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.wrong:
            return "wrong"
        if self.equal:
            return "equal, partly refused" if self.refused else "equal"
        return "refused" if self.refused else "skipped"

    @property
    def note(self) -> str:
        return "; ".join(sorted(set(self.wrong or self.refused + self.skipped)))


def try_operator(operator: Operator, count: int) -> Outcome:
    outcome = Outcome(str(operator))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        samples = operator.samples(count)
        if not samples:
            outcome.skipped.append("no two draws of its samples have the same shapes")
        for sample in samples:
            try:
                try_sample(operator, sample, outcome)
            except Exception as error:  # neither an answer nor a refusal that names an operator
                outcome.wrong.append(first_line(error))
    return outcome


def try_sample(operator: Operator, sample: Sample, outcome: Outcome) -> None:
    try:
        before = copied(sample.twin)
        expected = run(operator.function, sample.twin)
    except Exception as error:  # whatever it is, it is eager's
        outcome.skipped.append(f"eager raises {type(error).__name__}")
        return

    # A function of its own, so that no two samples share what is compiled.
    def function(*args: Any, **kwargs: Any) -> Any:
        return operator.function(*args, **kwargs)

    fast = nimble.compile(function, strict=True)
    try:
        fast.prepare(*sample.recorded.args, **sample.recorded.kwargs)
    except nimble.RecordError as error:
        outcome.refused.append(refused_operator(error))
        return
    except nimble.ValidationError as error:
        if stopped := stopped_in_capture(error):
            outcome.refused.append(f"{stopped}, which a CUDA graph cannot hold")
        elif eager_varies(operator, sample.recorded):
            outcome.refused.append("refused by the check: eager varies from run to run")
        else:
            outcome.wrong.append(first_line(error))
        return
    replays = fast.stats["replays"]
    try:
        actual = run(fast, sample.replayed)
        if operator.info.name in UNINITIALISED:
            actual, expected = forget_values(actual), forget_values(expected)
        assert fast.stats["replays"] == replays + 1, "the call was not a replay"
        if not is_same(actual, expected) and eager_varies(operator, before):
            assert_within_spread(actual[0], lambda: run(operator.function, copied(before))[0], EAGER_RUNS)
        else:
            assert_same(actual, expected)
    except (AssertionError, nimble.Error) as error:
        outcome.wrong.append(first_line(error))
    else:
        outcome.equal += 1


def run(function: Callable[..., Any], call: Call) -> tuple[Any, Any, list[Tensor]]:
    """All that a caller can see of a call: its result, its arguments afterwards, the generators' states."""
    torch.manual_seed(7)
    result = function(*call.args, **call.kwargs)
    return result, (call.args, call.kwargs), random_states()


def eager_varies(operator: Operator, call: Call) -> bool:
    """On the GPU some kernels add in any order; on the CPU none does."""
    if operator.device == "cpu" or operator.info.name in UNINITIALISED:
        return False
    return varies(lambda: run(operator.function, copied(call))[0], EAGER_RUNS)


def copied(call: Call) -> Call:
    """Arguments that an operator in place may write to."""
    copies = tree_map(
        lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, (call.args, call.kwargs)
    )
    return Call(*copies)


def forget_values(seen: Any) -> Any:
    return tree_map(lambda leaf: describe(leaf) if isinstance(leaf, Tensor) else leaf, seen)


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def refused_operator(error: nimble.RecordError) -> str:
    if "a result lies on the CPU" in str(error):
        return "a result on the CPU"
    name = re.search(r"\[nimble::record\] (.+?) cannot be replayed", str(error))
    assert name, f"a refusal that names no operator: {error}"
    return name[1]


def stopped_in_capture(error: nimble.Error) -> str | None:
    """The operator that waited for the GPU or did something else that ends a capture."""
    name = re.search(
        r"\[nimble::cuda\] ([\w:]+)#\d+.*(?:does something that a CUDA graph|captur)", str(error), re.DOTALL
    )
    if not name:
        return None
    return name[1] if "::" in name[1] else f"aten::{name[1]}"
