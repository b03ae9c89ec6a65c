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


def mean_square(a: Tensor, b: Tensor) -> float:
    return 0.0 if a.numel() == 0 else (wide(a) - wide(b)).nan_to_num(0, 0, 0).abs().square().mean().item()


def leaves_of(actual: Any, eager: Any, exact: Any) -> list[tuple[Any, Any, Any]]:
    """Of pytrees of one structure; what is no floating-point number equals eager's, and what is one looks like it."""
    actual_leaves, actual_spec = tree_flatten(actual)
    eager_leaves, eager_spec = tree_flatten(eager)
    exact_leaves = [None] * len(eager_leaves) if exact is None else tree_flatten(exact)[0]
    assert actual_spec == eager_spec, f"{actual_spec} instead of {eager_spec}"
    leaves = list(zip(actual_leaves, eager_leaves, exact_leaves, strict=True))
    for index, (a, e, _) in enumerate(leaves):
        if isinstance(e, Tensor):
            assert describe(a) == describe(e), f"leaf {index}"
        if not is_real_or_complex(e):
            assert torch.equal(a, e) if isinstance(e, Tensor) else a == e, f"leaf {index}"
    return leaves


def least_allowed(exact: Tensor, dtype: torch.dtype, least: float) -> float:
    return max(ROUNDINGS * torch.finfo(dtype).eps, least) * largest(exact)


def is_far_off(eager: Tensor, exact: Tensor | None) -> bool:
    """Eager has lost half of what float32 may differ from it: two results that both did may be that far apart with
    neither of them wrong."""
    return exact is not None and distance(eager, exact) > FLOAT32_FROM_EAGER / 2 * largest(eager)


def assert_near_eager(index: int, a: Tensor, e: Tensor, x: Tensor | None) -> None:
    """In float32 without TF32: within 1e-4 of its largest value, unless eager itself is far from the exact result."""
    near = FLOAT32_FROM_EAGER * largest(e)
    if x is None or not (is_far_off(e, x) or computes_coarsely(e)):
        assert distance(a, e) <= near, f"leaf {index} is {distance(a, e)} from eager, allowed {near}"


def assert_as_near_as_eager(actual: Any, eager: Any, exact: Any = None, least: float = 0) -> None:
    """Floating-point numbers are at most twice as far as eager's from `exact`, the same in float64 (if there is that).
    Or within a few roundings of it, or within `least` of its largest value."""
    for index, (a, e, x) in enumerate(leaves_of(actual, eager, exact)):
        if not is_real_or_complex(e):
            continue
        if x is not None:
            ours, eagers = distance(a, x), distance(e, x)
            allowed = max(TIMES * eagers, least_allowed(x, e.dtype, least))
            assert ours <= allowed, (
                f"leaf {index} is {ours} from the exact result, eager {eagers}, allowed {allowed}"
            )
        assert_near_eager(index, a, e, x)


def assert_usually_as_near_as_eager(samples: list[tuple[Any, Any, Any]], least: float) -> None:
    """The same for several runs together, by root mean squares: what the first layers of a model round goes through all
    others, so that the errors of a single run are of one mind, and who is nearer in it is chance."""
    runs = [leaves_of(*sample) for sample in samples]
    for index, leaves in enumerate(zip(*runs, strict=True)):
        if not is_real_or_complex(leaves[0][1]):
            continue
        if leaves[0][2] is not None:
            ours, eagers = (
                (sum(mean_square(leaf[which], leaf[2]) for leaf in leaves) / len(leaves)) ** 0.5
                for which in (0, 1)
            )
            allowed = max(TIMES * eagers, least_allowed(leaves[0][2], leaves[0][1].dtype, least))
            assert ours <= allowed, (
                f"leaf {index} is usually {ours} from the exact result, eager {eagers}, allowed {allowed}"
            )
            # Where eager overflows, we may; nowhere else.
            for a, e, x in leaves:
                finite = wide(a).isfinite()
                assert torch.equal(finite | ~wide(e).isfinite(), wide(x).isfinite() | ~wide(e).isfinite()), (
                    index
                )
        for leaf in leaves:
            assert_near_eager(index, *leaf)


def computes_coarsely(result: Tensor) -> bool:
    tf32 = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    return result.dtype in (torch.float16, torch.bfloat16) or (result.is_cuda and tf32)
