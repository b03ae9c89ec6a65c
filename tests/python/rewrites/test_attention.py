"""Projections of one input become one product."""

from __future__ import annotations

import re

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


class BeforeAnLstm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (torch.nn.Linear(8, 8, bias=False) for _ in range(3))
        self.lstm = torch.nn.LSTM(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(self.first(x))[0] + self.second(x) * self.third(x)


@torch.no_grad()
def test_who_does_not_go_by_strides_is_given_one_stretch_of_memory():
    # Recorded with zeros, with which whatever else it reads is zero too.
    model, x = BeforeAnLstm().eval(), torch.zeros(5, 2, 8)
    fast = nimble.compile(model, strict=True, rewrites=["merge_linears"], tune=0).prepare(x)
    # The other two become one, so that it had the choice.
    assert re.search(r"merge_linears: 1 times, .* \(mm#\d+ and mm#\d+\)", fast.explain()), fast.explain()
    fresh = torch.randn_like(x)
    torch.testing.assert_close(replay(fast, fresh), model(fresh), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_query_key_and_value_are_one_product_under_autocast():
    model, x = Attention().eval(), torch.randn(2, 5, 32)
    rewrites = ["common_subexpressions", "merge_linears"]  # the input is cast three times
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fast = nimble.compile(model, strict=True, rewrites=rewrites, tune=0).prepare(x)
        assert "merge_linears: 1 times" in fast.explain()
        torch.testing.assert_close(replay(fast, x), model(x), rtol=2e-2, atol=2e-2)


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
