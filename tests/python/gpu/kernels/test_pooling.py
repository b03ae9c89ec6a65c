"""Pooling, against ATen."""

from __future__ import annotations

import pytest
import torch
from gpu.kernels.checks import assert_no_worse_than_eager, ops, random

pytestmark = pytest.mark.gpu

POOLS = [
    (2, 2, 0, False),
    (3, 2, 1, False),
    (3, 2, 0, True),
    (3, 1, 1, False),
    (3, 2, 1, True),
    (5, 3, 2, True),
]
PICTURES = [(1, 64, 112, 112), (2, 11, 15, 14), (1, 480, 14, 14)]


@pytest.mark.parametrize("size,stride,padding,ceil_mode", POOLS)
@pytest.mark.parametrize("shape", PICTURES, ids=str)
def test_max_pool_gives_eagers_bits(dtype, memory_format, shape, size, stride, padding, ceil_mode):
    x = random(*shape, dtype=dtype, memory_format=memory_format)
    x[0, 1, 2, 3] = float("nan")
    result = ops.max_pool2d(x, [size] * 2, [stride] * 2, [padding] * 2, [1, 1], ceil_mode, "relu")
    eager = torch.relu(torch.max_pool2d(x, size, stride, padding, 1, ceil_mode))
    assert torch.equal(result.isnan(), eager.isnan())
    assert torch.equal(result.nan_to_num(), eager.nan_to_num())
    assert result.stride() == eager.stride()


@pytest.mark.parametrize("size,stride,padding,ceil_mode", POOLS)
@pytest.mark.parametrize("count_include_pad,divisor", [(True, None), (False, None), (True, 7)])
@pytest.mark.parametrize("shape", PICTURES, ids=str)
def test_avg_pool(dtype, memory_format, shape, size, stride, padding, ceil_mode, count_include_pad, divisor):
    x = random(*shape, dtype=dtype, memory_format=memory_format)
    arguments = ([size] * 2, [stride] * 2, [padding] * 2, ceil_mode, count_include_pad, divisor)
    eager, exact = (torch.ops.aten.avg_pool2d(t, *arguments) for t in (x, x.double()))
    result = ops.avg_pool2d(x, *arguments)
    assert_no_worse_than_eager(result, eager, exact, dtype)
    assert result.stride() == eager.stride()


@pytest.mark.parametrize("out", [(1, 1), (7, 7), (3, 2)], ids=str)
@pytest.mark.parametrize("shape", [(1, 2048, 7, 7), (2, 11, 15, 14), (1, 1056, 7, 7)], ids=str)
def test_adaptive_avg_pool(dtype, memory_format, shape, out):
    x = random(*shape, dtype=dtype, memory_format=memory_format)
    eager, exact = (torch.nn.functional.adaptive_avg_pool2d(t, out) for t in (x, x.double()))
    assert_no_worse_than_eager(ops.adaptive_avg_pool2d(x, out), eager, exact, dtype)
