"""Nobody is timed whose answer is not eager's."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy
import torch
from torch.utils import _pytree as pytree

# The relative error (of all numbers of a result together) that a system with kernels of its own may have. In float32
# convolutions run with TF32, which has the mantissa of float16.
TOLERANCE = {torch.float32: 0.02, torch.float16: 0.05, torch.bfloat16: 0.2}


class NotEagers(RuntimeError):
    """The answer is not eager's."""


def compare(
    actual: object,
    expected: object,
    dtype: torch.dtype,
    exact: bool,
    reference: Callable[[], object] | None = None,
) -> str:
    """How the answer compares with eager's, in words; raises NotEagers if that is not good enough. Deep networks make
    much of little: an answer further from eager's is as good if it is no further from `reference`, the answer in
    float64, than twice eager's own."""
    mine, theirs = tensors_of(actual), tensors_of(expected)
    if len(mine) != len(theirs):
        raise NotEagers(f"gives {len(mine)} results where eager gives {len(theirs)}")
    if same_bits(mine, theirs):
        return "same bits"
    error = max(relative_error(a, e) for a, e in zip(mine, theirs, strict=True))
    near = not exact and error <= TOLERANCE[dtype]
    if not near and not exact and reference is not None:
        near = is_as_near(mine, theirs, tensors_of(reference()))
    if not near:
        raise NotEagers(f"its answer is not eager's: relative error {error:.2g}")
    return f"relative error {error:.0e}"


def same_bits(one: object, other: object) -> bool:
    pairs = zip(tensors_of(one), tensors_of(other), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def is_as_near(
    mine: list[torch.Tensor], eagers: list[torch.Tensor], reference: list[torch.Tensor], times: float = 2.0
) -> bool:
    pairs = zip(mine, eagers, reference, strict=True)
    return all(relative_error(a, r) <= times * relative_error(e, r) for a, e, r in pairs)


def compare_losses(actual: list[float], eager: list[list[float]], exact: bool, tolerance: float) -> str:
    """The same for the losses of the first steps, given those of several eager runs. cuDNN chooses its kernels by
    timing them, so eager's own bits may be others in each run, and a few steps later its losses too."""
    if repr(actual) in map(repr, eager):  # in this form NaN equals itself
        return "same bits"
    repeatable = all(repr(run) == repr(eager[0]) for run in eager)
    if (exact and repeatable) or not are_close(actual, eager[0], tolerance):
        raise NotEagers(f"its losses {actual} are not eager's {eager[0]}")
    return "close"


def are_close(
    actual: list[float], expected: list[float], tolerance: float, growth: float = 5.0, steps: int = 2
) -> bool:
    """Of the first steps only: differences grow from step to step, five times as large after the first update of a
    network whose batch norms see few numbers."""
    pairs = list(zip(actual, expected, strict=True))[:steps]
    return all(math.isclose(a, e, rel_tol=tolerance * growth**step) for step, (a, e) in enumerate(pairs))


def tensors_of(result: object) -> list[torch.Tensor]:
    leaves = [
        torch.from_numpy(leaf) if isinstance(leaf, numpy.ndarray) else leaf
        for leaf in pytree.tree_leaves(result)
    ]
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    if actual.shape != expected.shape:
        raise NotEagers(
            f"its answer has the shape {tuple(actual.shape)}, eager's has {tuple(expected.shape)}"
        )
    a, e = (tensor.detach().cpu().double() for tensor in (actual, expected))
    size = e.norm().item()
    return (a - e).norm().item() / size if size else float((a != e).any())
