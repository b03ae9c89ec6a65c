"""Feeds one run of a Python function, operator by operator, to the engine's program builder."""

import contextlib
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator

import torch
from torch._higher_order_ops.utils import _hop_compile_tls
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from nimble import _C
from nimble.data_reads import data_reads_refused
from nimble.hooks import mark_as_ours
from nimble.places import ModuleNames

_OUTSIDE = "Leave it outside the compiled function"
_INSIDE = tuple(os.path.dirname(os.path.abspath(module.__file__)) + os.sep for module in (torch, _C))


def user_line() -> str:
    """`file:line in function` of the innermost frame that is neither PyTorch's nor ours."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_INSIDE) and not code.co_filename.startswith("<"):
            return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return ""


def _grad_scaler_asks() -> bool:
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is torch.amp.GradScaler._maybe_opt_step.__code__:
            return True
        frame = frame.f_back
    return False


class _Operators(TorchDispatchMode):
    """Sees every operator call below autograd."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch would import all of Dynamo at the first call, only to tell it to stay away: that takes seconds."""
        return False

    # So that torch.cond and its like come here, to be refused by name.
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """They call Dynamo, which would skip their code for ever if it met a mode that it must not ignore: torch.cond
        would then raise wherever it is called."""
        return getattr(_hop_compile_tls, "in_hop_compile", False)

    def __init__(self, builder: _C.ProgramBuilder):
        super().__init__()
        self.builder = builder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default and _grad_scaler_asks():
            self.builder.refuse(
                "torch.amp.GradScaler.step()",
                "it reads on the host whether a gradient overflowed",
                "Use an optimizer with fused=True, which decides that on the device",
                user_line(),
            )
        if not isinstance(func, torch._ops.OpOverload):
            self.builder.refuse(str(func), "it is a higher-order operator", _OUTSIDE, user_line())
            return func(*args, **kwargs)
        result = self.builder.call(func, args, kwargs, user_line())
        if result is NotImplemented:  # nothing but calls of other operators: look at those
            # Views of parameters require grad in eager code, also in inference mode, and products ask for that. What
            # marks its results as views itself, a chunk, must find none marked.
            views = torch._C.DispatchKey.ADInplaceOrView
            excluded = func.has_kernel_for_dispatch_key(views)
            with self, torch._C._SetExcludeDispatchKeyGuard(views, excluded):
                # PyTorch's own C++ decomposition, which eager runs; OpOverload.decompose may prefer one in Python.
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        return result


@contextlib.contextmanager
def _modules_that_run(
    builder: _C.ProgramBuilder, names: ModuleNames, seen: dict[int, torch.nn.Module]
) -> Iterator[None]:
    """Collects the modules whose forward runs on this thread, and tells the builder whose it is at any time."""
    thread, running = threading.get_ident(), []

    def enter(module: torch.nn.Module, _args: tuple) -> None:
        if torch.compiler.is_compiling():  # a module in a branch of torch.cond, which Dynamo only looks at
            return
        seen.setdefault(id(module), module)
        if threading.get_ident() != thread:
            return
        running.append((module, names.of(module, running[-1][1] if running else "")))
        builder.set_module(running[-1][1])

    def leave(module: torch.nn.Module, _args: tuple, _result: object) -> None:
        if torch.compiler.is_compiling():
            return
        if threading.get_ident() != thread or all(module is not entered for entered, _ in running):
            return
        while running.pop()[0] is not module:
            pass  # a forward that raised was never left
        builder.set_module(running[-1][1] if running else "")

    handles = [
        register_module_forward_pre_hook(mark_as_ours(enter)),
        register_module_forward_hook(mark_as_ours(leave)),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        builder.set_module("")


def _random_numbers_of_the_host() -> tuple:
    """Where Python's own stand, and numpy's."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return random.getstate(), None
    _, numbers, *rest = numpy.random.get_state()
    return random.getstate(), (numbers.tobytes(), rest)


def record(
    builder: _C.ProgramBuilder, body: Callable[[], object], names: ModuleNames
) -> tuple[object, list[torch.nn.Module]]:
    """Runs `body` while the builder watches. Returns its result and the modules that ran."""
    seen: dict[int, torch.nn.Module] = {}
    before = _random_numbers_of_the_host()
    with (
        _modules_that_run(builder, names, seen),
        data_reads_refused(builder, user_line),
        _Operators(builder),
    ):
        result = body()
    if not builder.refused() and _random_numbers_of_the_host() != before:
        builder.refuse(
            "a random number of Python's or numpy's",
            "the host draws it, and what it decides would be the same at every replay",
            "Draw it before the call and pass it in as a tensor, or draw with torch",
            "",
        )
    return result, list(seen.values())
