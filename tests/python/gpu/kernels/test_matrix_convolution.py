"""Convolutions by our own kernel for tensor cores, some with a depthwise one before them, against ATen in float64."""

from __future__ import annotations

import pytest
import torch
from gpu.kernels.checks import activated, assert_no_worse_than_eager, error_of, ops, packed_filters, random

pytestmark = pytest.mark.gpu

# Inner channels, channels, side of the image: MobileNetV2, NASNet-A mobile, and odd ones.
PRODUCTS = [
    (16, 96, 112),
    (24, 144, 56),
    (384, 96, 14),
    (960, 160, 7),
    (320, 1280, 7),
    (42, 11, 112),
    (44, 44, 28),
    (264, 44, 28),
    (1056, 176, 7),
    (7, 5, 3),
    (1, 1, 1),
]
# Channels, side, size of the filter, stride.
SEPARABLE = [
    (32, 112, 3, 1),
    (96, 112, 3, 2),
    (384, 14, 3, 1),
    (960, 7, 3, 1),
    (11, 112, 7, 2),
    (22, 56, 5, 2),
    (44, 28, 5, 1),
    (88, 14, 7, 1),
    (88, 28, 5, 2),
    (176, 7, 3, 1),
    (5, 9, 5, 1),
]


def check_matrix_convolution(
    dtype, x, weight, bias=None, residual=None, activation="none", depthwise=None, tf32=True, candidates=(0,)
) -> None:
    filters, filter_bias, stride, padding, before, between = depthwise or (None, None, 1, 0, "none", "none")

    def convolve(x, weight, bias, residual, filters, filter_bias):
        if filters is not None:
            x = torch.conv2d(activated(x, before), filters, filter_bias, stride, padding, 1, x.shape[1])
            x = activated(x, between)
        y = torch.conv2d(x, weight, bias)
        return activated(y if residual is None else y + residual, activation)

    tensors = (x, weight, bias, residual, filters, filter_bias)
    exact = convolve(*(None if t is None else t.double() for t in tensors))
    rest = (filters, filter_bias, [stride] * 2, [padding] * 2, [1, 1], before, between)
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=tf32):
        eager = convolve(*tensors)
        for candidate in candidates:
            result = ops.matrix_convolution(x, weight, bias, residual, activation, candidate, *rest)
            assert result.is_contiguous(memory_format=torch.channels_last)
            if tf32 and dtype == torch.float32:
                # cuDNN may choose not to use TF32 where it is allowed: then eager's error says nothing about it.
                assert error_of(result, exact) <= max(2 * error_of(eager, exact), 1e-3), candidate
            else:
                assert_no_worse_than_eager(result, eager, exact, dtype)


@pytest.mark.parametrize("inner,out,side", PRODUCTS)
def test_matrix_convolution(dtype, inner, out, side):
    x = random(1, inner, side, side, dtype=dtype, memory_format=torch.channels_last)
    weight, bias = random(out, inner, 1, 1, dtype=dtype) / inner**0.5, random(out, dtype=dtype)
    residual = random(1, out, side, side, dtype=dtype, memory_format=torch.channels_last)
    check_matrix_convolution(dtype, x, weight, bias, None, "relu6", candidates=(0, 1))
    check_matrix_convolution(dtype, x, weight, None, residual)


@pytest.mark.parametrize("channels,side,size,stride", SEPARABLE)
def test_matrix_convolution_behind_a_depthwise_one(dtype, channels, side, size, stride):
    x = random(1, channels, side, side, dtype=dtype, memory_format=torch.channels_last)
    filters, filter_bias = packed_filters(channels, 1, size, size, dtype=dtype), random(channels, dtype=dtype)
    weight, bias = random(40, channels, 1, 1, dtype=dtype) / channels**0.5, random(40, dtype=dtype)
    depthwise = (filters / size, filter_bias, stride, size // 2)
    check_matrix_convolution(
        dtype, x, weight, bias, None, "none", (*depthwise, "relu6", "relu6"), candidates=(0, 1)
    )
    check_matrix_convolution(dtype, x, weight, bias, None, "relu", (*depthwise, "relu", "none"))


@pytest.mark.parametrize(
    "inner,out,side,size,stride",
    [
        (3, 32, 224, (3, 3), 2),
        (3, 64, 64, (7, 7), 2),
        (16, 24, 9, (3, 3), 1),
        (128, 160, 17, (1, 7), 1),
        (128, 160, 17, (7, 1), 1),
        (288, 384, 35, (3, 3), 2),
        (48, 64, 35, (5, 5), 1),
        (448, 384, 8, (3, 3), 1),
        (100, 44, 14, (1, 1), 2),
    ],
)
def test_matrix_convolution_with_a_larger_filter(dtype, inner, out, side, size, stride):
    x = random(2, inner, side, side, dtype=dtype, memory_format=torch.channels_last)
    weight = random(out, inner, *size, dtype=dtype, memory_format=torch.channels_last)
    weight, bias = weight / (inner * size[0] * size[1]) ** 0.5, random(out, dtype=dtype)
    padding = [size[0] // 2, size[1] // 2]
    exact = torch.conv2d(x.double(), weight.double(), bias.double(), stride, padding).relu()
    eager = torch.conv2d(x, weight, bias, stride, padding).relu()
    for candidate in (0, 1):
        result = ops.matrix_convolution(
            x, weight, bias, None, "relu", candidate, None, None, [stride] * 2, padding, [1, 1]
        )
        assert result.is_contiguous(memory_format=torch.channels_last)
        if dtype == torch.float32:  # with TF32 allowed eager's error differs from shape to shape
            assert error_of(result, exact) <= 1e-5
        else:
            assert_no_worse_than_eager(result, eager, exact, dtype)


@pytest.mark.parametrize("with_filters", [False, True])
def test_every_way_to_divide_a_matrix_convolution_is_right(dtype, with_filters):
    x = random(1, 360, 13, 11, dtype=dtype, memory_format=torch.channels_last)
    weight, bias = random(72, 360, 1, 1, dtype=dtype) / 19, random(72, dtype=dtype)
    depthwise = None
    if with_filters:
        depthwise = (packed_filters(360, 1, 3, 3, dtype=dtype) / 3, None, 2, 1, "none", "none")
    tried = 0
    for candidate in range(100):
        try:
            check_matrix_convolution(dtype, x, weight, bias, None, "relu", depthwise, candidates=(candidate,))
        except RuntimeError as error:
            assert "there is no number" in str(error)
            break
        tried += 1
    assert tried > 4


def test_matrix_convolution_rounds_to_tf32_where_it_is_told_to():
    x = random(1, 192, 17, 17, dtype=torch.float32, memory_format=torch.channels_last)
    weight = random(160, 192, 1, 7, dtype=torch.float32, memory_format=torch.channels_last) / 36
    exact = torch.conv2d(x.double(), weight.double(), None, 1, (0, 3))
    rest = (None, None, "none", 0, None, None, [1, 1], [0, 3], [1, 1], "none", "none")
    whole, rounded = (ops.matrix_convolution(x, weight, *rest, tf32) for tf32 in (False, True))
    assert error_of(whole, exact) <= 1e-5 < error_of(rounded, exact) <= 1e-3


def test_matrix_convolution_does_not_use_tf32_where_it_is_not_allowed():
    x = random(1, 64, 9, 9, dtype=torch.float32, memory_format=torch.channels_last)
    weight = random(24, 64, 1, 1, dtype=torch.float32) / 8
    check_matrix_convolution(torch.float32, x, weight, tf32=False)


def test_matrix_convolution_of_several_images_and_of_a_slice_of_channels(dtype):
    whole = random(3, 96, 13, 9, dtype=dtype, memory_format=torch.channels_last)
    weight, bias = random(24, 32, 1, 1, dtype=dtype) / 6, random(24, dtype=dtype)
    filters = packed_filters(32, 1, 3, 3, dtype=dtype) / 3
    for first in (0, 8, 13):
        x = whole[:, first : first + 32]
        check_matrix_convolution(dtype, x, weight, bias)
        check_matrix_convolution(dtype, x, weight, bias, depthwise=(filters, None, 1, 1, "none", "none"))


def test_matrix_convolution_of_other_layouts_goes_to_aten(dtype):
    x = random(1, 16, 5, 5, dtype=dtype)
    weight = random(8, 16, 1, 1, dtype=dtype)
    assert torch.equal(ops.matrix_convolution(x, weight, None), torch.conv2d(x, weight))
