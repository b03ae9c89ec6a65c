"""Results belong to the caller, share memory with what eager's share it with, and keep their structure."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from support import assert_same, replay, storages
from torch import nn

import nimble


@pytest.fixture(autouse=True)
def without_grad():
    with torch.no_grad():
        yield


def compiled(function, *args, **options):
    """Ready to replay."""
    return nimble.compile(function, strict=True, **options).prepare(*args)


def test_a_later_call_does_not_change_an_earlier_result():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    fast = nimble.compile(model)
    inputs = [torch.randn(2, 4) for _ in range(6)]
    results = [fast(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        assert_same(result, model(x))
    assert len({result.data_ptr() for result in results}) == len(results)


def test_writing_into_a_result_does_not_change_later_ones():
    fast = compiled(lambda x: (x * 2, torch.arange(3), torch.ones(2)), torch.randn(3))
    x = torch.randn(3)
    for result in replay(fast, x):
        result.fill_(7)
    assert_same(replay(fast, x), (x * 2, torch.arange(3), torch.ones(2)))


def test_alias_outputs_may_be_overwritten_but_are_right_at_first():
    fast = compiled(lambda x: x * 2, torch.randn(3), outputs="alias")
    x, y = torch.randn(3), torch.randn(3)
    first = replay(fast, x)
    assert_same(first, x * 2)
    second = replay(fast, y)
    assert_same(second, y * 2)
    assert first.data_ptr() == second.data_ptr()


def test_the_input_itself():
    fast = compiled(lambda x: x, torch.randn(3))
    x = torch.randn(3)
    assert replay(fast, x) is x


def test_the_input_among_others():
    fast = compiled(lambda x: (x, x + 1), torch.randn(3))
    x = torch.randn(3)
    same, other = replay(fast, x)
    assert same is x
    assert_same(other, x + 1)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[1:],
        lambda x: x.t(),
        lambda x: x.view(-1),
        lambda x: x.detach(),
        lambda x: x.unsqueeze(0).expand(3, -1, -1),
        lambda x: x.unbind(0),
        lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(2, 2, 2))),
    ],
    ids=["slice", "transposed", "flat", "detached", "expanded", "rows", "via complex"],
)
def test_a_view_of_the_input_is_a_view_of_this_calls_input(view):
    fast = compiled(view, torch.randn(2, 4))
    x = torch.randn(2, 4)
    result = replay(fast, x)
    assert_same(result, view(x))
    assert storages(result) == storages(x)
    x.fill_(5)
    assert_same(result, view(x))


def test_a_parameter():
    model = nn.Linear(3, 2)
    fast = nimble.compile(lambda x: (model.weight, model(x)))
    # A result that requires grad, even a leaf, keeps the call with eager.
    for _ in range(4):
        x = torch.randn(1, 3)
        weight, result = fast(x)
        assert weight is model.weight
        assert_same(result, model(x))


@pytest.mark.parametrize(
    "part", [lambda t: t, lambda t: t.t(), lambda t: t[0]], ids=["all", "transposed", "row"]
)
def test_a_buffer_or_a_view_of_it_is_the_buffers_memory(part):
    model = nn.BatchNorm1d(3).eval()
    model.register_buffer("table", torch.randn(2, 2))
    fast = compiled(lambda x: (part(model.table), model(x)), torch.randn(1, 3))
    x = torch.randn(1, 3)
    result = replay(fast, x)
    assert_same(result, (part(model.table), model(x)))
    model.table.fill_(2)
    assert_same(result[0], part(model.table))


def test_the_same_tensor_twice_is_one_tensor():
    def twice(x):
        y = x + 1
        return y, y

    fast = compiled(twice, torch.randn(3))
    x = torch.randn(3)
    first, second = replay(fast, x)
    assert first is second
    assert_same(first, x + 1)


def test_results_that_are_views_of_each_other_stay_so():
    def both(x):
        y = x * 2
        return y, y[0], y.t()

    fast = compiled(both, torch.randn(2, 2))
    x = torch.randn(2, 2)
    result = replay(fast, x)
    assert_same(result, both(x))
    assert len(storages(result)) == 1
    result[0].fill_(9)
    assert_same(result[1], torch.full((2,), 9.0))


@pytest.mark.parametrize(
    "value", [None, 3, 2.5, "text", True, [], {}, (), torch.float32, [1, [2, {"a": None}]]], ids=repr
)
def test_what_is_no_tensor(value):
    fast = compiled(lambda x: value, torch.randn(3))
    assert replay(fast, torch.randn(3)) == value


def test_nothing_but_an_effect():
    total = torch.zeros(3)

    def accumulate(x):
        total.add_(x)

    fast = compiled(accumulate, torch.ones(3))
    assert_same(total, torch.zeros(3))
    assert replay(fast, torch.ones(3)) is None
    assert replay(fast, torch.ones(3)) is None
    assert_same(total, torch.full((3,), 2.0))


def test_a_shape_stays_a_shape():
    fast = compiled(lambda x: (x.shape, x * 2), torch.randn(2, 3))
    shape, _ = replay(fast, torch.randn(2, 3))
    assert isinstance(shape, torch.Size)
    assert shape == (2, 3)


class Marked(torch.Tensor):
    """A tensor with a name of its own."""


class HasMarkedWeights(torch.nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.weight = torch.nn.Parameter(self.weight.data.as_subclass(Marked))


@pytest.mark.parametrize(
    "function", [lambda x: x.as_subclass(Marked) * 2, HasMarkedWeights(3, 3)], ids=["made", "from weights"]
)
def test_a_result_of_a_class_of_its_own_keeps_its_class(function):
    fast = nimble.compile(function)
    x = torch.randn(2, 3)
    with pytest.warns(nimble.FallbackWarning, match="a result .*Marked.*as_subclass"):
        results = [fast(x) for _ in range(5)]
    assert [type(result) for result in results] == [Marked] * 5
    assert_same(results, [function(x)] * 5)
    assert "Marked" in fast.explain()
    with pytest.raises(nimble.RecordError, match="Marked"):
        nimble.compile(function).prepare(x)


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


def test_nested_structures():
    def nested(x):
        return {"pair": Pair(x + 1, x - 1), "list": [x, (x * 2,), None], "name": "nested", "count": 2}

    fast = compiled(nested, torch.randn(3))
    x = torch.randn(3)
    result = replay(fast, x)
    assert_same(result, nested(x))
    assert isinstance(result["pair"], Pair)
    assert list(result) == ["pair", "list", "name", "count"]


def test_a_mutable_structure_is_new_at_every_call():
    fast = compiled(lambda x: {"y": [x * 2]}, torch.randn(3))
    x = torch.randn(3)
    replay(fast, x)["y"].append("changed by the caller")
    assert_same(replay(fast, x), {"y": [x * 2]})


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.view_as_complex(x).conj(),
        lambda x: torch.view_as_complex(x).conj().imag,
        lambda x: (torch.view_as_complex(x) * 2).conj(),
    ],
    ids=["conjugate of the input", "negative view", "conjugate of a new tensor"],
)
def test_conjugate_and_negative_views(function):
    fast = compiled(function, torch.randn(3, 2))
    x = torch.randn(3, 2)
    result = replay(fast, x)
    assert_same(result, function(x))
    assert_same(result.resolve_conj().resolve_neg(), function(x).resolve_conj().resolve_neg())


def test_results_keep_their_strides():
    def strided(x):
        return (
            x.to(memory_format=torch.channels_last) * 2,
            torch.empty_strided((2, 3), (1, 2)).copy_(x[0, :2, :3, 0]),
            (x * 2)[:, ::2],
        )

    fast = compiled(strided, torch.randn(1, 4, 5, 5))
    x = torch.randn(1, 4, 5, 5)
    assert_same(replay(fast, x), strided(x))


def test_empty_and_zero_dimensional_results():
    def small(x):
        return x.sum(), x[:0] * 2, torch.tensor(3.0), x.new_zeros(0, 3)

    fast = compiled(small, torch.randn(3))
    x = torch.randn(3)
    assert_same(replay(fast, x), small(x))


def test_a_result_outlives_the_compiled_function():
    x = torch.randn(3)
    result = replay(compiled(lambda x: x * 2 + 1, x), x)
    assert_same(result, x * 2 + 1)
    aliased = replay(compiled(lambda x: x * 2 + 1, x, outputs="alias"), x)
    torch.randn(1000)
    assert_same(aliased, x * 2 + 1)


def test_results_do_not_require_grad_and_have_no_history():
    model = nn.Linear(3, 2)
    result = replay(compiled(model, torch.randn(1, 3)), torch.randn(1, 3))
    assert not result.requires_grad
    assert result.grad_fn is None
