"""Nobody is timed whose answer is not eager's."""

from __future__ import annotations

import math

import pytest
import torch
from nimble.bench.check import NotEagers, are_close, compare, compare_losses

EXPECTED = [torch.linspace(1, 2, 50)]


def test_eagers_bits_are_recognised_whatever_holds_them():
    assert compare({"logits": EXPECTED[0].clone()}, EXPECTED, torch.float32, exact=True) == "same bits"
    assert compare([EXPECTED[0].numpy()], EXPECTED, torch.float32, exact=True) == "same bits"


def test_a_system_with_other_kernels_may_round_otherwise():
    assert compare([EXPECTED[0] * 1.001], EXPECTED, torch.float32, exact=False) == "relative error 1e-03"


def test_a_system_with_eagers_kernels_may_not():
    with pytest.raises(NotEagers, match="relative error"):
        compare([EXPECTED[0] * 1.001], EXPECTED, torch.float32, exact=True)


@pytest.mark.parametrize(
    "wrong",
    [[EXPECTED[0] * 1.5], [EXPECTED[0] * math.nan], [EXPECTED[0][:7]], [EXPECTED[0], EXPECTED[0]], []],
    ids=["values", "nan", "shape", "too many", "none"],
)
def test_a_wrong_answer_is_refused(wrong):
    with pytest.raises(NotEagers):
        compare(wrong, EXPECTED, torch.float32, exact=False)


def test_who_is_as_near_to_the_exact_answer_as_eager_is_not_refused():
    exact = [EXPECTED[0] * 1.04]
    assert "relative error" in compare(
        [EXPECTED[0] * 1.08], EXPECTED, torch.float32, exact=False, reference=lambda: exact
    )
    with pytest.raises(NotEagers):
        compare([EXPECTED[0] * 1.15], EXPECTED, torch.float32, exact=False, reference=lambda: exact)
    with pytest.raises(NotEagers):
        compare([EXPECTED[0] * 1.08], EXPECTED, torch.float32, exact=True, reference=lambda: exact)


def test_half_precision_may_be_further_off():
    off = [EXPECTED[0] * 1.04]
    assert "relative error" in compare(off, EXPECTED, torch.float16, exact=False)
    with pytest.raises(NotEagers):
        compare(off, EXPECTED, torch.float32, exact=False)


def test_losses_are_compared_before_their_differences_grow():
    assert are_close([1.0, 2.0, 9.0], [1.001, 2.0, 4.0], 0.01)
    assert are_close([1.0, 2.06], [1.0, 2.0], 0.01)
    assert not are_close([1.03, 2.0], [1.0, 2.0], 0.01)
    assert not are_close([1.0, 2.5], [1.0, 2.0], 0.01)
    assert not are_close([math.nan], [1.0], 0.5)


def test_losses_of_repeatable_kernels_must_be_the_same_to_the_last_bit():
    eager = [[1.0, 2.0], [1.0, 2.0]]
    assert compare_losses([1.0, 2.0], eager, exact=True, tolerance=0.1) == "same bits"
    assert compare_losses([1.0, 2.0001], eager, exact=False, tolerance=0.1) == "close"
    with pytest.raises(NotEagers, match="losses"):
        compare_losses([1.0, 2.0001], eager, exact=True, tolerance=0.1)


def test_losses_that_eager_itself_does_not_repeat_must_be_close():
    eager = [[1.0, 2.0], [1.0, 2.0001]]
    assert compare_losses([1.0, 2.0002], eager, exact=True, tolerance=0.1) == "close"
