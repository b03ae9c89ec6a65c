"""Operators of our own that write into slices of something larger."""

from __future__ import annotations

import pytest
import torch
from gpu.kernels.checks import SUM_RELU, check_out, error_of, ops, random

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("shape", [(2, 16, 9, 10), (1, 11, 7, 7), (1, 64, 56, 56), (1, 8, 1, 1)], ids=str)
def test_every_operator_writes_into_slices(dtype, shape):
    x, y = (random(*shape, dtype=dtype, memory_format=torch.channels_last) for _ in range(2))
    channels = shape[1]
    depthwise = random(3, 3, 1, channels, dtype=dtype).permute(3, 2, 0, 1)
    check_out(ops.pointwise, ([x, y], SUM_RELU), dtype)
    check_out(ops.depthwise_convolution, (x, depthwise, None, [1, 1], [1, 1], [1, 1], "relu", "none"), dtype)
    dense, bias = random(channels, channels, 1, 1, dtype=dtype) / channels**0.5, random(channels, dtype=dtype)
    check_out(ops.matrix_convolution, (x, dense, bias, y, "relu", 0, depthwise, bias, 1, 1), dtype)
    check_out(ops.matrix_convolution, (x, dense, None, None, "silu"), dtype)
    check_out(ops.max_pool2d, (x, [3, 3], [1, 1], [1, 1], [1, 1], False), dtype)
    check_out(ops.avg_pool2d, (x, [3, 3], [1, 1], [1, 1], False, False), dtype)


def test_one_of_several_results_goes_into_a_slice(dtype):
    x, y = (random(2, 16, 9, 10, dtype=dtype, memory_format=torch.channels_last) for _ in range(2))
    text = "%0 = add.Tensor(x0, x1, 1); %1 = relu(%0); return %0, %1"
    for first in (0, 8, 3):
        whole = torch.zeros(2, 32, 9, 10, device="cuda", dtype=dtype).contiguous(
            memory_format=torch.channels_last
        )
        total = torch.empty_like(x)
        ops.pointwise.out([x, y], text, out=[total, whole[:, first : first + 16]])
        assert torch.equal(total, x + y)
        assert torch.equal(whole[:, first : first + 16], (x + y).relu())
        assert not whole[:, :first].any() and not whole[:, first + 16 :].any()


@pytest.mark.parametrize("activation", ["none", "relu", "silu"])
@pytest.mark.parametrize("out", [32, 22, 11])
def test_products_are_written_into_slices(dtype, activation, out):
    x = random(1, 32, 14, 14, dtype=dtype, memory_format=torch.channels_last)
    weight, bias = random(out, 32, 1, 1, dtype=dtype) / 6, random(out, dtype=dtype)
    residual = random(1, out, 14, 14, dtype=dtype, memory_format=torch.channels_last)
    for added in (None, residual):
        check_out(ops.pointwise_convolution, (x, weight, bias, added, activation), dtype, exact_bits=False)


def test_a_slice_is_added_to_a_product_where_it_lies(dtype):
    x = random(1, 32, 14, 14, dtype=dtype, memory_format=torch.channels_last)
    whole = random(1, 48, 14, 14, dtype=dtype, memory_format=torch.channels_last)
    weight = random(16, 32, 1, 1, dtype=dtype) / 6
    for first in (0, 16, 8, 3):
        residual = whole[:, first : first + 16]
        result = ops.pointwise_convolution(x, weight, None, residual, "relu")
        dense = ops.pointwise_convolution(
            x, weight, None, residual.contiguous(memory_format=torch.channels_last), "relu"
        )
        assert error_of(result, dense.double()) <= max(8 * torch.finfo(dtype).eps, 2e-3)


def test_what_does_not_fit_is_refused():
    x = random(1, 8, 6, 6, dtype=torch.float32)
    with pytest.raises(RuntimeError, match="does not fit into a tensor of shape"):
        ops.max_pool2d.out(x, [2, 2], [2, 2], [0, 0], [1, 1], False, out=torch.empty_like(x))
