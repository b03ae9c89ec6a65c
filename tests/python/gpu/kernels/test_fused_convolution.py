"""Convolutions by cuDNN's graphs, against ATen in float64, whole and into slices."""

from __future__ import annotations

import pytest
import torch
from gpu.kernels.checks import (
    ACTIVATIONS,
    activated,
    assert_no_worse_than_eager,
    check_out,
    error_of,
    ops,
    random,
)

pytestmark = pytest.mark.gpu

CONVOLUTIONS = [  # input, output channels, size, stride, padding, groups
    ((1, 64, 28, 28), 96, 3, 1, 1, 1),
    ((2, 16, 15, 14), 24, 3, 2, 1, 1),
    ((1, 48, 14, 14), 64, 1, 2, 0, 1),
    ((1, 32, 17, 17), 32, 3, 1, 1, 4),
    ((1, 11, 9, 9), 13, 5, 1, 2, 1),
]


@pytest.mark.parametrize("tf32", [True, False], ids=["tf32", "ieee"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("with_bias,with_residual", [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("convolution", CONVOLUTIONS, ids=str)
def test_fused_convolution(dtype, memory_format, tf32, activation, with_bias, with_residual, convolution):
    shape, out, size, stride, padding, groups = convolution
    x = random(*shape, dtype=dtype, memory_format=memory_format)
    weight = random(out, shape[1] // groups, size, size, dtype=dtype) / (size * shape[1] ** 0.5)
    bias = random(out, dtype=dtype) if with_bias else None
    geometry = ([stride] * 2, [padding] * 2, [1, 1], groups)

    def convolve(x, weight, bias, residual):
        y = torch.conv2d(x, weight, bias, *geometry)
        return activated(y if residual is None else y + residual, activation)

    residual = torch.randn_like(convolve(x, weight, bias, None)) if with_residual else None
    exact = convolve(*(None if t is None else t.double() for t in (x, weight, bias, residual)))
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=tf32):
        eager = convolve(x, weight, bias, residual)
        result = ops.fused_convolution(x, weight, bias, residual, *geometry, activation)
    if tf32 and dtype == torch.float32:
        assert error_of(result, exact) <= max(2 * error_of(eager, exact), 2e-3)
    else:
        assert_no_worse_than_eager(result, eager, exact, dtype)


@pytest.mark.parametrize("convolution", CONVOLUTIONS, ids=str)
def test_fused_convolutions_are_written_into_slices(dtype, convolution):
    shape, out, size, stride, padding, groups = convolution
    x = random(*shape, dtype=dtype, memory_format=torch.channels_last)
    weight = random(out, shape[1] // groups, size, size, dtype=dtype) / (size * shape[1] ** 0.5)
    arguments = (
        x,
        weight,
        random(out, dtype=dtype),
        None,
        [stride] * 2,
        [padding] * 2,
        [1, 1],
        groups,
        "relu",
    )
    check_out(ops.fused_convolution, arguments, dtype, exact_bits=False)


def test_every_candidate_of_a_convolution_is_right(dtype):
    x = random(1, 64, 28, 28, dtype=dtype, memory_format=torch.channels_last)
    weight, bias = random(96, 64, 3, 3, dtype=dtype) / 24, random(96, dtype=dtype)
    exact = torch.relu(torch.conv2d(x.double(), weight.double(), bias.double(), 1, 1))
    tried = 0
    for candidate in range(100):
        try:
            result = ops.fused_convolution(
                x, weight, bias, None, [1, 1], [1, 1], [1, 1], 1, "relu", candidate
            )
        except RuntimeError as error:
            assert "there is no number" in str(error)
            break
        tried += 1
        assert error_of(result, exact) <= max(8 * torch.finfo(dtype).eps, 2e-3)
    assert tried > 1
