"""What a function was recorded with last, kept so that a report can do the same again without being told."""

import contextlib
import weakref
from collections.abc import Iterator

import torch
from torch.utils import _pytree as pytree


class _Tensor:
    """A tensor among the arguments: the tensor itself as long as somebody else keeps it, and how it looks."""

    def __init__(self, tensor: torch.Tensor):
        self._itself = weakref.ref(tensor)
        is_dense = tensor.layout is torch.strided and not tensor.is_nested
        # Others are refused, so that nothing is ever reported about them.
        self._shape, self._strides = (tuple(tensor.shape), tensor.stride()) if is_dense else ((), ())
        self._dtype, self._device = tensor.dtype, tensor.device
        self._requires_grad = tensor.requires_grad

    def tensor(self) -> torch.Tensor:
        itself = self._itself()
        return self._made_up() if itself is None else itself

    def _made_up(self) -> torch.Tensor:
        """Random numbers, or zeros where they may be indices: zero is one that is always there."""
        made = torch.empty_strided(self._shape, self._strides, dtype=self._dtype, device=self._device)
        made.zero_()
        if made.is_floating_point() or made.is_complex():
            generator = torch.Generator(self._device).manual_seed(0)
            made.normal_(generator=generator)
        return made.requires_grad_(self._requires_grad)


class LastCall:
    def __init__(self, args: tuple, kwargs: dict):
        leaves, self._spec = pytree.tree_flatten((args, kwargs))
        known: dict[int, _Tensor] = {}  # one that is passed twice stays one
        self._leaves = [
            known.setdefault(id(leaf), _Tensor(leaf)) if isinstance(leaf, torch.Tensor) else leaf
            for leaf in leaves
        ]
        self._grad, self._inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        self._autocast = [
            (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
            for device in ("cpu", "cuda")
        ]

    def arguments(self) -> tuple[tuple, dict]:
        made: dict[int, torch.Tensor] = {}
        leaves = [
            made.setdefault(id(leaf), leaf.tensor()) if isinstance(leaf, _Tensor) else leaf
            for leaf in self._leaves
        ]
        return pytree.tree_unflatten(leaves, self._spec)

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """The modes of PyTorch that the call was made under."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self._inference))
            stack.enter_context(torch.set_grad_enabled(self._grad))
            for device, dtype, enabled in self._autocast:
                if enabled or torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            yield
