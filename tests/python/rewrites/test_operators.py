"""PyTorch's operator samples with every rewrite: no operator loses precision, or is answered where it was refused.

Each operator is a layer between two pointwise ones, with weights that change after the recording. What is asserted is
in nearness.py: at most twice eager's distance from a run in float64, or four roundings of the largest value, and in
float32 within 1e-4 of the largest value from eager. By default a fixed part runs; with --full every operator.
"""

from __future__ import annotations

import pytest
from operator_outcomes import try_operator
from operator_samples import operators
from rewritten_operators import try_as_layer

OPERATORS = {operator.name: operator for operator in operators()}
# What rewrites look for in single operators on the CPU, and a stride through all kinds.
REWRITTEN = ["nn.functional.conv2d", "nn.functional.rms_norm", "nn.functional.scaled_dot_product_attention"]
SOME = [OPERATORS[name] for name in [*REWRITTEN, *list(OPERATORS)[3::16]]]
REFUSED = ["nonzero", "masked_select", "unique", "item"]


@pytest.mark.parametrize("operator", SOME, ids=str)
def test_stays_as_near_to_float64_as_eager(operator):
    assert not try_as_layer(operator, count=2).wrong


@pytest.mark.full
@pytest.mark.parametrize("operator", OPERATORS.values(), ids=str)
def test_stays_as_near_to_float64_as_eager_with_more_samples(operator):
    assert not try_as_layer(operator, count=5).wrong


@pytest.mark.parametrize("name", REWRITTEN)
def test_these_are_rewritten(name):
    assert try_as_layer(OPERATORS[name], count=5).rewritten


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_replayed_is_refused_as_without_rewrites(name):
    rewritten, plain = try_as_layer(OPERATORS[name], count=2), try_operator(OPERATORS[name], count=2)
    assert rewritten.refused and set(rewritten.refused) == set(plain.refused)
