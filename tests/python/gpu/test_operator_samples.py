"""PyTorch's operator samples on CUDA in float32 and float16: eager's answer or a refusal by name.

By default a fixed part runs; with --full every operator, with more samples each. docs/operators-cuda.md holds the
table of all outcomes, written by operator_table.py --device cuda.
"""

from __future__ import annotations

import pytest
import torch
from operator_outcomes import try_operator
from operator_samples import operators
from operator_table import SAMPLES_EACH, TABLES, read_table

TABLE = TABLES["cuda"]
OPERATORS = TABLE.operators()
# Neighbours in PyTorch's list are alike, so a stride samples the kinds; each type gets operators of its own.
ALWAYS_RUN = [
    operator
    for first, dtype in enumerate(TABLE.dtypes)
    for operator in list(operators("cuda", dtype))[first * 2 :: 4]
]


@pytest.mark.gpu
@pytest.mark.parametrize("operator", ALWAYS_RUN, ids=str)
def test_replays_as_eager_or_is_refused(operator):
    outcome = try_operator(operator, count=3)
    assert not outcome.wrong


@pytest.mark.gpu
@pytest.mark.full
@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_replays_as_eager_or_is_refused_with_all_its_samples(operator):
    outcome = try_operator(operator, count=SAMPLES_EACH)
    assert not outcome.wrong


def test_both_types_have_operators_of_every_kind():
    for dtype in TABLE.dtypes:
        assert sum(operator.dtype == dtype for operator in ALWAYS_RUN) > 100
    assert {operator.dtype for operator in OPERATORS} == {torch.float32, torch.float16}


@pytest.mark.skipif(not TABLE.path.exists(), reason="the table of outcomes on CUDA is not written yet")
def test_the_table_in_docs_has_every_operator_and_nothing_wrong():
    table = read_table(TABLE.path)
    assert set(table) == {str(operator) for operator in OPERATORS}
    assert "wrong" not in table.values()
