"""Notices what cannot be replayed and calls no operator: what reads a tensor's data (printing, tolist, numpy and their
like), hooks on gradients, which run where nobody sees them, and what counts on the host: schedulers of learning rates,
and seeds. Here too, functions that would take another path are exchanged for the time of a recording.

A TorchFunctionMode would see the reads too, but PyTorch takes other paths (attention, for one) while any is active."""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from nimble import _C
from nimble.eager_paths import EXCHANGED


@dataclass(frozen=True)
class _Refused:
    """A function that is refused where it is called, and why."""

    owner: Any
    name: str
    what: str
    why: str
    advice: str
    reads: bool = False  # its first argument, which may be a constant


def _reads(name: str, what: str) -> _Refused:
    advice = "Do it outside the compiled function, on its results"
    return _Refused(torch.Tensor, name, what, "it hands tensor data to the host", advice, reads=True)


def _hook(name: str) -> _Refused:
    why = "the hook is Python code that runs in backward()"
    advice = "Use torch.autograd.Function, or work on gradients after backward()"
    return _Refused(torch.Tensor, name, f"Tensor.{name}()", why, advice)


def _seed(owner: Any, name: str) -> _Refused:
    what = "a random generator that is seeded inside the function"
    why = "a replay goes on with the generator's sequence"
    return _Refused(owner, name, what, why, "Seed it before the call")


_ALWAYS = (
    _reads("__repr__", "printing a tensor"),
    _reads("__format__", "formatting a tensor"),
    _reads("tolist", "Tensor.tolist()"),
    _reads("numpy", "Tensor.numpy()"),
    _reads("__array__", "turning a tensor into an array"),
    _reads("data_ptr", "Tensor.data_ptr()"),
    _reads("__dlpack__", "Tensor.__dlpack__()"),
    _hook("register_hook"),
    _hook("register_post_accumulate_grad_hook"),
    # What torch.manual_seed calls, which others wrap and import under other names.
    _seed(torch.random, "_manual_seed_impl"),
    *(_seed(module, "seed") for module in (torch, torch.random)),
    *(
        _seed(module, name)
        for module in (torch.cuda, torch.cuda.random)
        for name in ("manual_seed", "manual_seed_all", "seed", "seed_all")
    ),
)


# What is refused, why, and what to do instead.
SCHEDULER = (
    "a learning-rate scheduler inside the function",
    "what it changes on the host would stay as it is at each replay",
    "Call the scheduler's step() outside the compiled function",
)


def _schedulers(cls: type = LRScheduler) -> Iterator[_Refused]:
    """Of every class that there is by now."""
    if isinstance(vars(cls).get("step"), types.FunctionType):
        yield _Refused(cls, "step", *SCHEDULER)
    for derived in cls.__subclasses__():
        yield from _schedulers(derived)


_watching = threading.local()  # .builder and .where on threads that record
_lock = threading.Lock()
_recordings = 0
_originals: list[tuple[Any, str, Callable | None]] = []  # None: inherited, so taken away again


def _watched(refused: _Refused, original: Callable) -> Callable:
    @functools.wraps(original)
    def call(*args, **kwargs):
        builder = getattr(_watching, "builder", None)
        if builder is not None and not builder.refused():
            is_constant = refused.reads and builder.is_constant(args[0])
            if not is_constant:
                builder.refuse(refused.what, refused.why, refused.advice, _watching.where())
        return original(*args, **kwargs)

    return call


def _on_this_thread(exchanged: Callable, original: Callable) -> Callable:
    @functools.wraps(original)
    def call(*args, **kwargs):
        watched = getattr(_watching, "builder", None) is not None
        return (exchanged if watched else original)(*args, **kwargs)

    return call


def _install() -> None:
    for refused in {(id(r.owner), r.name): r for r in (*_ALWAYS, *_schedulers())}.values():
        _originals.append((refused.owner, refused.name, vars(refused.owner).get(refused.name)))
        setattr(refused.owner, refused.name, _watched(refused, getattr(refused.owner, refused.name)))
    for owner, name, exchange in EXCHANGED:
        original = getattr(owner, name)
        _originals.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, _on_this_thread(exchange(original), original))


def _remove() -> None:
    while _originals:
        owner, name, original = _originals.pop()
        if original is None:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


@contextlib.contextmanager
def data_reads_refused(builder: _C.ProgramBuilder, where: Callable[[], str]) -> Iterator[None]:
    """While active, such calls on this thread are refused by the builder; other threads notice nothing."""
    global _recordings
    with _lock:
        if _recordings == 0:
            _install()
        _recordings += 1
    outer = getattr(_watching, "builder", None), getattr(_watching, "where", None)
    _watching.builder, _watching.where = builder, where
    try:
        yield
    finally:
        _watching.builder, _watching.where = outer
        with _lock:
            _recordings -= 1
            if _recordings == 0:
                _remove()
