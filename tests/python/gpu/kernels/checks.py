"""Shared by the tests of our own operators: numbers to compute with, and how far from float64 a result may be."""

from __future__ import annotations

import torch
from torch import Tensor

import nimble  # noqa: F401 (registers the operators)

ops = torch.ops.nimble

ACTIVATIONS = ["none", "relu", "relu6", "silu", "hardswish", "sigmoid", "gelu", "gelu_tanh"]
SUM_RELU = "%0 = add.Tensor(x0, x1, 1); %1 = relu(%0); return %1"

UNTOUCHED = 123.0
# How many channels lie before and behind a slice: aligned for the widest loads, for narrower ones, for none.
SLICES = [(0, 16), (16, 16), (8, 4), (4, 0), (3, 5)]


def random(*shape: int, dtype: torch.dtype, memory_format: torch.memory_format | None = None) -> Tensor:
    tensor = torch.randn(*shape, device="cuda").to(dtype)
    return tensor.contiguous(memory_format=memory_format) if memory_format else tensor


def error_of(result: Tensor, exact: Tensor) -> float:
    return (result.double() - exact).abs().max().item() / max(exact.abs().max().item(), 1e-30)


def assert_no_worse_than_eager(result: Tensor, eager: Tensor, exact: Tensor, dtype: torch.dtype) -> None:
    assert result.dtype == eager.dtype and result.shape == eager.shape
    assert torch.equal(result.isnan(), eager.isnan())
    # Where eager happens to hit the exact value, one rounding is still allowed.
    assert error_of(result, exact) <= max(2 * error_of(eager, exact), torch.finfo(dtype).eps)


def activated(x: Tensor, name: str) -> Tensor:
    functional = torch.nn.functional
    return {
        "none": lambda x: x,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "sigmoid": torch.sigmoid,
    }.get(name, getattr(functional, name, None))(x)


def packed_filters(*shape: int, dtype: torch.dtype) -> Tensor:
    """Neighbouring channels beside each other."""
    return random(*shape, dtype=dtype).permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)


def check_out(op, arguments: tuple, dtype: torch.dtype, *, exact_bits: bool = True) -> None:
    """What `out` gets is what the operator returns, and nothing around it changes."""
    dense = op(*arguments)
    of_lists = isinstance(dense, list)
    dense = dense[0] if of_lists else dense
    images, channels, height, width = dense.shape
    for before, behind in SLICES:
        whole = torch.full(
            (images, before + channels + behind, height, width), UNTOUCHED, device="cuda", dtype=dtype
        ).contiguous(memory_format=torch.channels_last)
        place = whole[:, before : before + channels]
        returned = op.out(*arguments, out=[place] if of_lists else place)
        assert returned is None if of_lists else returned.data_ptr() == place.data_ptr()
        if exact_bits:
            assert torch.equal(place, dense), (before, behind)
        else:  # a library may choose another way for a slice
            assert error_of(place, dense.double()) <= max(8 * torch.finfo(dtype).eps, 2e-3)
        assert (whole[:, :before] == UNTOUCHED).all() and (whole[:, before + channels :] == UNTOUCHED).all()
