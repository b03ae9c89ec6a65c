"""Feeds one run of a Python function, operator by operator, to the engine's program builder."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from nimble import _C

_INSIDE = tuple(os.path.dirname(os.path.abspath(module.__file__)) + os.sep for module in (torch, _C))

# What reads a tensor's data without any operator, and what to say of it.
_READS_DATA = {
    torch.Tensor.__repr__: "printing a tensor",
    torch.Tensor.__format__: "formatting a tensor",
    torch.Tensor.tolist: "Tensor.tolist()",
    torch.Tensor.numpy: "Tensor.numpy()",
    torch.Tensor.__array__: "turning a tensor into an array",
    torch.Tensor.data_ptr: "Tensor.data_ptr()",
    torch.Tensor.__dlpack__: "Tensor.__dlpack__()",
}


def user_line() -> str:
    """`file:line in function` of the innermost frame that is neither PyTorch's nor ours."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_INSIDE) and not code.co_filename.startswith("<"):
            return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return ""


class _Operators(TorchDispatchMode):
    """Sees every operator call below autograd."""

    def __init__(self, builder: _C.ProgramBuilder):
        super().__init__()
        self.builder = builder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            self.builder.refuse(str(func), "it is a higher-order operator", "Leave it outside", user_line())
            return func(*args, **kwargs)
        result = self.builder.call(func, args, kwargs, user_line())
        if result is NotImplemented:  # nothing but calls of other operators: look at those
            with self:
                return func.decompose(*args, **kwargs)
        return result


class _DataReads(TorchFunctionMode):
    """Sees what turns tensors into host data without calling an operator."""

    def __init__(self, builder: _C.ProgramBuilder):
        super().__init__()
        self.builder = builder

    def __torch_function__(self, func, types, args=(), kwargs=None):
        what = _READS_DATA.get(func)
        if what is not None and isinstance(args[0], torch.Tensor) and not self.builder.is_constant(args[0]):
            self.builder.refuse(
                what,
                "it hands tensor data to the host",
                "Do it outside the compiled function, on its results",
                user_line(),
            )
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _modules_that_run(seen: dict[int, torch.nn.Module]) -> Iterator[None]:
    handle = register_module_forward_pre_hook(lambda module, _: seen.setdefault(id(module), module) and None)
    try:
        yield
    finally:
        handle.remove()


def record(builder: _C.ProgramBuilder, body: Callable[[], object]) -> tuple[object, list[torch.nn.Module]]:
    """Runs `body` while the builder watches. Returns its result and the modules that ran."""
    seen: dict[int, torch.nn.Module] = {}
    with _modules_that_run(seen), _DataReads(builder), _Operators(builder):
        result = body()
    return result, list(seen.values())
