"""The model lists with every rewrite: on fresh inputs at most twice eager's distance from the model in float64, or 1e-5
of the largest value; and within 1e-4 of the largest value from eager, where eager is that exact itself."""

from __future__ import annotations

import re

import pytest
import torch
from model_checks import build
from model_lists import ALL
from rewritten_models import check_rewritten

import nimble

# Of each kind one that is quick; with --full all.
SOME = {
    "torchvision-googlenet",
    "torchvision-mobilenet_v3_small",
    "torchvision-shufflenet_v2_x0_5",
    "timm-ghostnet_050",
    "timm-vit_tiny_patch16_224",
    "transformers-BertModel",
    "transformers-LlamaForCausalLM",
}


def parameters(cases):
    return [
        pytest.param(case, id=str(case), marks=[] if str(case) in SOME else [pytest.mark.full])
        for case in cases
    ]


@pytest.mark.parametrize("case", parameters([case for case in ALL if not case.refused]))
def test_stays_as_near_to_float64_as_eager(case):
    explained = check_rewritten(case, build(case), "cpu")
    assert "rewrite " in explained or str(case) not in SOME


@pytest.mark.parametrize("case", [case for case in ALL if case.refused and not case.full], ids=str)
def test_is_refused_by_name_with_rewrites_too(case):
    args, kwargs = case.inputs()
    with torch.no_grad(), pytest.raises(nimble.RecordError, match=re.escape(case.refused)):
        nimble.compile(build(case), rewrites="default").prepare(*args, **kwargs)


def test_the_part_that_always_runs_is_in_the_lists():
    assert {str(case) for case in ALL} >= SOME
