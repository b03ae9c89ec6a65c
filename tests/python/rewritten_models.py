"""Tries a model of model_lists.py compiled with every rewrite, on any device."""

from __future__ import annotations

import torch
from model_checks import fresh_inputs, grad_mode
from model_lists import ModelCase
from nearness import assert_usually_as_near_as_eager, in_double, is_far_off, is_real_or_complex, leaves_of
from support import replay
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

import nimble

# Many layers add up their roundings, each way in its own order: within this part of the largest value it is chance who
# is nearer.
CHANCE = 1e-5
SEEDS = (1, 2, 3, 4)
# Calls an operator that knows no float64: compared with eager alone.
WITHOUT_DOUBLE = {"transformers-MixtralForCausalLM"}


def inputs_of(case: ModelCase, device: str, dtype: torch.dtype):
    def converted(leaf):
        return leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

    return tree_map(converted, fresh_inputs(case, device))


def eager_is_far_off(samples: list) -> bool:
    """With the random weights and small pictures of the lists eager itself may lose so much in float32 that the check
    drops the rewrites."""
    return any(
        is_far_off(e, x)
        for sample in samples
        for _, e, x in leaves_of(*sample)
        if is_real_or_complex(e) and x is not None
    )


def check_rewritten(
    case: ModelCase, model: nn.Module, device: str, dtype: torch.dtype = torch.float32
) -> str:
    """Fresh inputs are answered by replays that are usually as near to float64 as eager, and no rewrite was dropped
    without need. Returns what `explain` says."""
    # Without measuring everything that can be rewritten is.
    fast = nimble.compile(model, strict=True, rewrites="default", tune=0)
    exact_model, samples = in_double(model), []
    with grad_mode(case):
        args, kwargs = inputs_of(case, device, dtype)
        fast.prepare(*args, **kwargs)
        for seed in SEEDS:
            args, kwargs = inputs_of(case, device, dtype)
            torch.manual_seed(seed)
            eager = model(*args, **kwargs)
            exact_args, exact_kwargs = in_double((args, kwargs))
            exact = None if str(case) in WITHOUT_DOUBLE else exact_model(*exact_args, **exact_kwargs)
            torch.manual_seed(seed)
            samples.append((replay(fast, *args, **kwargs), eager, exact))
    assert_usually_as_near_as_eager(samples, least=CHANCE)
    explained = fast.explain()
    assert "dropped" not in explained or eager_is_far_off(samples), explained
    # An answer that ignores its input would be near to another one like it.
    first, second = (
        [leaf for leaf in tree_leaves(answer) if isinstance(leaf, Tensor)] for answer, _, _ in samples[:2]
    )
    assert not any(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    return explained
