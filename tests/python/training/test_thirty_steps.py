"""Thirty steps of training end where eager's end: every loss, parameter, gradient, buffer, optimizer state and random
generator, to the last bit, for all kinds of models, optimizers and habits."""

from __future__ import annotations

from functools import partial

import pytest
from training.cases import Case, each_model, make, pairwise
from training.models import MODELS
from training.steps import assert_trains_like_eager

PAIRS = pairwise("mlp", "cpu")
OTHER_MODELS = [name for name in MODELS if name != "mlp"]
LARGE_MODELS = ("resnet18", "mobilenet_v2", "efficientnet_b0", "nasnet_a")
BY_MODEL = each_model(PAIRS, 8, OTHER_MODELS)
# Each model once, and those that take no time once more.
QUICK = BY_MODEL[: len(OTHER_MODELS)]
QUICK += [case for case in BY_MODEL[len(QUICK) : 2 * len(QUICK)] if case.model not in LARGE_MODELS]
LONG = [case for case in BY_MODEL if case not in QUICK]


def check(case: Case) -> None:
    assert_trains_like_eager(partial(make, case, "cpu"))


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
