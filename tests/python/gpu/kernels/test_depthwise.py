"""Convolutions with one filter to a channel, against ATen in float64: at most twice eager's error."""

from __future__ import annotations

import itertools

import pytest
import torch
from gpu.kernels.checks import ACTIVATIONS, activated, assert_no_worse_than_eager, ops, random
from torch import Tensor

pytestmark = pytest.mark.gpu

WAYS = (0, 1)  # to divide the work


@pytest.mark.parametrize("size", [3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    "shape", [(1, 32, 112, 112), (1, 44, 28, 27), (2, 11, 15, 14), (1, 176, 7, 7)], ids=str
)
def test_depthwise_convolution(dtype, memory_format, size, stride, shape):
    x = random(*shape, dtype=dtype, memory_format=memory_format)
    weight = random(shape[1], 1, size, size, dtype=dtype)
    packed = weight.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)
    bias = random(shape[1], dtype=dtype)
    geometry = ([stride, stride], [size // 2, size // 2], [1, 1])

    def convolve(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.relu(torch.conv2d(torch.relu(x), weight, bias, *geometry, groups=shape[1]))

    exact = convolve(x.double(), weight.double(), bias.double())
    eager = convolve(x, weight, bias)
    for filters, way in itertools.product((weight, packed), WAYS):
        result = ops.depthwise_convolution(x, filters, bias, *geometry, "relu", "relu", way)
        assert result.is_contiguous(memory_format=memory_format)
        assert_no_worse_than_eager(result, eager, exact, dtype)


@pytest.mark.parametrize(
    "before,after", [("none", a) for a in ACTIVATIONS] + [(a, "none") for a in ACTIVATIONS]
)
def test_depthwise_convolution_with_every_activation(before, after):
    x, weight = random(1, 24, 9, 10, dtype=torch.float32), random(24, 1, 3, 3, dtype=torch.float32)

    def convolve(x: Tensor, weight: Tensor) -> Tensor:
        return activated(torch.conv2d(activated(x, before), weight, None, 1, 1, groups=24), after)

    result = ops.depthwise_convolution(x, weight, None, [1, 1], [1, 1], [1, 1], before, after)
    assert_no_worse_than_eager(result, convolve(x, weight), convolve(x.double(), weight.double()), x.dtype)


def test_depthwise_convolution_of_a_slice_of_channels(dtype):
    whole = random(1, 96, 14, 14, dtype=dtype, memory_format=torch.channels_last)
    weight = random(32, 1, 5, 5, dtype=dtype)
    for first in (0, 8, 13):
        x = whole[:, first : first + 32]
        eager = torch.conv2d(x, weight, None, 1, 2, groups=32)
        exact = torch.conv2d(x.double(), weight.double(), None, 1, 2, groups=32)
        for way in WAYS:
            result = ops.depthwise_convolution(x, weight, None, [1, 1], [2, 2], [1, 1], candidate=way)
            assert_no_worse_than_eager(result, eager, exact, dtype)
