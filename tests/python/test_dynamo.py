"""`torch.compile(model, backend="nimble")`: Dynamo finds the graphs, Nimble runs them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from support import assert_same
from torch import nn


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def small_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5)
    ).eval()


def test_the_backend_is_found_by_its_entry_point():
    assert "nimble" in torch._dynamo.list_backends()


def test_answers_are_eagers():
    model = small_model()
    fast = torch.compile(model, backend="nimble")
    for _ in range(5):
        x = torch.randn(2, 3, 4, 4)
        assert_same(fast(x), model(x))


def test_parameters_are_read_where_they_are():
    model = small_model()
    fast = torch.compile(model, backend="nimble")
    x = torch.randn(2, 3, 4, 4)
    for _ in range(4):
        fast(x)
    for parameter in model.parameters():
        parameter.mul_(1.5)
    assert_same(fast(x), model(x))


def test_another_shape_is_another_graph():
    model = small_model()
    fast = torch.compile(model, backend="nimble", dynamic=False)
    for batch in (1, 2, 3, 1, 2, 3, 1, 2, 3):
        x = torch.randn(batch, 3, 4, 4)
        assert_same(fast(x), model(x))


def test_dynamic_shapes_are_answered_too():
    model = small_model()
    fast = torch.compile(model, backend="nimble", dynamic=True)
    for batch in (2, 3, 4, 5, 2, 3, 4, 5):
        x = torch.randn(batch, 3, 4, 4)
        assert_same(fast(x), model(x))


def test_a_graph_break_is_dynamos_business():
    def function(x):
        y = torch.relu(x) * 2
        if y.sum().item() > 0:
            return y + 1
        return y - 1

    fast = torch.compile(function, backend="nimble")
    for _ in range(4):
        x = torch.randn(5)
        assert_same(fast(x), function(x))


def test_options_are_passed_on():
    fast = torch.compile(lambda x: x * 2, backend="nimble", options={"streams": 1})
    assert_same(fast(torch.ones(2)), torch.full((2,), 2.0))
    wrong = torch.compile(lambda x: x * 3, backend="nimble", options={"no_such_option": 1})
    with pytest.raises(Exception, match="no_such_option"):
        wrong(torch.ones(2))


def test_results_are_the_callers():
    fast = torch.compile(lambda x: x * 2, backend="nimble")
    inputs = [torch.randn(3) for _ in range(6)]
    results = [fast(x) for x in inputs]
    assert_same(results, [x * 2 for x in inputs])


def test_who_does_not_use_dynamo_does_not_wait_for_its_import():
    program = """
import sys, torch, nimble
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).eval()
with torch.no_grad():
    fast = nimble.compile(model, rewrites="default").prepare(torch.randn(1, 3, 4, 4))
assert "torch._dynamo" not in sys.modules
print(fast.explain())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "recorded" in ended.stdout
