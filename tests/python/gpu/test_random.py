"""Random numbers on the GPU keep the sequence that eager draws."""

from __future__ import annotations

import pytest
import torch
from support import assert_same, random_states, replay
from torch import nn

import nimble

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("streams", [1, "max"])
def test_dropout_draws_eagers_sequence_over_many_replays(streams):
    model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.3), nn.ReLU(), nn.Dropout(0.5)).cuda().train()
    x = torch.randn(8, 16, device="cuda")
    fast = nimble.compile(model, strict=True, streams=streams).prepare(x)
    torch.manual_seed(5)
    expected = [model(x) for _ in range(50)]
    after_eager = random_states()
    torch.manual_seed(5)
    assert_same([replay(fast, x) for _ in range(50)], expected)
    assert_same(random_states(), after_eager)
    # The masks differ from call to call.
    assert len({tuple(answer.flatten().tolist()) for answer in expected}) == 50


def test_random_tasks_keep_their_order_on_many_streams():
    def noisy(x):
        return torch.stack([x + torch.rand_like(x) for _ in range(12)])

    x = torch.zeros(8, device="cuda")
    fast = nimble.compile(noisy, strict=True, streams="max").prepare(x)
    for seed in range(20):
        torch.manual_seed(seed)
        expected = noisy(x)
        torch.manual_seed(seed)
        assert_same(replay(fast, x), expected)


def test_eager_draws_and_replays_take_turns():
    x = torch.zeros(100, device="cuda")
    fast = nimble.compile(torch.rand_like, strict=True).prepare(x)

    def draws(function):
        torch.manual_seed(11)
        return [draw(x) for _ in range(5) for draw in (function, torch.randn_like)]

    assert_same(draws(fast), draws(torch.rand_like))


def test_preparing_draws_nothing():
    x = torch.zeros(100, device="cuda")
    before = random_states()
    nimble.compile(torch.rand_like).prepare(x)
    assert_same(random_states(), before)


def test_attention_that_drops_nothing_moves_no_generator():
    x = torch.randn(1, 2, 16, 8, device="cuda")

    def attend(x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    fast = nimble.compile(attend, strict=True).prepare(x)
    for seed in range(3):
        torch.manual_seed(seed)
        before = random_states()
        assert_same(replay(fast, x), attend(x))
        assert_same(random_states(), before)
