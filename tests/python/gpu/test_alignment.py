"""Kernels are chosen by how their arguments are aligned, and so is the order in which they add."""

from __future__ import annotations

import pytest
import torch
from support import assert_same, replay, warm_up
from torch import Tensor

import nimble

pytestmark = pytest.mark.gpu

SIDE = 96
OFFSETS = [0, 1, 2, 3, 4, 7, 8, 16, 64]


def window(offset: int, dtype: torch.dtype) -> Tensor:
    """A square that begins `offset` elements into its storage."""
    storage = torch.randn(SIDE * SIDE + offset, device="cuda", dtype=torch.float32).to(dtype)
    return storage[offset:].view(SIDE, SIDE)


@pytest.fixture(params=[torch.float32, torch.float16], ids=str)
def dtype(request):
    return request.param


@pytest.fixture
def function(dtype):
    weight = torch.randn(SIDE, SIDE, device="cuda").to(dtype)

    def products_and_sums(x: Tensor) -> tuple[Tensor, ...]:
        return x @ weight, weight @ x, x.sum(), x.sum(0), torch.softmax(x, -1)

    return products_and_sums


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_view_with_any_offset_gives_eagers_bits(function, dtype, offset):
    fast = nimble.compile(function, strict=True).prepare(window(offset, dtype))
    for _ in range(3):
        x = window(offset, dtype)
        assert_same(replay(fast, x), function(x))


def test_another_alignment_is_another_signature(function, dtype):
    fast = nimble.compile(function, cache_size=32)
    for offset in OFFSETS:
        warm_up(fast, window(offset, dtype))
    for offset in OFFSETS * 2:
        x = window(offset, dtype)
        assert_same(replay(fast, x), function(x))


def test_a_storage_that_is_not_aligned_itself(function, dtype):
    # What comes through DLPack keeps its address, but its storage begins there.
    def foreign() -> Tensor:
        return torch.from_dlpack(window(3, dtype))

    assert foreign().storage_offset() == 0
    fast = nimble.compile(function, strict=True).prepare(foreign())
    x = foreign()
    assert_same(replay(fast, x), function(x))


def test_aligned_inputs_share_one_signature(function, dtype):
    storage = torch.randn(4, SIDE, SIDE, device="cuda").to(dtype)
    fast = nimble.compile(function, strict=True).prepare(storage[0])
    for x in storage:
        assert_same(replay(fast, x), function(x))
    assert fast.stats["cached"] == 1
