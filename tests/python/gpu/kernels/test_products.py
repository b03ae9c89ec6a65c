"""Filters of one pixel by cuBLASLt, against ATen in float64: at most twice eager's error."""

from __future__ import annotations

import pytest
import torch
from gpu.kernels.checks import activated, assert_no_worse_than_eager, error_of, ops, random

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("tf32", [True, False], ids=["tf32", "ieee"])
@pytest.mark.parametrize("activation", ["none", "relu", "relu6", "gelu_tanh"])
@pytest.mark.parametrize("with_bias,with_residual", [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize(
    "shape,out",
    [((1, 64, 56, 56), 256), ((1, 1056, 7, 7), 176), ((2, 11, 15, 14), 22), ((1, 320, 1, 1), 1280)],
    ids=str,
)
def test_pointwise_convolution(dtype, memory_format, tf32, activation, with_bias, with_residual, shape, out):
    x = random(*shape, dtype=dtype, memory_format=memory_format)
    weight = random(out, shape[1], 1, 1, dtype=dtype) / shape[1] ** 0.5
    bias = random(out, dtype=dtype) if with_bias else None
    residual = (
        random(shape[0], out, *shape[2:], dtype=dtype, memory_format=memory_format) if with_residual else None
    )

    def convolve(x, weight, bias, residual):
        y = torch.conv2d(x, weight, bias)
        return activated(y if residual is None else y + residual, activation)

    exact = convolve(*(None if t is None else t.double() for t in (x, weight, bias, residual)))
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=tf32):
        eager = convolve(x, weight, bias, residual)
        result = ops.pointwise_convolution(x, weight, bias, residual, activation)
    if tf32 and dtype == torch.float32:
        # cuDNN may choose not to use TF32 where it is allowed: then eager's error says nothing about TF32's.
        assert error_of(result, exact) <= max(2 * error_of(eager, exact), 1e-3)
    else:
        assert_no_worse_than_eager(result, eager, exact, dtype)


def test_every_candidate_of_a_product_is_right(dtype):
    x = random(1, 256, 14, 14, dtype=dtype, memory_format=torch.channels_last)
    weight, bias = random(1024, 256, 1, 1, dtype=dtype) / 16, random(1024, dtype=dtype)
    exact = torch.relu(torch.conv2d(x.double(), weight.double(), bias.double()))
    tried = 0
    for candidate in range(100):
        try:
            result = ops.pointwise_convolution(x, weight, bias, None, "relu", candidate)
        except RuntimeError as error:
            assert "there is no number" in str(error)
            break
        tried += 1
        assert error_of(result, exact) <= max(4 * torch.finfo(dtype).eps, 1e-3)
    assert tried > 1
