"""PyTorch's own operator samples, recorded and replayed on fresh values: eager's answer or a refusal by name.

By default a fixed part runs; with --full every operator, with more samples each. docs/operators.md holds the
table of all outcomes, written by operator_table.py.
"""

from __future__ import annotations

import pytest
from operator_outcomes import try_operator
from operator_samples import operators
from operator_table import SAMPLES_EACH, TABLES, read_table

OPERATORS = list(operators())
# Neighbours in PyTorch's list are alike (all unary ones, all of linalg, …), so a stride samples the kinds.
ALWAYS_RUN = OPERATORS[::5]


@pytest.mark.parametrize("operator", ALWAYS_RUN, ids=str)
def test_replays_as_eager_or_is_refused(operator):
    outcome = try_operator(operator, count=3)
    assert not outcome.wrong


@pytest.mark.full
@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_replays_as_eager_or_is_refused_with_all_its_samples(operator):
    outcome = try_operator(operator, count=SAMPLES_EACH)
    assert not outcome.wrong
    assert outcome.verdict == read_table()[operator.name], "run operator_table.py and see what changed"


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_table_in_docs_has_every_operator_and_nothing_wrong(table):
    if not table.path.exists():
        pytest.skip(f"operator_table.py --device {table.device} was not run yet")
    verdicts = read_table(table.path)
    assert set(verdicts) == {str(operator) for operator in table.operators()}
    assert "wrong" not in verdicts.values()
