"""Recordings that what lies outside makes stale: noticed, made again, and not for ever. And a `prepare` that came too
early, which stands in nobody's way."""

from __future__ import annotations

import warnings

import pytest
import torch
from support import assert_same, replay, warm_up
from torch import nn
from torch.nn import functional as F

import nimble

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


def set_data_transposed(module):
    module.weight.data = module.weight.data.t()


def transpose(module):
    module.weight.t_()


def look_at_the_other_half(module):
    module.bias.data = module.memory[8:]


class LinearInALargerMemory(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
        self.memory = torch.randn(16)
        self.bias.data = self.memory[:8]


@pytest.mark.parametrize("change", [set_data_transposed, transpose, look_at_the_other_half])
def test_a_parameter_of_another_form_in_the_same_memory_is_recorded_anew(change):
    model = LinearInALargerMemory()
    fast = nimble.compile(model)
    with torch.no_grad():
        warm_up(fast, X)
        assert_same(replay(fast, X), model(X))
        change(model)
        assert_same(fast(X), model(X))
        warm_up(fast, X)
        assert_same(replay(fast, X), model(X))


def momentum_step():
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (X, torch.ones(4, 2))


def test_a_step_that_was_not_set_up_yet_can_be_prepared_after_it_was_called():
    step, arguments = momentum_step()
    fast = nimble.compile(step)
    with pytest.raises(nimble.RecordError, match=r"call the function once, then prepare\(\) again"):
        fast.prepare(*arguments)
    step(*arguments)
    fast.prepare(*arguments)
    fast(*arguments)
    assert fast.stats["replays"] == 1


def test_a_step_that_was_not_set_up_yet_is_replayed_after_a_few_calls():
    step, arguments = momentum_step()
    fast = nimble.compile(step)
    with pytest.raises(nimble.RecordError):
        fast.prepare(*arguments)
    for _ in range(5):
        fast(*arguments)
    assert fast.stats["replays"] >= 2, fast.explain()


class WithACache(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.cache = {}

    def forward(self, x):
        if "weight" not in self.cache:
            self.cache["weight"] = self.linear.weight.exp()
        return self.linear(x) + self.cache["weight"].sum()


def test_a_cache_that_was_empty_while_preparing_is_in_nobodys_way():
    model = WithACache()
    fast = nimble.compile(model)
    with torch.inference_mode():
        with pytest.raises(nimble.RecordError, match="a cache"):
            fast.prepare(X)
        model(X)
        fast.prepare(X)
        assert_same(replay(fast, X), model(X))


def test_what_no_later_call_finds_set_up_is_refused_as_before():
    made = []

    def keeps(x):
        made.append(x.exp())
        return x + 1

    fast = nimble.compile(keeps)
    for _ in range(2):
        with pytest.raises(nimble.RecordError, match="Return the tensor"):
            fast.prepare(X)
    with pytest.warns(nimble.FallbackWarning, match="outlives the function"):
        for _ in range(4):
            fast(X)
    with pytest.raises(nimble.RecordError, match="outlives the function"):
        fast.prepare(X)


def call_flipped(model, fast, n):
    model.train(n % 2 == 0)
    return fast(X)


def call_with_another_weight(model, fast, n):
    model.weight = nn.Parameter(torch.full((8, 8), float(n)))
    return fast(X)


def call_with_other_memory(model, fast, n):
    model.weight.data = torch.full((8, 8), float(n))
    return fast(X)


@pytest.mark.parametrize("call", [call_flipped, call_with_another_weight, call_with_other_memory])
def test_what_is_another_at_each_call_is_not_recorded_for_ever(call):
    model = nn.Linear(8, 8)
    fast = nimble.compile(model)
    with torch.no_grad():
        with pytest.warns(
            nimble.FallbackWarning, match="dropped again and again before any .* answers"
        ) as said:
            for n in range(30):
                assert_same(call(model, fast, n), model(X))
        assert len(said) == 1
        assert fast.stats["recordings"] < 10
        assert fast.stats["eager_calls"] > 20
        assert "dropped again and again" in fast.explain()
        fast.refresh()
        warm_up(fast, X)
        assert_same(replay(fast, X), model(X))


def test_other_memory_is_named_in_the_warning():
    model = nn.Linear(8, 8)
    fast = nimble.compile(model)
    with (
        torch.no_grad(),
        pytest.warns(nimble.FallbackWarning, match=r"of sizes \[8, 8\]\) is given other memory"),
    ):
        for n in range(10):
            call_with_other_memory(model, fast, n)


def test_modes_that_stay_for_some_calls_are_recorded_each_time():
    model = nn.Linear(8, 8)
    fast = nimble.compile(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", nimble.FallbackWarning)
        for n in range(24):
            model.train(n % 2 == 0)
            for _ in range(3):
                assert_same(fast(X), model(X))
    assert fast.stats["recordings"] == 24
    assert fast.stats["replays"] == 24
