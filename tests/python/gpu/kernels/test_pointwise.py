"""Generated kernels for pointwise chains: the bits of eager's calls, one after the other."""

from __future__ import annotations

import pytest
import torch
from gpu.kernels.checks import SUM_RELU, assert_no_worse_than_eager, ops, random
from torch import Tensor

pytestmark = pytest.mark.gpu


def check_pointwise(function, expression: str, *inputs: Tensor) -> None:
    """Not only near: the same bits as eager's calls."""
    results = ops.pointwise(list(inputs), expression)
    expected = function(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        assert result.stride() == wanted.stride()
        assert torch.equal(result.nan_to_num(), wanted.nan_to_num())
        assert torch.equal(result.isnan(), wanted.isnan())


@pytest.mark.parametrize("size", [1, 3, 127, 128, 1001, 1 << 17, (1 << 20) + 1])
def test_a_chain_gives_eagers_bits(dtype, size):
    x, y = random(size, dtype=dtype), random(size, dtype=dtype)
    check_pointwise(
        lambda x, y: torch.clamp((x * y + x).relu() - y, -0.5, 2.5),
        "%0 = mul.Tensor(x0, x1); %1 = add.Tensor(%0, x0, 1); %2 = relu(%1); %3 = sub.Tensor(%2, x1, 1); "
        "%4 = clamp(%3, -0.5, 2.5); return %4",
        x,
        y,
    )


@pytest.mark.parametrize(
    "function",
    [
        "relu",
        "neg",
        "abs",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "erf",
        "sin",
        "cos",
        "floor",
        "ceil",
        "tanh",
        "sigmoid",
        "silu",
        "hardsigmoid",
        "hardswish",
        "gelu",
        "hardtanh",
    ],
)
def test_every_function_gives_eagers_bits(dtype, function):
    x = torch.cat(
        [random(4093, dtype=dtype) * 4, torch.tensor([0.0, -0.0, float("nan")], device="cuda", dtype=dtype)]
    )
    arguments = {"gelu": ", 'none'", "hardtanh": ", -1.0, 1.0"}.get(function, "")
    eager = getattr(torch, function, None) or getattr(torch.nn.functional, function)
    check_pointwise(eager, f"%0 = {function}(x0{arguments}); return %0", x)


WITH_NUMBERS = {
    "add.Tensor(x0, x1, 0.3)": lambda x, y, z: torch.add(x, y, alpha=0.3),
    "sub.Tensor(x0, x1, 0.7)": lambda x, y, z: torch.sub(x, y, alpha=0.7),
    "rsub.Scalar(x0, 1, 1)": lambda x, y, z: 1 - x,
    "rsub.Scalar(x0, 0.3, 0.7)": lambda x, y, z: torch.rsub(x, 0.3, alpha=0.7),
    "mul.Scalar(x0, 0.1)": lambda x, y, z: x * 0.1,
    "div.Scalar(x0, 3.0)": lambda x, y, z: x / 3.0,
    "addcmul(x0, x1, x2, 0.9)": lambda x, y, z: torch.addcmul(x, y, z, value=0.9),
    "addcmul(x0, x1, x2, 1)": lambda x, y, z: torch.addcmul(x, y, z),
    "addcdiv(x0, x1, x2, 0.9)": lambda x, y, z: torch.addcdiv(x, y, z, value=0.9),
    "addcdiv(x0, x1, x2, 1)": lambda x, y, z: torch.addcdiv(x, y, z),
    "leaky_relu(x0, 0.1)": lambda x, y, z: torch.nn.functional.leaky_relu(x, 0.1),
    "clamp(x0, -0.3, 0.1)": lambda x, y, z: x.clamp(-0.3, 0.1),
    "gelu(x0, 'tanh')": lambda x, y, z: torch.nn.functional.gelu(x, approximate="tanh"),
    "sigmoid_backward(x0, x1)": lambda x, y, z: torch.ops.aten.sigmoid_backward(x, y),
    "tanh_backward(x0, x1)": lambda x, y, z: torch.ops.aten.tanh_backward(x, y),
    "threshold_backward(x0, x1, 0.1)": lambda x, y, z: torch.ops.aten.threshold_backward(x, y, 0.1),
    "hardtanh_backward(x0, x1, -0.5, 0.1)": lambda x, y, z: torch.ops.aten.hardtanh_backward(x, y, -0.5, 0.1),
    "pow.Tensor_Tensor(x0, x1)": lambda x, y, z: x**y,
    "ge.Scalar(x0, 0.1)": lambda x, y, z: x >= 0.1,
    "eq.Scalar(x0, 0.1)": lambda x, y, z: x == 0.1,
}


@pytest.mark.parametrize("call", WITH_NUMBERS)
def test_numbers_give_eagers_bits(dtype, call):
    x, y, z = (random(3000, dtype=dtype) for _ in range(3))
    x[:2], y[:2] = 0.1, 0.1
    check_pointwise(WITH_NUMBERS[call], f"%0 = {call}; %1 = relu(x2); return %0", x, y, z)


aten = torch.ops.aten
NEAR = {
    "silu_backward(x0, x1)": aten.silu_backward,
    "gelu_backward(x0, x1, 'none')": aten.gelu_backward,
    "gelu_backward(x0, x1, 'tanh')": lambda x, y: aten.gelu_backward(x, y, approximate="tanh"),
    "hardsigmoid_backward(x0, x1)": aten.hardsigmoid_backward,
    "hardswish_backward(x0, x1)": aten.hardswish_backward,
    "leaky_relu_backward(x0, x1, 0.1, false)": lambda x, y: aten.leaky_relu_backward(x, y, 0.1, False),
    "smooth_l1_loss(x0, x1, 0, 0.5)": lambda x, y: aten.smooth_l1_loss(x, y, 0, 0.5),
    "huber_loss(x0, x1, 0, 1.5)": lambda x, y: aten.huber_loss(x, y, 0, 1.5),
    "sgn(x0)": lambda x, y: torch.sgn(x),
}


@pytest.mark.parametrize("call", NEAR)
def test_ways_back_and_losses_are_as_near_as_eagers(dtype, call):
    """Only where results may round otherwise are these taken in, so bits are not asked for."""
    x, y = random(4096, dtype=dtype) * 3, random(4096, dtype=dtype) * 3
    [result, _] = ops.pointwise([x, y], f"%0 = {call}; %1 = add.Tensor(x0, x1, 1); return %0, %1")
    assert_no_worse_than_eager(result, NEAR[call](x, y), NEAR[call](x.double(), y.double()), dtype)


# What training relies on: also the sign of a zero.
EXACT = {
    "relu(x0)": lambda x, y: torch.relu(x),
    "neg(x0)": lambda x, y: -x,
    "abs(x0)": lambda x, y: x.abs(),
    "hardtanh(x0, 0, 6)": lambda x, y: torch.nn.functional.hardtanh(x, 0, 6),
    "clamp(x0, -0.3, 0.1)": lambda x, y: x.clamp(-0.3, 0.1),
    "clamp_min(x0, 0)": lambda x, y: x.clamp_min(0),
    "clamp_max(x0, 0)": lambda x, y: x.clamp_max(0),
    "maximum(x0, x1)": torch.maximum,
    "minimum(x0, x1)": torch.minimum,
    "add.Tensor(x0, x1, 1)": torch.add,
    "add.Scalar(x0, 0.1, 1)": lambda x, y: x + 0.1,
    "sub.Tensor(x0, x1, 1)": torch.sub,
    "sub.Scalar(x0, 0.1, 1)": lambda x, y: x - 0.1,
    "mul.Tensor(x0, x1)": torch.mul,
    "mul.Scalar(x0, 0.1)": lambda x, y: x * 0.1,
    "div.Scalar(x0, 49)": lambda x, y: x / 49,
    "div.Scalar(x0, 0.7)": lambda x, y: x / 0.7,
    "threshold_backward(x0, x1, 0)": lambda x, y: torch.ops.aten.threshold_backward(x, y, 0),
    "hardtanh_backward(x0, x1, 0, 6)": lambda x, y: torch.ops.aten.hardtanh_backward(x, y, 0, 6),
}


def every_kind_of_number(dtype: torch.dtype) -> Tensor:
    """Zeros of both signs, the smallest and the largest numbers there are, and many between."""
    info = torch.finfo(dtype)
    edges = [0.0, info.tiny, info.smallest_normal, info.smallest_normal / 4, info.max, 0.1, 1.0, 6.0]
    edges = torch.tensor([*edges, float("inf")], device="cuda", dtype=torch.float64).to(dtype)
    return torch.cat([edges, -edges, random(2048 - 2 * len(edges), dtype=dtype)])


@pytest.mark.parametrize("call", EXACT)
def test_exact_functions_give_every_bit(dtype, call):
    numbers = every_kind_of_number(dtype)
    x, y = torch.meshgrid(numbers, numbers, indexing="ij")
    x, y = x.contiguous(), y.contiguous()
    # Behind a product that must not be contracted with what follows, and before one.
    text = f"%0 = mul.Tensor(x0, x1); %1 = {call.replace('x0', '%0')}; %2 = mul.Tensor(%1, x1); return %1, %2"
    product = x * y
    expected = EXACT[call](product, y)
    for result, wanted in zip(ops.pointwise([x, y], text), (expected, expected * y), strict=True):
        is_number = ~wanted.isnan()
        assert torch.equal(result.isnan(), wanted.isnan())
        assert torch.equal(result[is_number].view(torch.uint8), wanted[is_number].view(torch.uint8))


@pytest.mark.parametrize("exponent", [-2, -1, -0.5, 0.5, 1, 2, 2.5, 2.7, 3, 4])
def test_powers_give_eagers_bits(dtype, exponent):
    x = random(3000, dtype=dtype).abs()
    check_pointwise(lambda x: x**exponent, f"%0 = pow.Tensor_Scalar(x0, {exponent}); return %0", x)


@pytest.mark.parametrize(
    "shape", [(1,), (13,), (11, 13), (64, 1, 1), (2, 1, 11, 1), (2, 64, 11, 13)], ids=str
)
def test_broadcasting_in_both_layouts(dtype, memory_format, shape):
    x = random(2, 64, 11, 13, dtype=dtype, memory_format=memory_format)
    check_pointwise(lambda x, y: torch.relu(x + y), SUM_RELU, x, random(*shape, dtype=dtype))


def test_types_are_promoted():
    half, single = random(33, 8, dtype=torch.float16), random(33, 8, dtype=torch.float32)
    whole = torch.arange(33 * 8, device="cuda").view(33, 8)
    check_pointwise(lambda x, y: torch.relu(x + y), SUM_RELU, half, single)
    check_pointwise(lambda x, y: torch.relu(x + y), SUM_RELU, whole, half)
    check_pointwise(lambda x, y: torch.relu(x + y), SUM_RELU, half, torch.tensor(0.3, device="cuda"))
    expression = "%0 = gt.Tensor(x0, x1); %1 = where.self(%0, x0, x1); return %1, %0"
    check_pointwise(lambda x, y: (torch.where(x > y, x, y), x > y), expression, half, single)


def test_strided_and_shifted_inputs(dtype):
    x = random(40, 64, 20, dtype=dtype)
    y = random(20, 64, 40, dtype=dtype)
    check_pointwise(lambda x, y: torch.relu(x + y), SUM_RELU, x.transpose(0, 2), y)
    flat = random(1 << 18, dtype=dtype)
    for offset in (1, 2, 3, 4):
        check_pointwise(lambda x, y: torch.relu(x + y), SUM_RELU, flat[offset:], flat[:-offset])


def test_an_operator_without_a_kernel_runs_as_eager_does():
    x = random(5, 7, dtype=torch.float32)
    check_pointwise(lambda x: x.cumsum(1), "%0 = cumsum(x0, 1, none); return %0", x)
