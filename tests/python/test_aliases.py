"""Arguments that lie in the memory of a tensor outside, or are computed from it, which the function uses as well."""

from __future__ import annotations

import copy

import pytest
import torch
from support import assert_same, replay, warm_up
from torch import Tensor, nn

import nimble


def test_another_part_of_the_same_tensor():
    weight = torch.randn(3, 4)

    def beside_the_whole(row):
        return row * 2 + weight.sum()

    fast = nimble.compile(beside_the_whole)
    warm_up(fast, weight[0])
    assert_same(replay(fast, weight[0]), beside_the_whole(weight[0]))
    for row in (weight[1], weight[2], torch.randn(4)):
        assert_same(fast(row), beside_the_whole(row))
        assert_same(fast(row), beside_the_whole(row))
        assert_same(replay(fast, row), beside_the_whole(row))
    assert_same(replay(fast, weight[0]), beside_the_whole(weight[0]))


def test_the_same_part_of_another_tensor():
    left, right = torch.randn(3, 4), torch.randn(3, 4)

    def beside_both(row):
        return row * 2 + left.sum() - 3 * right.sum()

    fast = nimble.compile(beside_both)
    warm_up(fast, left[1])
    for row in (right[1], left[1], right[1]):
        assert_same(fast(row), beside_both(row))


def test_two_tensors_that_trade_places():
    left, right = torch.randn(3, 4), torch.randn(3, 4)

    def with_both_by_name(a, b):
        return a * 2 + b + left.sum() - right.sum()

    fast = nimble.compile(with_both_by_name)
    warm_up(fast, left, right)
    assert_same(replay(fast, left, right), with_both_by_name(left, right))
    assert_same(fast(right, left), with_both_by_name(right, left))
    left.add_(1)
    other = torch.randn(3, 4)
    assert_same(fast(other, right), with_both_by_name(other, right))


def test_a_write_beside_the_argument_stays_where_it_is():
    pool = torch.zeros(8, 4)
    state = pool[0]

    def counts(row):
        state.add_(1)
        return row * 2

    fast = nimble.compile(counts)
    for row in (3, 3, 3, 3, 4, 5):
        fast(pool[row])
    assert pool[:, 0].tolist() == [6, 0, 0, 0, 0, 0, 0, 0]


class WithPool(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("pool", torch.zeros(4, 6, 8))
        self.scale = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor, slot: Tensor, position: Tensor) -> Tensor:
        slot.index_copy_(0, position, x * self.scale)
        return slot.sum(0) + self.pool.mean()


@torch.no_grad()
def test_a_slot_of_the_models_own_pool():
    model = WithPool()
    eager = copy.deepcopy(model)
    fast = nimble.compile(model)
    for step, slot in enumerate([0, 0, 0, 1, 1, 1, 0, 2, 1]):
        x, position = torch.full((1, 8), step + 1.0), torch.tensor([step % 6])
        assert_same(fast(x, model.pool[slot], position), eager(x, eager.pool[slot], position))
        assert_same(model.pool, eager.pool)
    assert fast.stats["replays"] >= 4


def test_parts_of_a_tensor_that_the_function_does_not_use_are_replayed():
    data = torch.randn(6, 4)
    fast = warm_up(nimble.compile(lambda x: x * 2), data[0])
    for row in data:
        assert_same(replay(fast, row), row * 2)


x = torch.zeros(3)


def test_a_global_with_the_name_of_an_attribute_is_none_of_the_functions():
    class Batch:
        x = 2

    def scaled(values):
        return values * Batch.x

    fast = warm_up(nimble.compile(scaled), x)
    assert_same(replay(fast, torch.ones(3)), torch.full((3,), 2.0))


@pytest.mark.filterwarnings("ignore:.*computed from another one")
@pytest.mark.parametrize("training", [False, True])
def test_gradients_reach_the_tensor_that_an_argument_is_a_part_of(training):
    weight = nn.Parameter(torch.randn(3, 4))

    def loss(row):
        return (row * weight).sum()

    fast = nimble.compile(loss)
    for i in (0, 0, 0, 0, 1, 1, 2):
        seen = []
        for function in (fast, loss):
            weight.grad = None
            row = weight[i] if training else weight[i].detach()
            result = function(row)
            result.backward()
            seen.append([result.detach(), weight.grad])
        assert_same(*seen)


@pytest.mark.filterwarnings("ignore:.*computed from another one")
def test_an_argument_that_was_computed_from_another_one_adds_to_its_gradient_once():
    def product(x, y):
        return (x * y).sum()

    fast = nimble.compile(product)
    for _ in range(5):
        seen = []
        for function in (fast, product):
            x = torch.arange(3.0).requires_grad_()
            function(x, x * 2).backward()
            seen.append(x.grad)
        assert_same(*seen)


SHARED = torch.randn(4, 4)


def times(tensor: Tensor):
    def times_it(x: Tensor) -> Tensor:
        return x @ tensor + 1

    return times_it


def test_a_closure_over_what_a_global_names_as_well():
    function = times(SHARED)
    fast = nimble.compile(function)
    warm_up(fast, SHARED)
    other = torch.randn(4, 4)
    assert_same(fast(other), function(other))
    assert_same(replay(fast, SHARED), function(SHARED))


def test_more_places_than_the_cache_holds_run_eagerly_in_the_end():
    pool = torch.randn(32, 4)

    def beside_the_pool(row):
        return row * 2 + pool.sum()

    fast = nimble.compile(beside_the_pool)
    with pytest.warns(nimble.FallbackWarning, match="elsewhere each time"):
        for _ in range(3):
            for row in pool:
                assert_same(fast(row), beside_the_pool(row))
    assert fast.stats["recordings"] < len(pool)
    assert "elsewhere each time" in fast.explain()
