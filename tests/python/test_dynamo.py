"""`torch.compile(model, backend="nimble")`: Dynamo finds the graphs, Nimble runs them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from support import assert_same
from torch import nn

import nimble


@pytest.fixture(autouse=True)
def without_grad(made_for_dynamo):
    with torch.no_grad():
        yield


def small_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5)
    ).eval()


def replays(made: list) -> list[int]:
    """Of each graph that Dynamo found."""
    return [graph.stats["replays"] for graph in made]


def test_the_backend_is_found_by_its_entry_point():
    assert "nimble" in torch._dynamo.list_backends()


def test_answers_are_eagers_and_replayed_from_the_third_call_on(made_for_dynamo):
    model = small_model()
    fast = torch.compile(model, backend="nimble")
    for number in range(1, 6):
        x = torch.randn(2, 3, 4, 4)
        assert_same(fast(x), model(x))
        assert replays(made_for_dynamo) == [max(0, number - 2)], made_for_dynamo[0].explain()


def test_parameters_are_read_where_they_are(made_for_dynamo):
    model = small_model()
    fast = torch.compile(model, backend="nimble")
    x = torch.randn(2, 3, 4, 4)
    for _ in range(4):
        fast(x)
    for parameter in model.parameters():
        parameter.mul_(1.5)
    assert_same(fast(x), model(x))
    assert replays(made_for_dynamo) == [3], made_for_dynamo[0].explain()


def test_another_shape_is_another_graph(made_for_dynamo):
    model = small_model()
    fast = torch.compile(model, backend="nimble", dynamic=False)
    for batch in (1, 2, 3) * 4:
        x = torch.randn(batch, 3, 4, 4)
        assert_same(fast(x), model(x))
    assert replays(made_for_dynamo) == [2, 2, 2]


def test_one_graph_for_many_shapes_is_recorded_for_each(made_for_dynamo):
    """Dynamo makes the second size a variable by itself."""
    model = small_model()
    fast = torch.compile(model, backend="nimble")
    for batch in (2, 3, 4, 5) * 4:
        x = torch.randn(batch, 3, 4, 4)
        assert_same(fast(x), model(x))
    of_one_shape, of_all = made_for_dynamo
    assert of_one_shape.stats["recordings"] == 1
    assert of_all.stats["recordings"] == 4
    # Of its fifteen calls two for each shape come before the first replay.
    assert of_all.stats["replays"] == 7, of_all.explain()


def test_sizes_that_are_variables_from_the_first_call_on(made_for_dynamo):
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))
    fast = torch.compile(model, backend="nimble", dynamic=True)
    for batch in (2, 3, 4, 5) * 4:
        x = torch.randn(batch, 6)
        assert_same(fast(x), model(x))
    assert replays(made_for_dynamo) == [8], made_for_dynamo[0].explain()


def test_numbers_that_dynamo_reads_from_tensors_are_refused_by_name(made_for_dynamo):
    """With `dynamic=True` a batch norm's `eps` comes as a tensor, and the graph begins with its `.item()`."""
    model = small_model()
    fast = torch.compile(model, backend="nimble", dynamic=True)
    inputs = [torch.randn(2, 3, 4, 4) for _ in range(4)]
    with pytest.warns(nimble.FallbackWarning, match="_local_scalar_dense"):
        answers = [fast(x) for x in inputs]
    assert_same(answers, [model(x) for x in inputs])
    assert replays(made_for_dynamo) == [0]


def test_what_stands_on_both_sides_of_a_graph_break_is_replayed(made_for_dynamo):
    def function(x):
        y = torch.relu(x) * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    fast = torch.compile(function, backend="nimble")
    for _ in range(4):
        x = torch.rand(5)
        assert_same(fast(x), function(x))
    assert replays(made_for_dynamo) == [2, 2]


def test_options_are_passed_on(made_for_dynamo):
    fast = torch.compile(lambda x: x * 2, backend="nimble", options={"validate_every": 2})
    for _ in range(8):
        assert_same(fast(torch.ones(2)), torch.full((2,), 2.0))
    assert replays(made_for_dynamo) == [3]  # of six calls, every other one is run both ways
    wrong = torch.compile(lambda x: x * 3, backend="nimble", options={"no_such_option": 1})
    with pytest.raises(Exception, match="no_such_option"):
        wrong(torch.ones(2))


def test_results_are_the_callers(made_for_dynamo):
    fast = torch.compile(lambda x: x * 2, backend="nimble")
    inputs = [torch.randn(3) for _ in range(6)]
    results = [fast(x) for x in inputs]
    assert_same(results, [x * 2 for x in inputs])
    assert replays(made_for_dynamo) == [4]


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
