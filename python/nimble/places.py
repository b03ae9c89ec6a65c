"""Where the tensors that a function depends on can be found again: modules, closures and globals."""

import dis
import types
from collections.abc import Callable, Iterable

import torch

from nimble.hooks import BackwardGuard, ForwardGuard

# What a function may name besides tensors that makes another recording if it is replaced.
_WATCHED = torch.nn.Module | torch.optim.Optimizer | torch.Generator
# Collections of a module of which nothing may change.
_WHOLE = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_modules")
# What PyTorch itself keeps in each of them, and is looked at by other means as far as it matters.
_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))


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
    if callable(wrapped):
        return _functions(wrapped)
    called = type(function).__call__
    is_ours_to_read = isinstance(called, types.FunctionType) and not isinstance(function, torch.nn.Module)
    return [called] if is_ours_to_read else []


def _owner(function: Callable) -> object:
    """Whose attributes it works on: what it is bound to, or the object itself that can be called."""
    return getattr(function, "__self__", function)


def _of_its_own(function: Callable) -> list[object]:
    """What a callable is, is bound to, or names: in its closure, or of what it is bound to."""
    owner = _owner(function)
    of_owner = getattr(owner, "__dict__", {})
    named = [function, owner]
    for plain in _functions(function):
        named += [of_owner[name] for name in plain.__code__.co_names if name in of_owner]
        for cell in plain.__closure__ or ():
            try:
                named.append(cell.cell_contents)
            except ValueError:  # a cell that nothing was put into yet
                continue
    return named


def _named_by(function: Callable) -> list[object]:
    """That, and what has the name of a global among its own."""
    named = _of_its_own(function)
    for plain in _functions(function):
        named += [plain.__globals__[name] for name in plain.__code__.co_names if name in plain.__globals__]
    return named


def _roots(function: Callable) -> list[torch.nn.Module]:
    """Modules that a callable names."""
    roots = [value for value in _named_by(function) if isinstance(value, torch.nn.Module)]
    return list({id(root): root for root in roots}.values())


def modules_reached_by(function: Callable) -> list[torch.nn.Module]:
    """Modules that a callable names, with their submodules."""
    return list({id(m): m for root in _roots(function) for m in root.modules()}.values())


class ModuleNames:
    """What to call the modules that run in a function: `layer1.0.conv1`, as `named_modules` does. Where a function
    names several models, the class of each stands in front."""

    def __init__(self, function: Callable):
        roots = _roots(function)
        below = {id(m) for root in roots for m in root.modules() if m is not root}
        tops = [root for root in roots if id(root) not in below]
        self._names: dict[int, str] = {}
        for top in tops:
            prefix = type(top).__name__ if len(tops) > 1 else ""
            for name, module in top.named_modules(prefix=prefix):
                self._names.setdefault(id(module), name or type(top).__name__)

    def of(self, module: torch.nn.Module, caller: str) -> str:
        """`caller` is the module whose forward called this one, for one that is found nowhere else."""
        return self._names.get(id(module)) or ".".join(filter(None, [caller, type(module).__name__]))


def tensors_named_by(function: Callable) -> list[torch.Tensor]:
    return [value for value in _named_by(function) if isinstance(value, torch.Tensor)]


def tensors_read_by(function: Callable) -> list[torch.Tensor]:
    """Of those that it names: without globals that have but the name of some attribute (`p.data`, `batch.x`)."""
    values = _of_its_own(function)
    for plain in _functions(function):
        names = {i.argval for i in dis.get_instructions(plain) if i.opname == "LOAD_GLOBAL"}
        values += [plain.__globals__[name] for name in names if name in plain.__globals__]
    return [value for value in values if isinstance(value, torch.Tensor)]


class Places:
    """What to look at before each replay, and where to put tensors back after it."""

    def __init__(
        self, function: Callable, modules: Iterable[torch.nn.Module], outside: Iterable[torch.Tensor]
    ):
        self.entries: list[tuple[dict, str, object]] = []
        self.cells: list[tuple[types.CellType, object]] = []
        self.sizes: list[tuple[dict, int]] = []
        self._read = list(outside)
        read = {id(tensor) for tensor in self._read}
        self.sizes.append((ForwardGuard(), 1))

        def matters(value: object) -> bool:
            # Where None stood, a tensor may be later.
            return value is None or id(value) in read or isinstance(value, _WATCHED)

        for module in modules:
            values = vars(module)
            self.entries.append((values, "training", module.training))
            self.entries.append((values, "forward", values.get("forward")))  # one of its own, or its class's
            for name in _WHOLE:
                self._all_of(values[name])
            self.sizes.append((module._parameters, len(module._parameters)))
            for held in (module._parameters, module._buffers, values):
                self.entries += [
                    (held, name, value)
                    for name, value in held.items()
                    if matters(value) and name not in _OF_EVERY_MODULE
                ]
        for plain in _functions(function):
            for name in plain.__code__.co_names:
                if name in plain.__globals__ and matters(plain.__globals__[name]):
                    self.entries.append((plain.__globals__, name, plain.__globals__[name]))
            for cell in plain.__closure__ or ():
                try:
                    if matters(cell.cell_contents):
                        self.cells.append((cell, cell.cell_contents))
                except ValueError:
                    continue
        owner = _owner(function)
        held = getattr(owner, "__dict__", None)  # a class has something else by that name
        if isinstance(held, dict) and not isinstance(owner, torch.nn.Module):
            self.entries += [(held, name, value) for name, value in held.items() if matters(value)]

    def _all_of(self, values: dict) -> None:
        self.sizes.append((values, len(values)))
        self.entries += [(values, key, value) for key, value in values.items()]

    def add_optimizer(self, optimizer: torch.optim.Optimizer, numbers: list[dict[str, object]]) -> None:
        """Its groups, the numbers in them, its state and its hooks."""
        attributes = vars(optimizer)
        self.entries += [(attributes, name, attributes[name]) for name in ("param_groups", "state")]
        self.sizes.append((optimizer.param_groups, len(optimizer.param_groups)))
        for group, values in zip(optimizer.param_groups, numbers, strict=True):
            self.sizes.append((group["params"], len(group["params"])))
            self.entries += [(group, name, value) for name, value in values.items()]
            self.entries += [
                (group, name, value) for name, value in group.items() if isinstance(value, torch.Tensor)
            ]
        state = optimizer.state
        hooks = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
        for held in (state, *state.values(), *hooks):
            if isinstance(held, dict):
                self._all_of(held)

    def add_backward_pass(self) -> None:
        """Which of the tensors that are read require grad, and that nobody hooks into the backward pass."""
        self.sizes.append((BackwardGuard(self._read), 1))


def find_kept(
    modules: Iterable[torch.nn.Module], others: Iterable[dict], storages: set[int]
) -> list[tuple[dict, str, torch.Tensor]]:
    """Attributes and buffers of these modules, and entries of other dictionaries, that hold one of the storages."""
    held = [values for module in modules for values in (vars(module), module._buffers)]
    return [
        (values, name, value)
        for values in (*held, *others)
        for name, value in values.items()
        if isinstance(value, torch.Tensor) and storage_address(value) in storages
    ]
