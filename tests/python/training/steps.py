"""Trains twice from the same seed, eagerly and compiled, and compares everything that a step may touch, bit by bit.

What is compared: the answers of all steps; and after some steps every parameter, gradient and buffer, the states of
optimizers, scalers and schedulers, and where the random generators stand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from support import assert_same, bits, describe, random_states
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map

import nimble

STEPS = 30
# One call runs ahead and creates state, one is recorded, one is run both ways; a few more may be recorded again.
REPLAYS = 24
# After these steps all state is compared: around the first replays, and far from them.
LOOKED_AT = (0, 1, 2, 3, 4, 9, 19, 29)


def nothing() -> None:
    pass


@dataclass
class Training:
    """One build of a training program. Two builds from the same seed are equal."""

    step: Callable[..., Any]
    batch: Callable[[int], tuple[Tensor, ...]]  # the data of a step, by its number
    state: dict[str, Any]  # modules, and whatever else has a state_dict()
    before: Callable[[], None] = nothing  # what the user's loop does around the step
    after: Callable[[], None] = nothing


@dataclass
class Trace:
    """What a run of steps left behind."""

    answers: list[Any] = field(default_factory=list)
    states: dict[int, dict[str, str]] = field(default_factory=dict)
    step: Callable[..., Any] | None = None


def plain(function: Callable) -> Callable:
    """What eager PyTorch is to nimble.compile."""
    return function


def copied(tree: Any) -> Any:
    return tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, tree)


def fingerprint(value: Any) -> str:
    """Equal for equal bits in an equal layout. Copies of all states of a run would not fit into memory."""
    if not isinstance(value, Tensor):
        return repr(value)
    return f"{describe(value)} {hashlib.sha1(bits(value).numpy()).hexdigest()}"


def fingerprints(state: dict[str, Any]) -> dict[str, str]:
    """Of every tensor and number, by name."""
    found: dict[str, str] = {}
    for owner, part in state.items():
        if isinstance(part, nn.Module):
            for name, parameter in part.named_parameters(remove_duplicate=False):
                found[f"{owner}.{name}"] = fingerprint(parameter)
                found[f"{owner}.{name}.grad"] = fingerprint(parameter.grad)
            for name, buffer in part.named_buffers():
                found[f"{owner}.{name}"] = fingerprint(buffer)
        else:
            leaves, structure = tree_flatten_with_path(part.state_dict())
            found[f"{owner}: structure"] = repr(structure)
            for path, leaf in leaves:
                found[f"{owner}{keystr(path)}"] = fingerprint(leaf)
    for number, generator in enumerate(random_states()):
        found[f"random generator {number}"] = fingerprint(generator)
    return found


def train(
    make: Callable[[], Training], compiler: Callable[[Callable], Callable], steps: int = STEPS
) -> Trace:
    torch.manual_seed(7)
    training = make()
    trace = Trace(step=compiler(training.step))
    at_first = fingerprints(training.state)
    for number in range(steps):
        batch = training.batch(number)
        training.before()
        trace.answers.append(copied(trace.step(*batch)))
        training.after()
        if number in LOOKED_AT or number == steps - 1:
            trace.states[number] = fingerprints(training.state)
    # Two runs that learn nothing, or diverge to NaN at once, would be equal without proving anything.
    assert trace.states[steps - 1] != at_first, "nothing was trained"
    for leaf in torch.utils._pytree.tree_leaves(trace.answers):
        assert not isinstance(leaf, Tensor) or bool(leaf.isfinite().all()), "the training diverges"
    return trace


def differences(actual: dict[str, str], expected: dict[str, str]) -> list[str]:
    return [name for name in expected | actual if actual.get(name) != expected.get(name)]


def assert_same_trace(actual: Trace, expected: Trace) -> None:
    """Fails at the first step that differs, with the names of what does."""
    for number, (answer, eager) in enumerate(zip(actual.answers, expected.answers, strict=True)):
        try:
            assert_same(answer, eager)
        except AssertionError as error:
            raise AssertionError(f"step {number + 1}: the answer is not eager's: {error}") from None
        if number in expected.states:
            differing = differences(actual.states[number], expected.states[number])
            assert not differing, f"after step {number + 1} these are not eager's: {', '.join(differing)}"


def assert_trains_like_eager(
    make: Callable[[], Training], replays: int = REPLAYS, steps: int = STEPS, **options
) -> None:
    """`make` builds the program; at least `replays` of the steps must have been replays."""
    expected = train(make, plain, steps)
    # The default time for measuring is for those who train longer than a test does.
    compiler = lambda function: nimble.compile(function, **{"tune": 0.05, **options})  # noqa: E731
    actual = train(make, compiler, steps)
    assert_same_trace(actual, expected)
    stats = actual.step.stats
    assert stats["replays"] >= replays, f"{stats['replays']} replays only:\n{actual.step.explain()}"


class Compiler:
    """nimble.compile, with a memory of what it made."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def __call__(self, function: Callable, **options) -> Any:
        self.made.append(nimble.compile(function, **{"tune": 0.05, **options}))
        return self.made[-1]

    def replays(self) -> int:
        return sum(compiled.stats["replays"] for compiled in self.made)

    def explain(self) -> str:
        return "\n".join(compiled.explain() for compiled in self.made)


def assert_same_story(story: Callable[[Callable], Any], replays: int = 1) -> Compiler:
    """A story takes a compiler, does something with what it compiles and tells what it saw, as a pytree. It must see
    the same with eager PyTorch and with Nimble, and some of it must have been replayed."""
    torch.manual_seed(7)
    expected = copied(story(plain))
    expected_random = random_states()
    torch.manual_seed(7)
    compiler = Compiler()
    actual = copied(story(compiler))
    assert_same(actual, expected)
    assert_same(random_states(), expected_random)
    assert compiler.replays() >= replays, f"{compiler.replays()} replays only:\n{compiler.explain()}"
    return compiler
