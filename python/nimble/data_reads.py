"""Notices what reads a tensor's data without calling any operator: printing, tolist, numpy and their like; and hooks
on gradients, which run where nobody sees them.

A TorchFunctionMode would see these too, but PyTorch takes other paths (attention, for one) while any is active."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator

import torch

from nimble import _C

_READS = {
    "__repr__": "printing a tensor",
    "__format__": "formatting a tensor",
    "tolist": "Tensor.tolist()",
    "numpy": "Tensor.numpy()",
    "__array__": "turning a tensor into an array",
    "data_ptr": "Tensor.data_ptr()",
    "__dlpack__": "Tensor.__dlpack__()",
}
_HOOKS = {
    "register_hook": "Tensor.register_hook()",
    "register_post_accumulate_grad_hook": "Tensor.register_post_accumulate_grad_hook()",
}

_watching = threading.local()  # .builder and .where on threads that record
_lock = threading.Lock()
_recordings = 0
_originals: dict[str, Callable | None] = {}  # None: inherited, so taken away again


def _watched(name: str, original: Callable) -> Callable:
    @functools.wraps(original)
    def read(self, *args, **kwargs):
        builder = getattr(_watching, "builder", None)
        if builder is not None and not builder.refused() and not builder.is_constant(self):
            builder.refuse(
                _READS[name],
                "it hands tensor data to the host",
                "Do it outside the compiled function, on its results",
                _watching.where(),
            )
        return original(self, *args, **kwargs)

    return read


def _without_hooks(name: str, original: Callable) -> Callable:
    @functools.wraps(original)
    def register(self, *args, **kwargs):
        builder = getattr(_watching, "builder", None)
        if builder is not None and not builder.refused():
            builder.refuse(
                _HOOKS[name],
                "the hook is Python code that runs in backward()",
                "Use torch.autograd.Function, or work on gradients after backward()",
                _watching.where(),
            )
        return original(self, *args, **kwargs)

    return register


def _install() -> None:
    for names, wrap in ((_READS, _watched), (_HOOKS, _without_hooks)):
        for name in names:
            _originals[name] = torch.Tensor.__dict__.get(name)
            setattr(torch.Tensor, name, wrap(name, getattr(torch.Tensor, name)))


def _remove() -> None:
    for name, original in _originals.items():
        if original is None:
            delattr(torch.Tensor, name)
        else:
            setattr(torch.Tensor, name, original)


@contextlib.contextmanager
def data_reads_refused(builder: _C.ProgramBuilder, where: Callable[[], str]) -> Iterator[None]:
    """While active, such reads on this thread are refused by the builder; other threads notice nothing."""
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
