"""Generated kernels with a layer norm or a softmax inside: no further from float64 than eager's calls, one after the
other; the pointwise work before it gives eager's bits."""

from __future__ import annotations

import pytest
import torch
from gpu.kernels.checks import error_of, ops, random
from torch import Tensor
from torch.nn import functional

pytestmark = pytest.mark.gpu

LENGTHS = [1, 3, 31, 33, 64, 197, 768, 1000, 1024, 1025, 3072, 4097, 8192]


def sum_and_norm(columns: int) -> str:
    return (
        f"%0 = add.Tensor(x0, x1, 1); %1 = native_layer_norm(%0, [{columns}], x2, x3, 1e-05); return %0, %1"
    )


MASKED_SOFTMAX = (
    "%0 = mul.Scalar(x0, 0.125); %1 = add.Tensor(%0, x1, 1); %2 = _softmax(%1, -1, false); return %2"
)


def assert_no_worse_than_eager(result: Tensor, eager: Tensor, exact: Tensor, dtype: torch.dtype) -> None:
    """Where eager happens to be near, a few roundings are still allowed: there are several on the way."""
    assert result.dtype == eager.dtype and result.stride() == eager.stride()
    assert error_of(result, exact) <= max(2 * error_of(eager, exact), 4 * torch.finfo(dtype).eps)


def norm_of(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias)


def check_sum_and_norm(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor) -> None:
    total, result = ops.rows([a, b, weight, bias], sum_and_norm(a.shape[-1]))
    assert torch.equal(total, a + b)
    exact = norm_of(total.double(), weight.double(), bias.double())
    assert_no_worse_than_eager(result, norm_of(total, weight, bias), exact, a.dtype)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return (scores * 0.125 + mask).softmax(-1)


def check_softmax(scores: Tensor, mask: Tensor) -> None:
    [result] = ops.rows([scores, mask], MASKED_SOFTMAX)
    # What is rounded before it is eager's bits.
    exact = (scores * 0.125 + mask).double().softmax(-1)
    assert_no_worse_than_eager(result, masked_softmax(scores, mask), exact, scores.dtype)


@pytest.mark.parametrize("rows", [1, 7, 128, 2001])
@pytest.mark.parametrize("columns", LENGTHS)
def test_a_sum_and_its_layer_norm(dtype, columns, rows):
    a, b = random(rows, columns, dtype=dtype), random(rows, columns, dtype=dtype)
    check_sum_and_norm(a, b, random(columns, dtype=dtype), random(columns, dtype=dtype))


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4, 8])
def test_rows_that_begin_between_two_vectors(dtype, offset):
    flat, weight = random(16 * 768 + 8, dtype=dtype), random(768 + 8, dtype=dtype)
    x = flat[offset : offset + 16 * 768].view(16, 768)
    check_sum_and_norm(x, x, weight[offset : offset + 768], weight[:768])


def test_rows_that_lie_apart(dtype):
    whole = random(64, 3, 768, dtype=dtype)
    check_sum_and_norm(whole[:, 1], whole[:, 2], random(768, dtype=dtype), random(768, dtype=dtype))


@pytest.mark.parametrize("columns", [768, 4096])
def test_rows_far_from_zero(columns):
    x = random(64, columns, dtype=torch.float32) + 1e5
    [result] = ops.rows([x], f"%0 = native_layer_norm(x0, [{columns}], none, none, 1e-05); return %0")
    assert error_of(result, norm_of(x.double())) < 1e-6


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norms_without_weight_or_bias(dtype, weight, bias):
    x, y = random(9, 500, dtype=dtype), random(500, dtype=dtype)
    text = f"%0 = native_layer_norm(x0, [500], {'x1' if weight else 'none'}, {'x1' if bias else 'none'}, 1e-05); "
    [result] = ops.rows([x, y], text + "%1 = add.Tensor(%0, x1, 1); return %1")

    def eager(x: Tensor, y: Tensor) -> Tensor:
        return norm_of(x, y if weight else None, y if bias else None) + y

    assert_no_worse_than_eager(result, eager(x, y), eager(x.double(), y.double()), dtype)


@pytest.mark.parametrize("rows", [1, 60, 1536])
@pytest.mark.parametrize("columns", LENGTHS)
def test_a_masked_softmax(dtype, columns, rows):
    check_softmax(random(rows, columns, dtype=dtype) * 8, random(columns, dtype=dtype))


@pytest.mark.parametrize(
    "shape", [(128,), (50, 128), (2, 1, 1, 128), (2, 1, 50, 128), (2, 12, 50, 1), (1,)], ids=str
)
def test_masks_in_every_form_of_broadcasting(dtype, shape):
    check_softmax(random(2, 12, 50, 128, dtype=dtype), random(*shape, dtype=dtype))


def test_masked_rows_and_what_is_no_number(dtype):
    for columns in (70, 2000):
        scores, mask = (
            random(6, columns, dtype=dtype),
            torch.zeros(6, columns, device="cuda", dtype=dtype),
        )
        mask[0, 30:], mask[1] = -torch.inf, -torch.inf
        scores[2, 7], scores[3, 7], scores[4, 7] = torch.nan, torch.inf, -torch.inf
        [result] = ops.rows([scores, mask], MASKED_SOFTMAX)
        eager = masked_softmax(scores, mask)
        assert torch.equal(result.isnan(), eager.isnan())
        assert result[1].isnan().all() and (result[0, 30:] == 0).all()
        torch.testing.assert_close(result, eager, equal_nan=True)
        weight, zero = torch.ones(columns, device="cuda", dtype=dtype), torch.zeros_like(scores)
        _, norm = ops.rows([scores, zero, weight, weight], sum_and_norm(columns))
        assert torch.equal(norm.isnan(), norm_of(scores, weight, weight).isnan())


def test_a_safe_softmax_gives_nothing_for_a_masked_row(dtype):
    scores, mask = random(5, 100, dtype=dtype), torch.rand(5, 100, device="cuda") < 0.5
    mask[1] = True
    text = "%0 = masked_fill.Scalar(x0, x1, -inf); %1 = _safe_softmax(%0, -1, none); return %1"
    [result] = ops.rows([scores, mask], text)
    eager = torch.ops.aten._safe_softmax(scores.masked_fill(mask, -torch.inf), -1)
    assert (result[1] == 0).all()
    torch.testing.assert_close(result, eager)


def test_a_softmax_may_widen_its_result():
    x = random(40, 100, dtype=torch.float16)
    [result] = ops.rows([x], "%0 = neg(x0); %1 = _softmax(%0, -1, true); return %1")
    eager = torch.softmax(-x, -1, dtype=torch.float32)
    assert_no_worse_than_eager(result, eager, (-x).double().softmax(-1), torch.float32)


@pytest.mark.parametrize("rows", [3, 1000])
def test_what_follows_is_computed_on_the_spot(dtype, rows):
    x, y, weight = random(rows, 768, dtype=dtype), random(rows, 768, dtype=dtype), random(768, dtype=dtype)

    def eager(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        total = x + y
        return functional.gelu(norm_of(total, weight, weight)) * total

    text = (
        "%0 = add.Tensor(x0, x1, 1); %1 = native_layer_norm(%0, [768], x2, x2, 1e-05); %2 = gelu(%1, 'none'); "
        "%3 = mul.Tensor(%2, %0); return %3"
    )
    [result] = ops.rows([x, y, weight], text)
    exact = eager(x.double(), y.double(), weight.double())
    assert_no_worse_than_eager(result, eager(x, y, weight), exact, dtype)


@pytest.mark.parametrize("columns", [100, 768, 3072, 8192])
@pytest.mark.parametrize("rows", [7, 1000])
def test_the_other_division_of_the_work(dtype, rows, columns):
    a, b, weight = (random(*shape, dtype=dtype) for shape in [(rows, columns), (rows, columns), (columns,)])
    total, result = ops.rows([a, b, weight, weight], sum_and_norm(columns), 1)
    assert torch.equal(total, a + b)
    exact = norm_of(total.double(), weight.double(), weight.double())
    assert_no_worse_than_eager(result, norm_of(total, weight, weight), exact, dtype)


def test_the_same_bits_each_time(dtype):
    x, mask = random(600, 4000, dtype=dtype), random(4000, dtype=dtype)
    [first] = ops.rows([x, mask], MASKED_SOFTMAX)
    for _ in range(20):
        [again] = ops.rows([x, mask], MASKED_SOFTMAX)
        assert torch.equal(first, again)


def test_rows_that_no_kernel_handles_run_as_eager_does():
    x = random(5, 9000, dtype=torch.float32)
    [result] = ops.rows([x], "%0 = neg(x0); %1 = _softmax(%0, -1, false); return %1")
    assert torch.equal(result, (-x).softmax(-1))
    columns = random(64, 8, dtype=torch.float32).t()
    [result] = ops.rows([columns], "%0 = neg(x0); %1 = _softmax(%0, -1, false); return %1")
    assert torch.equal(result, (-columns).softmax(-1))
