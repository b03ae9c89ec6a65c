"""Real models, replayed on fresh inputs, give eager's answer to the last bit."""

from __future__ import annotations

import re

import pytest
import torch
from model_checks import build, grad_mode, parameters
from model_lists import ALL, TIMM, TORCHVISION, TRANSFORMERS
from support import assert_same, same_bits
from torch import Tensor
from torch.utils._pytree import tree_leaves

import nimble


@pytest.mark.parametrize("case", parameters([case for case in ALL if not case.refused]))
def test_replays_on_fresh_inputs_with_eagers_bits(case):
    model = build(case)
    fast = nimble.compile(model, strict=True)
    with grad_mode(case):
        args, kwargs = case.inputs()
        fast.prepare(*args, **kwargs)
        replays, answers = fast.stats["replays"], []
        for seed in (1, 2):
            args, kwargs = case.inputs()
            torch.manual_seed(seed)
            expected = model(*args, **kwargs)
            after_eager = torch.get_rng_state()
            torch.manual_seed(seed)
            actual = fast(*args, **kwargs)
            assert_same(actual, expected)
            assert torch.equal(torch.get_rng_state(), after_eager)
            answers.append([leaf for leaf in tree_leaves(actual) if isinstance(leaf, Tensor)])
    assert fast.stats["replays"] == replays + 2
    assert fast.stats["eager_calls"] == 0
    assert fast.stats["cached"] == 1
    # An answer that ignores its input would pass everything above.
    assert not any(same_bits(a, b) for a, b in zip(*answers, strict=True))


@pytest.mark.parametrize("case", parameters([case for case in ALL if case.refused]))
def test_refuses_by_name_and_leaves_the_model_working(case):
    model = build(case)
    args, kwargs = case.inputs()
    with torch.no_grad():
        with pytest.raises(nimble.RecordError, match=re.escape(case.refused)):
            nimble.compile(model).prepare(*args, **kwargs)
        expected = model(*args, **kwargs)
        with pytest.warns(nimble.FallbackWarning, match=re.escape(case.refused)):
            assert_same(nimble.compile(model)(*args, **kwargs), expected)


def test_the_lists_are_as_long_and_wide_as_promised():
    def accepted(cases):
        return [case for case in cases if not case.refused]

    assert len(accepted(TORCHVISION)) >= 20
    assert len(accepted(TIMM)) >= 20
    assert len(accepted(TRANSFORMERS)) >= 12
    assert len({str(case) for case in ALL}) == len(ALL)
    # The part that always runs is a third of the whole, give or take.
    assert 0.25 < sum(not case.full for case in ALL) / len(ALL) < 0.45
