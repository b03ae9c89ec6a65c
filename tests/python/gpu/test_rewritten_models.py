"""The model lists on CUDA with every rewrite, in float32 (with TF32 convolutions) and half precision: on fresh inputs
at most twice eager's distance from the model in float64, or four roundings or 1e-5 of the largest value."""

from __future__ import annotations

import re

import pytest
import torch
from model_checks import build, fresh_inputs, parameters
from model_lists import ALL, refused_on_cuda
from rewritten_models import check_rewritten, inputs_of
from support import varies

import nimble

pytestmark = pytest.mark.gpu

REPLAYED = [case for case in ALL if not refused_on_cuda(case)]


def check(case, model, dtype: torch.dtype) -> None:
    args, kwargs = inputs_of(case, "cuda", dtype)
    try:
        model(*args, **kwargs)
    except RuntimeError as error:
        pytest.skip(f"eager raises {error}")
    if varies(lambda: model(*args, **kwargs)):
        pytest.skip("eager varies from run to run; test_models.py is about that")
    check_rewritten(case, model, "cuda", dtype)


@pytest.mark.parametrize("case", parameters(REPLAYED))
def test_stays_as_near_to_float64_as_eager(case):
    check(case, build(case, "cuda"), torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", parameters([case for case in REPLAYED if not case.full][1::3]))
def test_stays_as_near_to_float64_as_eager_in_half_precision(case, dtype):
    check(case, build(case, "cuda").to(dtype), dtype)


@pytest.mark.parametrize("case", parameters([case for case in ALL if refused_on_cuda(case)]))
def test_is_refused_by_name_with_rewrites_too(case):
    args, kwargs = fresh_inputs(case, "cuda")
    with pytest.raises(nimble.RecordError, match=re.escape(refused_on_cuda(case))):
        nimble.compile(build(case, "cuda"), rewrites="default").prepare(*args, **kwargs)
