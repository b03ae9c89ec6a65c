"""Batch norms in training, forward and back, against ATen in float64."""

from __future__ import annotations

import pytest
import torch
from gpu.kernels.checks import activated, error_of, ops, random
from torch import Tensor
from torch.nn import functional as F

pytestmark = pytest.mark.gpu

# A channel in one block, in vectors or not; in several blocks.
SHAPES = [
    (8, 64, 8, 8),
    (3, 5, 7, 7),
    (32, 100),
    (4, 16, 33),
    (32, 64, 112, 112),
    (32, 256, 56, 56),
    (40, 2, 63, 63),
]
MOMENTUM, EPSILON = 0.1, 1e-5


class Layer:
    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.x, self.residual, self.gradient = (random(*shape, dtype=dtype) for _ in range(3))
        self.weight, self.bias, self.mean = (torch.randn(shape[1], device="cuda") for _ in range(3))
        self.variance = torch.rand(shape[1], device="cuda") + 0.5

    @torch.enable_grad()
    def exactly(self, activation: str, with_residual: bool) -> tuple[Tensor, ...]:
        """In float64: the result, the running statistics, the gradients."""
        x, weight, bias = (t.double().requires_grad_() for t in (self.x, self.weight, self.bias))
        mean, variance = self.mean.double(), self.variance.double()
        y = F.batch_norm(x, mean, variance, weight, bias, True, MOMENTUM, EPSILON)
        y = activated(y + self.residual.double() if with_residual else y, activation)
        gradients = torch.autograd.grad(y, (x, weight, bias), self.gradient.double())
        return y.detach(), mean, variance, *gradients


def allowed(dtype: torch.dtype) -> float:
    return max(torch.finfo(dtype).eps, 1e-5)


@pytest.mark.parametrize("with_residual", [False, True], ids=["alone", "sum"])
@pytest.mark.parametrize("activation", ["none", "relu", "relu6"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward(dtype, shape, activation, with_residual):
    layer = Layer(shape, dtype)
    exact, exact_mean, exact_variance, *_ = layer.exactly(activation, with_residual)
    residual = layer.residual if with_residual else None
    y, _, _, _ = ops.batch_norm_training(
        layer.x, layer.weight, layer.bias, layer.mean, layer.variance, MOMENTUM, EPSILON, residual, activation
    )
    assert y.dtype == dtype and y.stride() == layer.x.stride()
    assert error_of(y, exact) <= 2 * allowed(dtype)
    assert error_of(layer.mean, exact_mean) <= 1e-5
    assert error_of(layer.variance, exact_variance) <= 1e-5


@pytest.mark.parametrize("activation", ["none", "relu", "relu6"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_backward(shape, activation):
    layer = Layer(shape, torch.float32)
    *_, exact_x, exact_weight, exact_bias = layer.exactly(activation, False)
    _, mean, inverse, _ = ops.batch_norm_training(
        layer.x, layer.weight, layer.bias, None, None, MOMENTUM, EPSILON, None, activation
    )
    x, weight, bias, _ = ops.batch_norm_training_backward(
        layer.gradient, layer.x, layer.weight, layer.bias, mean, inverse, activation
    )
    # Where the activation begins, float32 and float64 may decide otherwise for a number or two.
    assert ((x.double() - exact_x).abs() > 1e-4 * exact_x.abs().max()).sum() <= 2
    assert error_of(weight, exact_weight) <= 1e-3
    assert error_of(bias, exact_bias) <= 1e-3


@pytest.mark.parametrize("shape", SHAPES[:5], ids=str)
def test_backward_in_half_precision_is_near_that_in_float32(shape):
    for dtype in (torch.float16, torch.bfloat16):
        layer = Layer(shape, dtype)
        _, mean, inverse, _ = ops.batch_norm_training(
            layer.x, layer.weight, layer.bias, None, None, MOMENTUM, EPSILON, None, "relu"
        )
        rest = (layer.weight, layer.bias, mean, inverse, "relu")
        x, weight, bias, _ = ops.batch_norm_training_backward(layer.gradient, layer.x, *rest)
        wide = ops.batch_norm_training_backward(layer.gradient.float(), layer.x.float(), *rest)
        assert x.dtype == dtype
        assert error_of(x, wide[0].double()) <= 2 * torch.finfo(dtype).eps
        assert error_of(weight, wide[1].double()) <= 1e-5
        assert error_of(bias, wide[2].double()) <= 1e-5


def test_the_same_bits_every_time():
    layer = Layer((32, 64, 56, 56), torch.float32)
    first, *_ = ops.batch_norm_training(
        layer.x, layer.weight, layer.bias, None, None, MOMENTUM, EPSILON, None, "relu"
    )
    for _ in range(20):
        again, *_ = ops.batch_norm_training(
            layer.x, layer.weight, layer.bias, None, None, MOMENTUM, EPSILON, None, "relu"
        )
        assert torch.equal(first, again)


def test_other_layouts_and_types_go_through_aten():
    layer = Layer((2, 6, 5, 5), torch.float32)
    exact, *_ = layer.exactly("relu", False)
    for x in (layer.x.contiguous(memory_format=torch.channels_last), layer.x.double()):
        weight, bias = (t.to(x.dtype) for t in (layer.weight, layer.bias))
        y, *_ = ops.batch_norm_training(x, weight, bias, None, None, MOMENTUM, EPSILON, None, "relu")
        assert error_of(y, exact) <= 1e-5
