"""Inputs and parameters that get one and the same gradient."""

from __future__ import annotations

import pytest
import torch
from support import assert_same
from torch import nn

import nimble


class SumOfParameters(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(3, 5)), nn.Parameter(torch.randn(3, 5))

    def forward(self, x):
        return x + self.a + self.b


@pytest.mark.parametrize(
    "function",
    [lambda a, b: (a + b) * 2, lambda a, b: torch.layer_norm(a + b, [5]), lambda a, b: (a + b, a)],
    ids=["scaled sum", "norm of a sum", "an input is a result too"],
)
def test_two_inputs_that_are_added(function):
    fast = nimble.compile(function)

    def gradients(f, values):
        inputs = [value.clone().requires_grad_() for value in values]
        results = f(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        sum(result.square().sum() for result in results).backward()
        return [value.grad for value in inputs]

    for _ in range(5):
        values = torch.randn(3, 5), torch.randn(3, 5)
        first, second = gradients(fast, values)
        assert_same([first, second], gradients(function, values))
        assert first.data_ptr() != second.data_ptr()


def test_two_parameters_that_are_added():
    model = SumOfParameters()
    fast = nimble.compile(model)
    for _ in range(5):
        x = torch.randn(3, 5)
        answers = []
        for f in (fast, model):
            model.zero_grad()
            f(x).square().sum().backward()
            answers.append([model.a.grad.clone(), model.b.grad.clone()])
        assert_same(*answers)
    assert fast.stats["replays"] > 0
