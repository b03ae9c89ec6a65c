"""Generated kernels for lists of tensors: the bits of PyTorch's own foreach calls, one after the other."""

from __future__ import annotations

import pytest
import torch
from gpu.kernels.checks import ops, random
from torch import Tensor

pytestmark = pytest.mark.gpu

# Vectors and rests of them, one block and many, nothing at all.
SHAPES = [(1,), (3,), (), (0,), (127,), (33, 5), (4096,), (2, 0, 3), (64, 3, 7, 7), ((1 << 20) + 1,)]


def lists(count: int, dtype: torch.dtype, shift: int = 0) -> list[list[Tensor]]:
    """Corresponding tensors; with a shift none of them is aligned for the widest loads."""

    def tensor(shape: tuple[int, ...]) -> Tensor:
        size = torch.Size(shape).numel()
        return random(size + shift, dtype=dtype)[shift:].view(shape)

    return [[tensor(shape) for shape in SHAPES] for _ in range(count)]


def assert_bits(given: list[Tensor], expected: list[Tensor]) -> None:
    """Also the sign of a zero; of what is no number only that."""
    assert len(given) == len(expected)
    for ours, theirs in zip(given, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        assert ours.stride() == theirs.stride() or theirs.numel() == 0
        assert torch.equal(ours.isnan(), theirs.isnan())
        is_number = ~theirs.isnan()
        assert torch.equal(ours[is_number].view(torch.uint8), theirs[is_number].view(torch.uint8))


CALLS = {
    "_foreach_neg(x0)": lambda x, y, z: torch._foreach_neg(x),
    "_foreach_sqrt(x0)": lambda x, y, z: torch._foreach_sqrt(x),
    "_foreach_reciprocal(x0)": lambda x, y, z: torch._foreach_reciprocal(x),
    "_foreach_add.Scalar(x0, 0.1)": lambda x, y, z: torch._foreach_add(x, 0.1),
    "_foreach_sub.Scalar(x0, 0.1)": lambda x, y, z: torch._foreach_sub(x, 0.1),
    "_foreach_mul.Scalar(x0, 0.1)": lambda x, y, z: torch._foreach_mul(x, 0.1),
    "_foreach_div.Scalar(x0, 0.7)": lambda x, y, z: torch._foreach_div(x, 0.7),
    "_foreach_div.Scalar(x0, 0.001)": lambda x, y, z: torch._foreach_div(x, 0.001),
    "_foreach_add.List(x0, x1, 1)": lambda x, y, z: torch._foreach_add(x, y),
    "_foreach_add.List(x0, x1, 0.3)": lambda x, y, z: torch._foreach_add(x, y, alpha=0.3),
    "_foreach_add.List(x0, x1, -0.1)": lambda x, y, z: torch._foreach_add(x, y, alpha=-0.1),
    "_foreach_sub.List(x0, x1, 0.3)": lambda x, y, z: torch._foreach_sub(x, y, alpha=0.3),
    "_foreach_mul.List(x0, x1)": lambda x, y, z: torch._foreach_mul(x, y),
    "_foreach_div.List(x0, x1)": lambda x, y, z: torch._foreach_div(x, y),
    "_foreach_maximum.List(x0, x1)": lambda x, y, z: torch._foreach_maximum(x, y),
    "_foreach_lerp.Scalar(x0, x1, 0.1)": lambda x, y, z: torch._foreach_lerp(x, y, 0.1),
    "_foreach_lerp.Scalar(x0, x1, 0.9)": lambda x, y, z: torch._foreach_lerp(x, y, 0.9),
    "_foreach_addcmul.Scalar(x0, x1, x2, 1)": lambda x, y, z: torch._foreach_addcmul(x, y, z),
    "_foreach_addcmul.Scalar(x0, x1, x2, 0.3)": lambda x, y, z: torch._foreach_addcmul(x, y, z, value=0.3),
    "_foreach_addcdiv.Scalar(x0, x1, x2, 1)": lambda x, y, z: torch._foreach_addcdiv(x, y, z),
    "_foreach_addcdiv.Scalar(x0, x1, x2, -0.3)": lambda x, y, z: torch._foreach_addcdiv(x, y, z, value=-0.3),
}


@pytest.mark.parametrize("shift", [0, 1], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("call", CALLS)
def test_every_function_gives_pytorchs_bits(dtype, call, shift):
    x, y, z = lists(3, dtype, shift)
    for edge in (0.0, -0.0, float("inf"), float("nan")):
        for a, b in ((x, y), (y, x)):
            a[4][:8], b[4][:4], b[4][4:8] = edge, 0.0, -0.0
            text = f"%0 = {call}; %1 = _foreach_mul.List(x1, x2); return %0, %1"
            given = ops.foreach_pointwise([], [*x, *y, *z], text, len(SHAPES))
            assert_bits(given, [*CALLS[call](x, y, z), *torch._foreach_mul(y, z)])


def copies(tensors: list[Tensor], shift: int) -> list[Tensor]:
    """Aligned as they are."""
    whole = [torch.empty(tensor.numel() + shift, device="cuda", dtype=tensor.dtype) for tensor in tensors]
    return [
        place[shift:].view(tensor.shape).copy_(tensor) for place, tensor in zip(whole, tensors, strict=True)
    ]


@pytest.mark.parametrize("shift", [0, 1, 3], ids=str)
def test_momentum_in_place(dtype, shift):
    p, m, g = lists(3, dtype, shift)
    ours = [copies(tensors, shift) for tensors in (p, m, g)]
    text = (
        "%0 = _foreach_add.List(x2, x0, 0.01); %1 = _foreach_mul.Scalar(x1, 0.9); "
        "%2 = _foreach_add.List(%1, %0, 0.5); %3 = _foreach_add.List(%0, %2, 0.9); "
        "%4 = _foreach_add.List(x0, %3, -0.1); return %4, %2"
    )
    assert ops.foreach_pointwise([*ours[0], *ours[1]], ours[2], text, len(SHAPES)) == []
    decayed = torch._foreach_add(g, p, alpha=0.01)
    torch._foreach_mul_(m, 0.9)
    torch._foreach_add_(m, decayed, alpha=0.5)
    torch._foreach_add_(decayed, m, alpha=0.9)
    torch._foreach_add_(p, decayed, alpha=-0.1)
    for given, expected in zip(ours, (p, m, g), strict=True):
        assert_bits(given, expected)


def test_adam_with_a_count_for_each_tensor(dtype):
    p, m, v, g = lists(4, dtype)
    torch._foreach_abs_(v)
    first, second = ([torch.rand((), device="cuda", dtype=dtype) + 0.5 for _ in SHAPES] for _ in range(2))
    ours = [copies(tensors, 0) for tensors in (p, m, v)]
    text = (
        "%0 = _foreach_lerp.Scalar(x1, x3, 0.1); %1 = _foreach_mul.Scalar(x2, 0.999); "
        "%2 = _foreach_addcmul.Scalar(%1, x3, x3, 0.001); %3 = _foreach_sqrt(%2); "
        "%4 = _foreach_div.List(%3, x5); %5 = _foreach_add.Scalar(%4, 1e-08); %6 = _foreach_div.List(%5, x4); "
        "%7 = _foreach_addcdiv.Scalar(x0, %0, %6, 1); return %7, %0, %2"
    )
    ops.foreach_pointwise([t for tensors in ours for t in tensors], [*g, *first, *second], text, len(SHAPES))
    torch._foreach_lerp_(m, g, 0.1)
    torch._foreach_mul_(v, 0.999)
    torch._foreach_addcmul_(v, g, g, 0.001)
    root = torch._foreach_sqrt(v)
    torch._foreach_div_(root, second)
    torch._foreach_add_(root, 1e-8)
    torch._foreach_div_(root, first)
    torch._foreach_addcdiv_(p, m, root)
    for given, expected in zip(ours, (p, m, v), strict=True):
        assert_bits(given, expected)


def test_more_tensors_than_one_table_has_room_for(dtype):
    x, y = ([random(1 + i % 700, dtype=dtype) for i in range(1000)] for _ in range(2))
    given = copies(x, 0)
    made = ops.foreach_pointwise(
        given,
        y,
        "%0 = _foreach_add.List(x0, x1, 0.3); %1 = _foreach_neg(%0); return %0, %1",
        len(x),
    )
    torch._foreach_add_(x, y, alpha=0.3)
    assert_bits(given, x)
    assert_bits(made, torch._foreach_neg(x))


def test_layouts_without_gaps(dtype):
    def images() -> list[Tensor]:
        return [
            random(4, 8, 5, 5, dtype=dtype, memory_format=torch.channels_last),
            random(6, 9, dtype=dtype).t(),
        ]

    x, y = images(), images()
    (*given,) = ops.foreach_pointwise([], [*x, *y], "%0 = _foreach_add.List(x0, x1, 0.3); return %0", 2)
    assert_bits(given, torch._foreach_add(x, y, alpha=0.3))


def test_what_has_no_kernel_runs_as_eager_does():
    x = [random(5, dtype=torch.float32), random(7, 2, dtype=torch.float32)]
    (*given,) = ops.foreach_pointwise([], x, "%0 = _foreach_exp(x0); return %0", 2)
    assert_bits(given, torch._foreach_exp(x))
    y = [random(10, dtype=torch.float32)[::2], random(2, 7, dtype=torch.float32).t()]
    (*given,) = ops.foreach_pointwise([], [*x, *y], "%0 = _foreach_add.List(x0, x1, 1); return %0", 2)
    assert_bits(given, torch._foreach_add(x, y))


def test_in_a_graph():
    x, y = ([random(size, dtype=torch.float32) for size in (1000, 3)] for _ in range(2))
    text = "%0 = _foreach_add.List(x0, x1, 0.5); return %0"
    ops.foreach_pointwise(x, y, text, 2)
    expected = [tensor.clone() for tensor in x]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops.foreach_pointwise(x, y, text, 2)
    for _ in range(3):
        graph.replay()
        torch._foreach_add_(expected, y, alpha=0.5)
    assert_bits(x, expected)
