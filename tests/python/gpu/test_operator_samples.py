"""PyTorch's operator samples on CUDA in float32 and float16: eager's answer or a refusal by name.

By default a fixed part runs; with --full every operator, with more samples each. docs/operators-cuda.md holds
the table of all outcomes, written by operator_table.py --device cuda.
"""

from __future__ import annotations

import pytest
from operator_outcomes import try_operator
from operator_samples import operators
from operator_table import SAMPLES_EACH, TABLES

pytestmark = pytest.mark.gpu

TABLE = TABLES["cuda"]
OPERATORS = TABLE.operators()
# Neighbours in PyTorch's list are alike, so a stride samples the kinds; each type gets operators of its own.
ALWAYS_RUN = [
    operator
    for first, dtype in enumerate(TABLE.dtypes)
    for operator in list(operators("cuda", dtype))[first * 2 :: 4]
]


@pytest.mark.parametrize("operator", ALWAYS_RUN, ids=str)
def test_replays_as_eager_or_is_refused(operator):
    outcome = try_operator(operator, count=3)
    assert not outcome.wrong


@pytest.mark.full
@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_replays_as_eager_or_is_refused_with_all_its_samples(operator):
    outcome = try_operator(operator, count=SAMPLES_EACH)
    assert not outcome.wrong
