"""The model lists of the CPU tests on CUDA: eager's answer to the last bit, or a refusal by name.

Where eager itself answers differently from run to run (kernels that add with atomics), the engine's check
refuses to replay, and the answers of the compiled model must lie within eager's own spread.
"""

from __future__ import annotations

import pytest
import torch
from model_checks import build, fresh_inputs, grad_mode, parameters
from model_lists import ALL, refused_on_cuda
from operator_outcomes import refused_operator, stopped_in_capture
from support import assert_same, assert_within_spread, random_states, same_bits, varies
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

import nimble

pytestmark = pytest.mark.gpu


def refusal_of(fast, args, kwargs) -> str | None:
    """Prepares, and returns the operator that a refusal names."""
    try:
        fast.prepare(*args, **kwargs)
    except nimble.RecordError as error:
        return refused_operator(error)
    except nimble.ValidationError as error:
        if stopped := stopped_in_capture(error):
            return stopped
        raise
    return None


def inputs_of(case, dtype):
    def converted(leaf):
        is_real = isinstance(leaf, Tensor) and leaf.is_floating_point()
        return leaf.to(dtype) if is_real else leaf

    return tree_map(converted, fresh_inputs(case, "cuda"))


@pytest.mark.parametrize("case", parameters(ALL))
def test_replays_with_eagers_bits_or_is_refused_by_name(case):
    try_model(case, build(case, "cuda"), torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", parameters([case for case in ALL if not case.full][::3]))
def test_half_precision_replays_with_eagers_bits_or_is_refused_by_name(case, dtype):
    model = build(case, "cuda").to(dtype)
    args, kwargs = inputs_of(case, dtype)
    try:
        model(*args, **kwargs)
    except RuntimeError as error:
        pytest.skip(f"eager raises {error}")
    try_model(case, model, dtype)


def try_model(case, model, dtype):
    # The default time for measuring is for those who use the model longer than a test does.
    fast = nimble.compile(model, strict=True, tune=0.1)
    with grad_mode(case):
        args, kwargs = inputs_of(case, dtype)
        try:
            refused = refusal_of(fast, args, kwargs)
        except nimble.ValidationError:
            if not varies(lambda: model(*args, **kwargs)):
                raise
            answer = nimble.compile(model)(*args, **kwargs)
            assert_within_spread(answer, lambda: model(*args, **kwargs))
            return
        listed = refused_on_cuda(case)
        if refused and not listed:
            pytest.fail(f'refused; if that is right, list it in REFUSED_ON_CUDA: "{case}": "{refused}"')
        assert refused == listed, "another outcome than model_lists.py says"
        if refused:
            fallen_back = nimble.compile(model)
            with pytest.warns(nimble.FallbackWarning):
                for _ in range(2):  # the first call records, the second captures, and may be what is refused
                    assert_same(fallen_back(*args, **kwargs), model(*args, **kwargs))
        else:
            check_replays(case, model, dtype, fast)


def check_replays(case, model, dtype, fast):
    replays, answers = fast.stats["replays"], []
    for seed in (1, 2):
        args, kwargs = inputs_of(case, dtype)
        torch.manual_seed(seed)
        expected, after_eager = model(*args, **kwargs), random_states()
        torch.manual_seed(seed)
        actual = fast(*args, **kwargs)
        assert_same(actual, expected)
        assert_same(random_states(), after_eager)
        answers.append([leaf for leaf in tree_leaves(actual) if isinstance(leaf, Tensor)])
    assert fast.stats["replays"] == replays + 2
    assert fast.stats["eager_calls"] == 0
    assert fast.stats["cached"] == 1
    # An answer that ignores its input would pass everything above.
    assert not any(same_bits(a, b) for a, b in zip(*answers, strict=True))
