"""How near a rewritten program stays to eager, measured against a run in float64 (docs/rewrites.md)."""

from __future__ import annotations

import copy
from typing import Any

import torch
from support import describe
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

# How much further from the exact result than eager. Eager may have been lucky, so a few roundings of the largest value
# are always allowed.
TIMES, ROUNDINGS = 2, 4
# Of the largest value, from eager itself: float32 that is computed as such.
FLOAT32_FROM_EAGER = 1e-4

WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


def in_double(tree: Any) -> Any:
    """Copies of all tensors, of a module or a pytree, with every floating-point number as float64."""
    if isinstance(tree, torch.nn.Module):
        return copy.deepcopy(tree).double()
    return tree_map(
        lambda leaf: leaf.clone().to(WIDE.get(leaf.dtype, leaf.dtype)) if isinstance(leaf, Tensor) else leaf,
        tree,
    )


def wide(tensor: Tensor) -> Tensor:
    dense = tensor if tensor.layout == torch.strided else tensor.to_dense()
    return dense.to(WIDE.get(tensor.dtype, tensor.dtype))


def largest(tensor: Tensor) -> float:
    return wide(tensor).nan_to_num(0, 0, 0).abs().max().item() if tensor.numel() else 0.0


def distance(a: Tensor, b: Tensor) -> float:
    """Between the two values that are furthest apart. Infinite where only one of them is a number."""
    if a.numel() == 0:
        return 0.0
    a, b = wide(a), wide(b)
    if not torch.equal(a.isfinite(), b.isfinite()):
        return float("inf")
    return (a - b).nan_to_num(0, 0, 0).abs().max().item()


def is_real_or_complex(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def assert_as_near_as_eager(actual: Any, eager: Any, exact: Any = None, least: float = 0) -> None:
    """Pytrees of one structure. What is no floating-point number equals eager's. What is one looks like eager's and is
    at most twice as far from `exact` (the same in float64, where there is such a thing) or within a few roundings of
    it, or within `least` of its largest value. In float32 without TF32 it is also within 1e-4 of eager's largest value
    from eager, unless eager itself is further than that from the exact result."""
    actual_leaves, actual_spec = tree_flatten(actual)
    eager_leaves, eager_spec = tree_flatten(eager)
    exact_leaves = [None] * len(eager_leaves) if exact is None else tree_flatten(exact)[0]
    assert actual_spec == eager_spec, f"{actual_spec} instead of {eager_spec}"
    for index, (a, e, x) in enumerate(zip(actual_leaves, eager_leaves, exact_leaves, strict=True)):
        if isinstance(e, Tensor):
            assert describe(a) == describe(e), f"leaf {index}"
        if not is_real_or_complex(e):
            assert torch.equal(a, e) if isinstance(e, Tensor) else a == e, f"leaf {index}"
            continue
        eagers = 0.0 if x is None else distance(e, x)
        if x is not None:
            ours, roundings = distance(a, x), ROUNDINGS * torch.finfo(e.dtype).eps
            allowed = max(TIMES * eagers, max(roundings, least) * largest(x))
            assert ours <= allowed, (
                f"leaf {index} is {ours} from the exact result, eager {eagers}, allowed {allowed}"
            )
        near = FLOAT32_FROM_EAGER * largest(e)
        if eagers <= near and (x is None or not computes_coarsely(e)):
            assert distance(a, e) <= near, f"leaf {index} is {distance(a, e)} from eager, allowed {near}"


def computes_coarsely(result: Tensor) -> bool:
    tf32 = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    return result.dtype in (torch.float16, torch.bfloat16) or (result.is_cuda and tf32)
