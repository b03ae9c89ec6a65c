"""Optimizers inside a compiled function: which ones step, with which numbers, and which compute on the host.

An optimizer's step is recorded like everything else, as long as it works on tensors alone. One that reads a number
back (Adam without `capturable` or `fused` asks for its step count), or is given another number at every call (a
learning rate that a scheduler changes), is left to the host: its step runs eagerly, exactly where it stood, between two
parts of the replay."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from nimble import _C, messages

# A learning rate may be set anew now and then; one that changes again and again is worth leaving to the host.
_CHANGES_BEFORE_LEFT_TO_HOST = 2


def numbers_of(optimizer: Optimizer) -> list[dict[str, Any]]:
    """What an optimizer is given besides tensors."""
    return [
        {
            key: value
            for key, value in group.items()
            if key != "params" and not isinstance(value, torch.Tensor)
        }
        for group in optimizer.param_groups
    ]


@dataclass
class Step:
    """One call of an optimizer's step while recording."""

    optimizer: Optimizer
    args: tuple
    kwargs: dict[str, Any]
    numbers: list[dict[str, Any]]
    on_host: bool

    def run(self) -> None:
        self.optimizer.step(*self.args, **self.kwargs)

    @property
    def name(self) -> str:
        return f"{type(self.optimizer).__name__}.step() runs eagerly here: it computes on the host"


@contextlib.contextmanager
def _around_steps(
    before: Callable[[Optimizer, tuple, dict], None], after: Callable[[Optimizer], None]
) -> Iterator[None]:
    """Calls these around every step of an optimizer on this thread, but not around steps inside steps."""
    thread, depth = threading.get_ident(), 0

    def pre_hook(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        nonlocal depth
        if threading.get_ident() != thread:
            return
        depth += 1
        if depth == 1:
            before(optimizer, args[1:], kwargs)

    def post_hook(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        nonlocal depth
        if threading.get_ident() != thread:
            return
        depth -= 1
        if depth == 0:
            after(optimizer)

    handles = register_optimizer_step_pre_hook(pre_hook), register_optimizer_step_post_hook(post_hook)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Optimizers:
    """What one compiled function knows of its optimizers from call to call."""

    def __init__(self):
        self._on_host: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._numbers: weakref.WeakKeyDictionary[Optimizer, list] = weakref.WeakKeyDictionary()
        self._changes: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()

    def leave_to_host(self, optimizer: Optimizer, why: str) -> None:
        if optimizer in self._on_host:
            return
        self._on_host.add(optimizer)
        messages.log.info(
            "[nimble::record] %s.step() will run eagerly between two parts of the replay: %s. To keep it in the "
            "schedule, use fused=True or capturable=True and a learning rate that is a tensor on the parameters' device",
            type(optimizer).__name__,
            why,
        )

    def _notice_changes(self, optimizer: Optimizer) -> None:
        numbers = numbers_of(optimizer)
        if self._numbers.get(optimizer, numbers) != numbers:
            self._changes[optimizer] = self._changes.get(optimizer, 0) + 1
            if self._changes[optimizer] >= _CHANGES_BEFORE_LEFT_TO_HOST:
                self.leave_to_host(
                    optimizer, "the numbers in its param_groups (a learning rate?) change from call to call"
                )
        self._numbers[optimizer] = numbers

    @contextlib.contextmanager
    def recorded(self, builder: _C.ProgramBuilder, steps: list[Step]) -> Iterator[None]:
        """While active, the builder knows which calls belong to a step, and leaves out those of steps on the host."""

        def before(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
            self._notice_changes(optimizer)
            on_host = optimizer in self._on_host
            steps.append(Step(optimizer, args, kwargs, numbers_of(optimizer), on_host))
            builder.begin_step()
            if on_host:
                builder.pause()

        def after(optimizer: Optimizer) -> None:
            if steps[-1].on_host:
                builder.resume()
            elif builder.refused() and not refused_before:
                self.leave_to_host(optimizer, "it reads a tensor's value on the host")
            builder.end_step()

        refused_before = builder.refused()
        with _around_steps(before, after):
            yield
        if any(numbers_of(step.optimizer) != step.numbers for step in steps):
            builder.refuse(
                "a learning-rate scheduler inside the function",
                "what it changes on the host would stay as it is at each replay",
                "Call the scheduler's step() outside the compiled function",
                "",
            )

    @contextlib.contextmanager
    def observed(
        self, before_pause: Callable[[int], None], after_pause: Callable[[int], None]
    ) -> Iterator[None]:
        """While active, tells when a step on the host begins and ends, which are numbered from zero."""
        pauses = 0

        def before(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
            if optimizer in self._on_host:
                before_pause(pauses)

        def after(optimizer: Optimizer) -> None:
            nonlocal pauses
            if optimizer in self._on_host:
                after_pause(pauses)
                pauses += 1

        with _around_steps(before, after):
            yield
