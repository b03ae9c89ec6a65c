"""Training on CUDA with rewrites on: steps keep eager's bits."""

from __future__ import annotations

from functools import partial

import pytest
from training.cases import Case, make
from training.models import MODELS
from training.steps import assert_trains_like_eager

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("model", MODELS)
def test_thirty_steps_keep_eagers_bits(model):
    assert_trains_like_eager(partial(make, Case(model), "cuda"), rewrites="default")
