"""Each operator of Nimble's own on the GPU, against ATen in float64: no further from it than twice eager's error."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import nimble  # noqa: F401 (registers the operators)

pytestmark = pytest.mark.gpu
ops = torch.ops.nimble

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FORMATS = [torch.channels_last, torch.contiguous_format]
ACTIVATIONS = ["none", "relu", "relu6", "silu", "hardswish", "sigmoid", "gelu", "gelu_tanh"]


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    return request.param


@pytest.fixture(params=FORMATS, ids=["channels_last", "contiguous"])
def memory_format(request):
    return request.param


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


# Pointwise


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


SUM_RELU = "%0 = add.Tensor(x0, x1, 1); %1 = relu(%0); return %1"


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
    "pow.Tensor_Tensor(x0, x1)": lambda x, y, z: x**y,
    "ge.Scalar(x0, 0.1)": lambda x, y, z: x >= 0.1,
    "eq.Scalar(x0, 0.1)": lambda x, y, z: x == 0.1,
}


@pytest.mark.parametrize("call", WITH_NUMBERS)
def test_numbers_give_eagers_bits(dtype, call):
    x, y, z = (random(3000, dtype=dtype) for _ in range(3))
    x[:2], y[:2] = 0.1, 0.1
    check_pointwise(WITH_NUMBERS[call], f"%0 = {call}; %1 = relu(x2); return %0", x, y, z)


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


# Depthwise convolutions


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
    for filters in (weight, packed):
        result = ops.depthwise_convolution(x, filters, bias, *geometry, "relu", "relu")
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
        result = ops.depthwise_convolution(x, weight, None, [1, 1], [2, 2], [1, 1])
        assert_no_worse_than_eager(result, eager, exact, dtype)


# Pooling

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


# 1x1 convolutions


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


# 1x1 convolutions by our own kernel, with a depthwise convolution before them

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


def packed_filters(*shape: int, dtype: torch.dtype) -> Tensor:
    """Neighbouring channels beside each other."""
    return random(*shape, dtype=dtype).permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)


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


# All of them


def test_operators_run_inside_a_graph(dtype):
    x = random(1, 64, 14, 14, dtype=dtype, memory_format=torch.channels_last)
    depthwise, dense, bias = (
        random(64, 1, 3, 3, dtype=dtype),
        random(64, 64, 1, 1, dtype=dtype),
        random(64, dtype=dtype),
    )
    packed = packed_filters(64, 1, 3, 3, dtype=dtype)

    def run() -> Tensor:
        y = ops.depthwise_convolution(x, depthwise, bias, [1, 1], [1, 1], [1, 1], "none", "relu")
        y = ops.pointwise_convolution(y, dense, bias, y, "relu")
        y = ops.matrix_convolution(y, dense, bias, y, "relu", 0, packed, bias, 1, 1)
        y = ops.max_pool2d(y, [2, 2], [2, 2], [0, 0], [1, 1], False)
        y = ops.pointwise([y, bias.view(-1, 1, 1)], SUM_RELU)[0]
        return ops.adaptive_avg_pool2d(y, [1, 1])

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = run()
    x.normal_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result, run())


def test_a_chain_that_reuses_memory_gives_the_same_in_a_graph_as_one_by_one(dtype):
    """Kernels that begin before those they depend on have ended would show: what they read, or overwrite, is new."""
    x = random(1, 64, 14, 14, dtype=dtype, memory_format=torch.channels_last)
    dense, bias = random(64, 64, 1, 1, dtype=dtype) / 8, random(64, dtype=dtype) / 8
    packed = packed_filters(64, 1, 3, 3, dtype=dtype) / 3

    def run(between=lambda: None) -> Tensor:
        y = x
        for _ in range(8):
            before = y
            y = ops.depthwise_convolution(y, packed, bias, [1, 1], [1, 1], [1, 1], "relu", "none")
            between()
            y = ops.matrix_convolution(y, dense, bias, before, "relu6")
            between()
            y = ops.max_pool2d(y, [3, 3], [1, 1], [1, 1], [1, 1], False)
            between()
            y = ops.matrix_convolution(y, dense, bias, None, "none", 1, packed, bias, 1, 1)
            between()
            y = ops.pointwise([y, bias.view(-1, 1, 1)], SUM_RELU)[0]
            between()
        return y

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = run()
    for _ in range(20):
        x.normal_()
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(result, run(torch.cuda.synchronize))


def test_empty_batches_and_unusual_types_go_to_aten():
    x = torch.randn(0, 8, 5, 5, device="cuda")
    assert ops.max_pool2d(x, [2, 2], [2, 2], [0, 0], [1, 1], False).shape == (0, 8, 2, 2)
    x = torch.randn(1, 8, 5, 5, device="cuda", dtype=torch.float64)
    weight = torch.randn(8, 1, 3, 3, device="cuda", dtype=torch.float64)
    result = ops.depthwise_convolution(x, weight, None, [1, 1], [1, 1], [1, 1])
    assert torch.allclose(result, torch.conv2d(x, weight, None, 1, 1, groups=8))


# Into slices of something larger

UNTOUCHED = 123.0
# How many channels lie before and behind a slice: aligned for the widest loads, for narrower ones, for none.
SLICES = [(0, 16), (16, 16), (8, 4), (4, 0), (3, 5)]


def check_out(op, arguments: tuple, dtype: torch.dtype, *, exact_bits: bool = True) -> None:
    """What `out` gets is what the operator returns, and nothing around it changes."""
    dense = op(*arguments)
    dense = dense[0] if isinstance(dense, list) else dense
    images, channels, height, width = dense.shape
    for before, behind in SLICES:
        whole = torch.full(
            (images, before + channels + behind, height, width), UNTOUCHED, device="cuda", dtype=dtype
        ).contiguous(memory_format=torch.channels_last)
        place = whole[:, before : before + channels]
        returned = op.out(*arguments, out=place)
        assert returned.data_ptr() == place.data_ptr()
        if exact_bits:
            assert torch.equal(place, dense), (before, behind)
        else:  # a library may choose another way for a slice
            assert error_of(place, dense.double()) <= max(8 * torch.finfo(dtype).eps, 2e-3)
        assert (whole[:, :before] == UNTOUCHED).all() and (whole[:, before + channels :] == UNTOUCHED).all()


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


# cuDNN's graphs

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
