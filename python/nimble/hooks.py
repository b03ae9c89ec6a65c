"""Hooks of the user: Python code in the backward pass and around the steps of optimizers, which a replay would leave
out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch.nn.modules import module as modules_of_torch
from torch.optim import optimizer as optimizers_of_torch
from torch.utils.hooks import RemovableHandle

from nimble import _C


def mark_as_ours(hook: Callable) -> Callable:
    hook.is_nimbles = True
    return hook


def hooks_around_every_step() -> list[Callable]:
    """Hooks that are called for every optimizer, but for our own."""
    hooks = [
        *optimizers_of_torch._global_optimizer_pre_hooks.values(),
        *optimizers_of_torch._global_optimizer_post_hooks.values(),
    ]
    return [hook for hook in hooks if not getattr(hook, "is_nimbles", False)]


def hooks_of_every_module() -> list[Callable]:
    """Hooks that are called around every module's forward, but for our own."""
    hooks = [
        *modules_of_torch._global_forward_pre_hooks.values(),
        *modules_of_torch._global_forward_hooks.values(),
    ]
    return [hook for hook in hooks if not getattr(hook, "is_nimbles", False)]


def _has_gradient_hooks(tensor: torch.Tensor) -> bool:
    return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)


def _every_module_has_backward_hooks() -> bool:
    return bool(modules_of_torch._global_backward_hooks or modules_of_torch._global_backward_pre_hooks)


def refuse_backward_hooks(
    builder: _C.ProgramBuilder, tensors: Iterable[torch.Tensor], modules: Iterable[torch.nn.Module]
) -> None:
    """Refuses what would run in the backward pass besides operators."""
    if builder.refused():
        return
    modules = list(modules)
    if any(isinstance(module, torch.nn.parallel.DistributedDataParallel) for module in modules):
        builder.refuse(
            "DistributedDataParallel",
            "it adds up gradients between processes while backward() runs, which a replay would leave out",
            "Compile the module inside: DistributedDataParallel(nimble.compile(module))",
            "",
        )
        return
    hooked = [f"a parameter of shape {tuple(t.shape)}" for t in tensors if _has_gradient_hooks(t)]
    hooked += [type(m).__name__ for m in modules if m._backward_hooks or m._backward_pre_hooks]
    if _every_module_has_backward_hooks():
        hooked.append("every module")
    if hooked:
        builder.refuse(
            "a gradient hook",
            f"it is Python code that runs in backward(), on {hooked[0]}",
            "Work on p.grad after backward() instead, in the loop or in the function that goes backward",
            "",
        )


class ForwardGuard:
    """Hooks of every module that were there when a forward pass was recorded, and no others. A collection as below."""

    def __init__(self):
        self._hooks = hooks_of_every_module()
        self._handles = RemovableHandle.next_id

    def __len__(self) -> int:
        if self._hooks or RemovableHandle.next_id != self._handles:
            if hooks_of_every_module() != self._hooks:
                return 0
            self._handles = RemovableHandle.next_id
        return 1


class BackwardGuard:
    """Hooks that were not there when a backward pass was recorded. A collection for those who watch sizes: of one
    element while there are none, empty from then on."""

    def __init__(self, tensors: Iterable[torch.Tensor]):
        self._tensors = [t for t in tensors if t.requires_grad]
        self._around_steps = hooks_around_every_step()
        self._handles = RemovableHandle.next_id

    def __len__(self) -> int:
        if RemovableHandle.next_id != self._handles:  # somebody registered a hook, of whatever kind
            if not self._is_without_new_hooks():
                return 0
            self._handles = RemovableHandle.next_id
        return 1

    def _is_without_new_hooks(self) -> bool:
        return not (
            _every_module_has_backward_hooks()
            or any(map(_has_gradient_hooks, self._tensors))
            or hooks_around_every_step() != self._around_steps
        )
