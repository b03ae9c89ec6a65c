"""Generated kernels with reductions of rows inside: no further from float64 than eager's calls, one after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from gpu.kernels.checks import error_of, ops, random
from torch import Tensor
from torch.nn import functional

pytestmark = pytest.mark.gpu

LENGTHS = [1, 33, 768, 1025, 8192]
REDUCTIONS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "sum": ("sum.dim_IntList(%0, [-1], false, none)", lambda x: x.sum(-1)),
    "mean": ("mean.dim(%0, [-1], true, none)", lambda x: x.mean(-1, keepdim=True)),
    "amax": ("amax(%0, [-1], false)", lambda x: x.amax(-1)),
    "amin": ("amin(%0, [-1], true)", lambda x: x.amin(-1, keepdim=True)),
    "norm": ("linalg_vector_norm(%0, 2, [-1], true, none)", lambda x: x.norm(dim=-1, keepdim=True)),
    "norm_1": ("linalg_vector_norm(%0, 1, [-1], false, none)", lambda x: x.norm(p=1, dim=-1)),
    "norm_inf": ("linalg_vector_norm(%0, inf, [-1], false, none)", lambda x: x.norm(p=torch.inf, dim=-1)),
}
RMS_NORM = (
    "%0 = add.Tensor(x0, x1, 1); %1 = pow.Tensor_Scalar(%0, 2); %2 = mean.dim(%1, [-1], true, none); "
    "%3 = add.Scalar(%2, 1e-06, 1); %4 = rsqrt(%3); %5 = mul.Tensor(%0, %4); %6 = mul.Tensor(%5, x2); return %0, %6"
)
COSINE_SIMILARITY = (
    "%0 = linalg_vector_norm(x0, 2, [-1], true, none); %1 = linalg_vector_norm(x1, 2, [-1], true, none); "
    "%2 = div.Tensor(x0, %0); %3 = div.Tensor(x1, %1); %4 = mul.Tensor(%2, %3); "
    "%5 = sum.dim_IntList(%4, [-1], false, none); return %5"
)


def assert_no_worse_than_eager(result: Tensor, eager: Tensor, exact: Tensor) -> None:
    """Where eager happens to be near, a few roundings are still allowed: there are several on the way."""
    assert result.dtype == eager.dtype and result.stride() == eager.stride() and result.shape == eager.shape
    assert error_of(result, exact) <= max(2 * error_of(eager, exact), 4 * torch.finfo(eager.dtype).eps)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


def cosine_similarity(x: Tensor, y: Tensor) -> Tensor:
    return (x / x.norm(dim=-1, keepdim=True) * (y / y.norm(dim=-1, keepdim=True))).sum(-1)


@pytest.mark.parametrize("columns", LENGTHS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_each_reduction_at_the_end_of_a_chain(dtype, name, columns):
    call, eager = REDUCTIONS[name]
    for rows in (7, 601):
        x = random(rows, columns, dtype=dtype)
        [result] = ops.rows([x], f"%0 = sigmoid(x0); %1 = {call}; return %1")
        before = x.sigmoid()  # which is rounded to the type, in eager and here
        assert_no_worse_than_eager(result, eager(before), eager(before.double()))


@pytest.mark.parametrize("columns", LENGTHS)
@pytest.mark.parametrize("candidate", [0, 1])
def test_an_rms_norm_with_the_sum_before_it(dtype, columns, candidate):
    for rows in (7, 601):
        a, b = random(rows, columns, dtype=dtype), random(rows, columns, dtype=dtype)
        weight = random(columns, dtype=dtype)
        total, result = ops.rows([a, b, weight], RMS_NORM, candidate)
        assert torch.equal(total, a + b)
        assert_no_worse_than_eager(result, rms_norm(total, weight), rms_norm(total.double(), weight.double()))


@pytest.mark.parametrize("columns", LENGTHS)
def test_an_rms_norm_that_is_one_call(dtype, columns):
    # So small that it matters what is added under the root.
    x, weight = random(40, columns, dtype=dtype) * 0.01, random(columns, dtype=dtype)
    [result] = ops.rows(
        [x, weight], f"%0 = neg(x0); %1 = _fused_rms_norm(%0, [{columns}], x1, none); return %1"
    )
    eager = functional.rms_norm(-x, (columns,), weight)
    exact = functional.rms_norm(-x.double(), (columns,), weight.double(), eps=torch.finfo(torch.float32).eps)
    assert_no_worse_than_eager(result, eager, exact)


@pytest.mark.parametrize("columns", LENGTHS)
def test_three_reductions_in_two_passes(dtype, columns):
    x, y = random(65, columns, dtype=dtype), random(65, columns, dtype=dtype)
    [result] = ops.rows([x, y], COSINE_SIMILARITY)
    assert_no_worse_than_eager(result, cosine_similarity(x, y), cosine_similarity(x.double(), y.double()))


@pytest.mark.parametrize("columns", LENGTHS)
def test_a_log_softmax(dtype, columns):
    x = random(65, columns, dtype=dtype) * 8
    [result] = ops.rows([x], "%0 = neg(x0); %1 = _log_softmax(%0, -1, false); return %1")
    assert_no_worse_than_eager(result, (-x).log_softmax(-1), (-x).double().log_softmax(-1))


LOSSES = {
    "mse_loss(x0, x1, 0)": functional.mse_loss,
    "smooth_l1_loss(x0, x1, 0, 0.5)": lambda x, y: functional.smooth_l1_loss(x, y, beta=0.5),
    "huber_loss(x0, x1, 0, 1.5)": lambda x, y: functional.huber_loss(x, y, delta=1.5),
}


@pytest.mark.parametrize("shape", [(1,), (10, 10), (3, 1024), (2, 4096)], ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_of_everything(dtype, shape, loss):
    x, y = random(*shape, dtype=dtype), random(*shape, dtype=dtype)
    [result] = ops.rows([x, y], f"%0 = {loss}; %1 = mean(%0, none); return %1")
    assert_no_worse_than_eager(result, LOSSES[loss](x, y), LOSSES[loss](x.double(), y.double()))


def test_squares_of_differences_are_eagers_bits(dtype):
    x, y = random(50, 100, dtype=dtype), random(50, 100, dtype=dtype)
    squares, _ = ops.rows([x, y], "%0 = mse_loss(x0, x1, 0); %1 = amax(%0, [-1], false); return %0, %1")
    assert torch.equal(squares, functional.mse_loss(x, y, reduction="none"))


def test_numbers_and_rows_are_results_side_by_side(dtype):
    x = random(33, 500, dtype=dtype)
    text = "%0 = mean.dim(x0, [-1], false, none); %1 = reshape(%0, [33, 1]); %2 = sub.Tensor(x0, %1, 1); return %0, %2"
    means, rest = ops.rows([x], text)
    assert_no_worse_than_eager(means, x.mean(-1), x.double().mean(-1))
    assert torch.equal(rest, x - means.unsqueeze(-1))


def test_the_type_of_the_result_is_that_of_the_sum():
    x = random(40, 3000, dtype=torch.float16)
    [result] = ops.rows([x], "%0 = abs(x0); %1 = sum.dim_IntList(%0, [-1], false, 6); return %1")
    assert_no_worse_than_eager(result, x.abs().sum(-1, dtype=torch.float32), x.abs().double().sum(-1))


def test_what_is_no_number_spoils_its_row_alone(dtype):
    for columns in (70, 2000):
        x = random(5, columns, dtype=dtype)
        x[1, 7], x[2, 7], x[3, 7] = torch.nan, torch.inf, -torch.inf
        for call, eager in REDUCTIONS.values():
            [result] = ops.rows([x], f"%0 = neg(x0); %1 = {call}; return %1")
            expected = eager(-x)
            assert torch.equal(result.isnan(), expected.isnan()), call
            assert torch.equal(result.isinf(), expected.isinf()), call


def test_the_same_bits_each_time(dtype):
    x, y = random(600, 4000, dtype=dtype), random(600, 4000, dtype=dtype)
    [first] = ops.rows([x, y], COSINE_SIMILARITY)
    for _ in range(20):
        [again] = ops.rows([x, y], COSINE_SIMILARITY)
        assert torch.equal(first, again)
