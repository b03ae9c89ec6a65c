"""The thirty steps of the CPU tests on CUDA, with capturable optimizers and float16 scaling beside the others."""

from __future__ import annotations

from functools import partial

import pytest
from training.cases import Case, each_model, make, pairwise
from training.models import MODELS
from training.steps import assert_trains_like_eager

pytestmark = pytest.mark.gpu

PAIRS = pairwise("mlp", "cuda")
OTHER_MODELS = [name for name in MODELS if name != "mlp"]
BY_MODEL = each_model(PAIRS, 8, OTHER_MODELS)
QUICK = BY_MODEL[: 3 * len(OTHER_MODELS)]
LONG = [case for case in BY_MODEL[len(QUICK) :] if case not in QUICK]


def check(case: Case) -> None:
    assert_trains_like_eager(partial(make, case, "cuda"))


@pytest.mark.parametrize("case", PAIRS, ids=str)
def test_every_optimizer_with_every_habit(case):
    check(case)


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_every_model(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("case", LONG, ids=str)
def test_every_model_with_more_optimizers(case):
    check(case)
