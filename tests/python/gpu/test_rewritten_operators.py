"""PyTorch's operator samples on CUDA with every rewrite, in float32 (with TF32 convolutions) and float16: as layers
between pointwise ones, at most twice eager's distance from a run in float64 or four roundings of the largest value.

By default a fixed part runs; with --full every operator, with more samples each."""

from __future__ import annotations

import pytest
from operator_outcomes import try_operator
from operator_samples import operators
from operator_table import TABLES
from rewritten_operators import try_as_layer

pytestmark = pytest.mark.gpu

TABLE = TABLES["cuda"]
BY_NAME = {str(operator): operator for operator in TABLE.operators()}
# Other operators than those that always run without rewrites.
SOME = [
    operator
    for first, dtype in enumerate(TABLE.dtypes)
    for operator in list(operators("cuda", dtype))[1 + first * 2 :: 4]
]
REWRITTEN = ["nn.functional.conv2d", "nn.functional.linear", "nn.functional.max_pool2d", "nn.functional.silu"]
REFUSED = ["nonzero", "masked_select", "item"]


@pytest.mark.parametrize("operator", SOME, ids=str)
def test_stays_as_near_to_float64_as_eager(operator):
    assert not try_as_layer(operator, count=3).wrong


@pytest.mark.full
@pytest.mark.parametrize("operator", BY_NAME.values(), ids=str)
def test_stays_as_near_to_float64_as_eager_with_more_samples(operator):
    assert not try_as_layer(operator, count=6).wrong


@pytest.mark.parametrize("name", REWRITTEN)
def test_these_are_rewritten(name):
    assert try_as_layer(BY_NAME[f"{name}[float32]"], count=5).rewritten


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_replayed_is_refused_as_without_rewrites(name):
    operator = BY_NAME[f"{name}[float32]"]
    rewritten, plain = try_as_layer(operator, count=2), try_operator(operator, count=2)
    assert rewritten.refused and set(rewritten.refused) == set(plain.refused)
