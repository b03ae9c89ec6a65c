"""Optimizers inside a compiled function: which ones step, with which numbers, and which compute on the host.

An optimizer's step is recorded like everything else, as long as it works on tensors alone. One that reads a number
back (Adam without `capturable` or `fused` asks for its step count), that counts or has hooks, or that is given another
number at every call (a learning rate that a scheduler changes), is left to the host: its step runs eagerly, exactly
where it stood, between two parts of the replay."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from nimble import _C, messages
from nimble.data_reads import SCHEDULER
from nimble.hooks import hooks_around_every_step, mark_as_ours

# A learning rate may be set anew now and then, if each recording is used that often; one that changes again and again
# is worth leaving to the host.
_REPLAYS_WORTH_A_RECORDING = 1000
_CHANGES_BEFORE_LEFT_TO_HOST = 2

# What a GradScaler lends to an optimizer for the time of one step.
_LENT_BY_A_SCALER = ("grad_scale", "found_inf")

_CANNOT_BE_PREPARED = "A function whose optimizer computes on the host cannot be prepared, only called"

Numbers = list[dict[str, Any]]


def numbers_of(optimizer: Optimizer) -> Numbers:
    """What an optimizer is given besides tensors."""
    return [
        {
            key: value
            for key, value in group.items()
            if key != "params" and not isinstance(value, torch.Tensor)
        }
        for group in optimizer.param_groups
    ]


def _counters_of(optimizer: Optimizer) -> dict[tuple[int, str], int | float]:
    """Every number that an optimizer could count in, wherever it keeps it."""
    places = [vars(optimizer), *optimizer.param_groups, *optimizer.state.values()]
    return {
        (id(place), key): value
        for place in places
        if isinstance(place, dict)
        for key, value in place.items()
        if type(value) in (int, float)
    }


def _has_hooks(optimizer: Optimizer) -> bool:
    of_its_own = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    return bool(of_its_own) or bool(hooks_around_every_step())


@dataclass
class Step:
    """One call of an optimizer's step while recording."""

    optimizer: Optimizer
    args: tuple
    kwargs: dict[str, Any]
    numbers: Numbers
    on_host: bool
    lent: dict[str, Any] = field(default_factory=dict)  # by a scaler; a replay writes to these tensors
    counters: dict[tuple[int, str], int | float] = field(default_factory=dict)
    is_over: bool = False

    def run(self) -> None:
        """Exactly what was called, with what was lent."""
        attributes = vars(self.optimizer)
        before = {name: attributes[name] for name in self.lent if name in attributes}
        attributes.update(self.lent)
        try:
            self.optimizer.step(*self.args, **self.kwargs)
        finally:
            for name in self.lent:
                attributes.pop(name, None)
            attributes.update(before)

    def counted(self) -> bool:
        """Whether the step itself changed a number on the host."""
        now = _counters_of(self.optimizer)
        return numbers_of(self.optimizer) != self.numbers or any(
            now.get(place, value) != value for place, value in self.counters.items()
        )

    @property
    def name(self) -> str:
        return f"{type(self.optimizer).__name__}.step() runs eagerly here: it computes on the host"


class StatesBefore:
    """What optimizers held before their first steps, to go back to it. The values of tensors are the engine's matter:
    this is about which ones there were, and about numbers."""

    def __init__(self):
        self._kept: dict[Optimizer, tuple[dict, list[tuple[dict, dict]]]] = {}

    def keep(self, optimizer: Optimizer) -> None:
        if optimizer in self._kept:
            return
        places = [*optimizer.param_groups, *optimizer.state.values()]
        contents = [(place, dict(place)) for place in places if isinstance(place, dict)]
        numbers = {name: value for name, value in vars(optimizer).items() if type(value) in (int, float)}
        self._kept[optimizer] = dict(optimizer.state), [*contents, (vars(optimizer), numbers)]

    def restore(self) -> None:
        for optimizer, (state, contents) in self._kept.items():
            for key in [key for key in optimizer.state if key not in state]:
                del optimizer.state[key]
            optimizer.state.update(state)
            for place, content in contents:
                if place is not vars(optimizer):
                    for key in [key for key in place if key not in content]:
                        del place[key]
                place.update(content)


@contextlib.contextmanager
def _around_steps(
    before: Callable[[Optimizer, tuple, dict], None], after: Callable[[Optimizer], None]
) -> Iterator[None]:
    """Calls these around every step of an optimizer on this thread and its other hooks, but not around steps inside
    steps."""
    thread, depth = threading.get_ident(), 0

    @mark_as_ours
    def pre_hook(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        nonlocal depth
        if threading.get_ident() != thread:
            return
        depth += 1
        if depth == 1:
            before(optimizer, args[1:], kwargs)

    @mark_as_ours
    def post_hook(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        nonlocal depth
        if threading.get_ident() != thread:
            return
        depth -= 1
        if depth == 0:
            after(optimizer)

    first, last = register_optimizer_step_pre_hook(pre_hook), register_optimizer_step_post_hook(post_hook)
    first.hooks_dict_ref().move_to_end(first.id, last=False)
    try:
        yield
    finally:
        first.remove()
        last.remove()


@contextlib.contextmanager
def observed_steps(before: Callable[[Optimizer], None]) -> Iterator[None]:
    """While active, calls `before` with each optimizer that is about to step on this thread."""
    with _around_steps(lambda optimizer, _args, _kwargs: before(optimizer), lambda _optimizer: None):
        yield


class Optimizers:
    """What one compiled function knows of its optimizers from call to call."""

    def __init__(self, replays: Callable[[], int]):
        self._replays = replays  # how often the function was replayed until now
        self._on_host: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._numbers: weakref.WeakKeyDictionary[Optimizer, tuple[Numbers, int]]
        self._numbers = weakref.WeakKeyDictionary()  # and how often they were replayed before
        self._changes: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()

    def leave_to_host(self, optimizer: Optimizer, why: str) -> None:
        if optimizer in self._on_host:
            return
        self._on_host.add(optimizer)
        options = [f"{name}=True" for name in ("fused", "capturable") if name in optimizer.defaults]
        advice = f"use {' or '.join(options)} and " if options else "use "
        messages.log.info(
            "[nimble::record] %s.step() will run eagerly between two parts of the replay: %s. To keep it in the "
            "schedule, %sa learning rate that is a tensor on the parameters' device",
            type(optimizer).__name__,
            why,
            advice,
        )

    def _notice_changes(self, optimizer: Optimizer) -> None:
        numbers, replays = numbers_of(optimizer), self._replays()
        known, replays_before = self._numbers.setdefault(optimizer, (numbers, replays))
        if known == numbers:
            return
        was_worth_it = replays - replays_before >= _REPLAYS_WORTH_A_RECORDING
        self._changes[optimizer] = 0 if was_worth_it else self._changes.get(optimizer, 0) + 1
        if self._changes[optimizer] >= _CHANGES_BEFORE_LEFT_TO_HOST:
            self.leave_to_host(
                optimizer, "the numbers in its param_groups (a learning rate?) change from call to call"
            )
        self._numbers[optimizer] = numbers, replays

    @contextlib.contextmanager
    def recorded(
        self, builder: _C.ProgramBuilder, steps: list[Step], undo: StatesBefore | None = None
    ) -> Iterator[None]:
        """While active, the builder knows which calls belong to a step, and leaves out those of steps on the host.

        With `undo` the run is to leave no trace, so the first thing refused in a step ends it."""
        refused_before = builder.refused()
        settings = {optimizer: numbers_of(optimizer) for optimizer in self._numbers}

        def refuse_changes(optimizer: Optimizer) -> None:
            if settings.setdefault(optimizer, numbers_of(optimizer)) != numbers_of(optimizer):
                builder.refuse(*SCHEDULER, "")

        def before(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
            refuse_changes(optimizer)
            self._notice_changes(optimizer)
            if _has_hooks(optimizer):
                self.leave_to_host(optimizer, "it has hooks, which are Python code")
            on_host = optimizer in self._on_host
            step = Step(optimizer, args, kwargs, numbers_of(optimizer), on_host)
            steps.append(step)
            if on_host:
                _refuse_what_cannot_run_again(builder, step, undo is not None)
                attributes = vars(optimizer)
                step.lent = {name: attributes[name] for name in _LENT_BY_A_SCALER if name in attributes}
            step.counters = _counters_of(optimizer)
            if undo is None:
                builder.begin_step()
            else:
                undo.keep(optimizer)
            if on_host:
                builder.pause()

        def after(optimizer: Optimizer) -> None:
            step = steps[-1]
            if step.on_host:
                builder.resume()
            elif step.counted():
                self.leave_to_host(optimizer, "it counts on the host")
                builder.refuse(
                    f"{type(optimizer).__name__}.step()",
                    "it changes a number on the host, which would stay as it is at each replay",
                    "Count in a tensor",
                    "",
                )
            elif builder.refused() and not refused_before:
                self.leave_to_host(optimizer, "it reads a tensor's value on the host")
            settings[optimizer] = numbers_of(optimizer)
            step.is_over = True
            builder.end_step()

        try:
            with _around_steps(before, after):
                yield
        except BaseException as error:
            interrupted = [step for step in steps if not step.is_over]
            _take_back_what_was_lent(interrupted)
            if undo is not None and interrupted and isinstance(error, _C.RecordError):
                raise _C.RecordError(f"{error}. {_CANNOT_BE_PREPARED}") from None
            raise
        for step in steps:
            refuse_changes(step.optimizer)
        if not all(step.is_over for step in steps):
            builder.refuse(
                "an exception in an optimizer's step",
                "the function caught it, and went on with a step that is not over",
                "Let it leave the compiled function",
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


def _refuse_what_cannot_run_again(builder: _C.ProgramBuilder, step: Step, is_to_be_undone: bool) -> None:
    name = f"{type(step.optimizer).__name__}.step()"
    if is_to_be_undone:
        builder.refuse(
            name, "it computes on the host, where nothing can be undone", "Call the function instead", ""
        )
    if any(argument is not None for argument in (*step.args, *step.kwargs.values())):
        builder.refuse(
            name + " with a closure or other arguments",
            "it computes on the host, where a replay would call it with those of the recording",
            "Compute the loss and its gradients before the step",
            "",
        )


def _take_back_what_was_lent(steps: list[Step]) -> None:
    """A GradScaler leaves it to an optimizer whose step raised, and would multiply the next scale by it."""
    for step in steps:
        for name in _LENT_BY_A_SCALER:
            vars(step.optimizer).pop(name, None)
