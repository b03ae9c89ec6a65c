"""Where the tensors that a function depends on can be found again: modules, closures and globals."""

import types
from collections.abc import Callable, Iterable

import torch

# Collections of a module that must not grow or shrink.
_COLLECTIONS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_modules",
    "_parameters",
)


def outside_tensors(modules: Iterable[torch.nn.Module]) -> list[torch.Tensor]:
    """Parameters and buffers of these modules."""
    found = []
    for module in modules:
        found += [p for p in module._parameters.values() if p is not None]
        found += [b for b in module._buffers.values() if b is not None]
    return found


def storage_address(tensor: torch.Tensor) -> int | None:
    try:
        return tensor.untyped_storage()._cdata
    except NotImplementedError:  # sparse tensors have none
        return None


def _functions(function: Callable) -> list[types.FunctionType]:
    """The plain functions behind a callable."""
    if isinstance(function, types.MethodType):
        return _functions(function.__func__)
    if isinstance(function, types.FunctionType):
        return [function]
    wrapped = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
    return _functions(wrapped) if callable(wrapped) else []


def modules_reached_by(function: Callable) -> list[torch.nn.Module]:
    """Modules that a callable is, is bound to, or names in its closure or globals, with their submodules."""
    roots = []
    if isinstance(function, torch.nn.Module):
        roots.append(function)
    if isinstance(getattr(function, "__self__", None), torch.nn.Module):
        roots.append(function.__self__)
    for plain in _functions(function):
        named = [plain.__globals__.get(name) for name in plain.__code__.co_names]
        for cell in plain.__closure__ or ():
            try:
                named.append(cell.cell_contents)
            except ValueError:  # a cell that nothing was put into yet
                continue
        roots += [value for value in named if isinstance(value, torch.nn.Module)]
    return list({id(m): m for root in roots for m in root.modules()}.values())


class Places:
    """What to look at before each replay, and where to put tensors back after it."""

    def __init__(
        self, function: Callable, modules: Iterable[torch.nn.Module], outside: Iterable[torch.Tensor]
    ):
        self.entries: list[tuple[dict, str, object]] = []
        self.cells: list[tuple[types.CellType, object]] = []
        self.sizes: list[tuple[dict, int]] = []
        read = {id(tensor) for tensor in outside}
        for module in modules:
            values = vars(module)
            self.entries.append((values, "training", module.training))
            self.sizes += [(values[name], len(values[name])) for name in _COLLECTIONS]
            self.entries += [(module._modules, name, child) for name, child in module._modules.items()]
            for held in (module._parameters, module._buffers, values):
                self.entries += [(held, name, value) for name, value in held.items() if id(value) in read]

        def matters(value: object) -> bool:
            return id(value) in read or isinstance(value, torch.nn.Module | torch.optim.Optimizer)

        for plain in _functions(function):
            for name in plain.__code__.co_names:
                if matters(plain.__globals__.get(name)):
                    self.entries.append((plain.__globals__, name, plain.__globals__[name]))
            for cell in plain.__closure__ or ():
                try:
                    if matters(cell.cell_contents):
                        self.cells.append((cell, cell.cell_contents))
                except ValueError:
                    continue
        owner = getattr(function, "__self__", None)
        if owner is not None and not isinstance(owner, torch.nn.Module) and hasattr(owner, "__dict__"):
            self.entries += [
                (vars(owner), name, value) for name, value in vars(owner).items() if matters(value)
            ]

    def add_optimizer(self, optimizer: torch.optim.Optimizer, numbers: list[dict[str, object]]) -> None:
        """Its groups, the numbers in them, and where its state lies."""
        self.sizes.append((optimizer.param_groups, len(optimizer.param_groups)))
        self.entries += [(vars(optimizer), name, vars(optimizer)[name]) for name in ("param_groups", "state")]
        for group, values in zip(optimizer.param_groups, numbers, strict=True):
            self.sizes.append((group["params"], len(group["params"])))
            self.entries += [(group, name, value) for name, value in values.items()]
            self.entries += [
                (group, name, value) for name, value in group.items() if isinstance(value, torch.Tensor)
            ]
        for state in optimizer.state.values():
            self.entries += [
                (state, name, value) for name, value in state.items() if isinstance(value, torch.Tensor)
            ]


def find_kept(modules: Iterable[torch.nn.Module], storages: set[int]) -> list[tuple[dict, str, torch.Tensor]]:
    """Attributes and buffers of these modules that hold one of the storages."""
    found = []
    for module in modules:
        for held in (vars(module), module._buffers):
            for name, value in held.items():
                if isinstance(value, torch.Tensor) and storage_address(value) in storages:
                    found.append((held, name, value))
    return found
