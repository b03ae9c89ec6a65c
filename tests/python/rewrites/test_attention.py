"""Projections of one input become one product."""

from __future__ import annotations

import pytest
import torch
from nearness import assert_as_near_as_eager, in_double
from rewrites.attention import Attention
from support import replay

import nimble


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@torch.no_grad()
def test_query_key_and_value_are_one_product(bias):
    model, x = Attention(bias=bias).eval(), torch.randn(2, 5, 32)
    plain = nimble.compile(model, strict=True).prepare(x)
    fast = nimble.compile(model, strict=True, rewrites=["merge_linears"], tune=0).prepare(x)
    assert fast.stats["tasks"] == plain.stats["tasks"] - 2, fast.explain()
    fresh = torch.randn_like(x)
    assert_as_near_as_eager(replay(fast, fresh), model(fresh), in_double(model)(fresh.double()), least=1e-6)


@torch.no_grad()
def test_the_product_follows_each_of_its_weights():
    model, x = Attention().eval(), torch.randn(2, 5, 32)
    fast = nimble.compile(model, strict=True, rewrites=["merge_linears"], tune=0).prepare(x)
    names = list(model.state_dict())
    for parameter in (model.query.weight, model.key.bias, model.value.weight):
        parameter.mul_(1.5)
        torch.testing.assert_close(replay(fast, x), model(x), rtol=1e-4, atol=1e-5)
    assert fast.stats["recordings"] == 1
    assert list(fast.state_dict()) == names
