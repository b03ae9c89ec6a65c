"""Inputs of every kind are taken as they are."""

from __future__ import annotations

import pytest
import torch
from support import assert_same, replay, warm_up
from torch import nn

import nimble


@pytest.fixture(autouse=True)
def without_grad():
    with torch.no_grad():
        yield


def doubled(x):
    return x + x, x.reshape(-1), x.sum()


INPUTS = {
    "contiguous": lambda: torch.randn(2, 3, 4, 5),
    "transposed": lambda: torch.randn(4, 3).t(),
    "every other column": lambda: torch.randn(4, 6)[:, ::2],
    "with an offset": lambda: torch.randn(6, 4)[2:],
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "no elements": lambda: torch.randn(0, 3),
    "no dimensions": lambda: torch.randn(()),
    "one element": lambda: torch.randn(1),
    "expanded": lambda: torch.randn(1, 3).expand(4, 3),
    "overlapping windows": lambda: torch.randn(9).unfold(0, 4, 2),
    "complex": lambda: torch.randn(3, 2, dtype=torch.complex64),
    "conjugate view": lambda: torch.randn(3, 2, dtype=torch.complex64).conj(),
    "negative view": lambda: torch.randn(3, 2, dtype=torch.complex64).conj().imag,
    "bool": lambda: torch.rand(3, 4) > 0.5,
    "int64": lambda: torch.randint(-9, 9, (3, 4)),
    "int32": lambda: torch.randint(-9, 9, (3, 4), dtype=torch.int32),
    "uint8": lambda: torch.randint(0, 200, (3, 4), dtype=torch.uint8),
    "float64": lambda: torch.randn(3, 4, dtype=torch.float64),
    "bfloat16": lambda: torch.randn(3, 4).bfloat16(),
    "float16": lambda: torch.randn(3, 4).half(),
    "not a number": lambda: torch.tensor([float("nan"), float("inf"), -0.0, 1e-45]),
}


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS.keys())
def test_an_input_of_this_kind_is_replayed(make):
    fast = nimble.compile(doubled, strict=True).prepare(make())
    for _ in range(2):
        x = make()
        assert_same(replay(fast, x), doubled(x))


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS.keys())
def test_the_input_is_not_changed(make):
    x = make()
    before = x.clone()
    fast = nimble.compile(doubled, strict=True).prepare(x)
    assert_same(x.clone(), before)
    replay(fast, x)
    assert_same(x.clone(), before)


def test_a_parameter_as_an_input_is_replayed():
    fast = nimble.compile(lambda x: x * 2, strict=True).prepare(nn.Parameter(torch.randn(3)))
    x = nn.Parameter(torch.randn(3))
    assert_same(replay(fast, x), x * 2)


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc], ids=str)
def test_a_sparse_input_is_eagers_or_refused_by_name(layout):
    def summed(x):
        return x.to_dense().sum(0)

    fast = nimble.compile(summed)
    x = torch.randn(3, 4).relu().to_sparse(layout=layout)
    with pytest.warns(nimble.FallbackWarning, match=r"(?i)sparse"):
        assert_same(fast(x), summed(x))
    with pytest.raises(nimble.RecordError, match=r"(?i)sparse"):
        nimble.compile(summed).prepare(x)


class TestMutation:
    def test_an_input_written_in_place_is_written(self):
        def accumulate(total, x):
            total.add_(x)
            return total * 2

        fast = nimble.compile(accumulate, strict=True).prepare(torch.zeros(3), torch.ones(3))
        total, x = torch.zeros(3), torch.randn(3)
        result = replay(fast, total, x)
        assert_same(total, x)
        assert_same(result, x * 2)

    def test_every_call_writes_exactly_once(self):
        counter = torch.zeros(())

        def count(x):
            x.add_(1)

        fast = nimble.compile(count)
        for calls in range(1, 7):
            fast(counter)
            assert counter.item() == calls

    def test_prepare_puts_inputs_back(self):
        x = torch.randn(4)
        before = x.clone()
        nimble.compile(lambda x: x.mul_(2)).prepare(x)
        assert_same(x, before)

    def test_an_input_written_in_place_and_returned_is_the_input(self):
        fast = nimble.compile(lambda x: x.mul_(2), strict=True).prepare(torch.ones(3))
        x = torch.ones(3)
        assert replay(fast, x) is x
        assert_same(x, torch.full((3,), 2.0))

    def test_a_slice_of_an_input_is_written(self):
        def write_a_row(x, row):
            x[1].copy_(row)
            x[:, 0] += 1
            return x.sum(0)

        fast = nimble.compile(write_a_row, strict=True).prepare(torch.zeros(3, 2), torch.ones(2))
        x, y, row = torch.randn(3, 2), None, torch.randn(2)
        y = x.clone()
        assert_same(replay(fast, x, row), write_a_row(y, row))
        assert_same(x, y)

    def test_autograd_sees_the_write(self):
        fast = nimble.compile(lambda x: x.mul_(2), strict=True).prepare(torch.ones(3))
        x = torch.ones(3)
        version = x._version
        replay(fast, x)
        assert x._version > version

    def test_a_result_that_the_write_would_reach_is_right(self):
        def read_then_write(x):
            before = x + 0
            x.zero_()
            return before, x + 1

        fast = nimble.compile(read_then_write, strict=True).prepare(torch.ones(3))
        x = torch.randn(3)
        expected = read_then_write(x.clone())
        assert_same(replay(fast, x), expected)


class TestAliases:
    def test_one_tensor_given_twice(self):
        def function(x, y):
            return x * 2 + y

        fast = nimble.compile(function, strict=True)
        x = torch.randn(3)
        fast.prepare(x, x)
        z = torch.randn(3)
        assert_same(replay(fast, z, z), z * 3)

    def test_overlapping_views(self):
        def shift(left, right):
            left.copy_(right * 2)
            return right + 0

        fast = nimble.compile(shift)
        for _ in range(4):
            memory = torch.randn(6)
            twin = memory.clone()
            assert_same(fast(memory[:4], memory[2:]), shift(twin[:4], twin[2:]))
            assert_same(memory, twin)
        assert fast.stats["replays"] > 0

    def test_disjoint_views_of_one_tensor(self):
        def write(left, right):
            left.add_(1)
            right.mul_(2)

        fast = nimble.compile(write)
        for _ in range(4):
            memory = torch.randn(6)
            twin = memory.clone()
            fast(memory[:3], memory[3:])
            write(twin[:3], twin[3:])
            assert_same(memory, twin)

    def test_an_input_that_is_a_parameter(self):
        model = nn.Linear(3, 3)
        fast = nimble.compile(lambda x: model(x))
        for _ in range(4):
            assert_same(fast(model.weight), model(model.weight))
        # An input that merely looks like it is another signature.
        x = torch.randn(3, 3)
        assert_same(fast(x), model(x))

    def test_an_input_that_writes_a_parameter(self):
        layer = nn.Linear(2, 2, bias=False)

        def write_and_use(weight, x):
            weight.mul_(0.5)
            return layer(x)

        fast = nimble.compile(write_and_use)
        twin = layer.weight.clone()
        for _ in range(4):
            x = torch.randn(1, 2)
            result = fast(layer.weight, x)
            twin = twin * 0.5
            assert_same(layer.weight.clone(), twin)
            assert_same(result, nn.functional.linear(x, twin))


class TestStructures:
    def test_keyword_arguments_and_defaults(self):
        def function(x, *, scale, shift=None):
            return x * scale if shift is None else x * scale + shift

        fast = nimble.compile(function)
        x, scale, shift = torch.randn(3), torch.randn(3), torch.randn(3)
        warm_up(fast, x, scale=scale)
        assert_same(replay(fast, x, scale=scale), function(x, scale=scale))
        warm_up(fast, x, scale=scale, shift=shift)
        assert_same(replay(fast, x, scale=scale, shift=shift), function(x, scale=scale, shift=shift))
        assert_same(fast(x, shift=shift, scale=scale), function(x, scale=scale, shift=shift))

    def test_keyword_arguments_keep_their_order(self):
        def joined(**parts):
            return torch.cat([*parts.values()]), {name: part * 2 for name, part in parts.items()}

        fast = nimble.compile(joined)
        x, y = torch.randn(3), torch.randn(3)
        for parts in ({"left": x, "right": y}, {"right": y, "left": x}, {"left": y, "right": x}):
            warm_up(fast, **parts)
            result = replay(fast, **parts)
            assert_same(result, joined(**parts))
            assert list(result[1]) == list(parts)

    def test_dictionaries_keep_their_order(self):
        fast = nimble.compile(lambda parts: torch.cat([*parts.values()]))
        x, y = torch.randn(3), torch.randn(3)
        for parts in ({"left": x, "right": y}, {"right": y, "left": x}):
            warm_up(fast, parts)
            assert_same(replay(fast, parts), torch.cat([*parts.values()]))

    def test_which_keyword_a_tensor_is_given_by_matters(self):
        def function(x, *, plus=None, minus=None, twice=False):
            result = x if plus is None else x + plus
            result = result if minus is None else result - minus
            return result * 2 if twice else result

        fast = nimble.compile(function)
        x, y = torch.randn(3), torch.randn(3)
        for keywords in (
            {"plus": y},
            {"minus": y},
            {"plus": None, "minus": y},
            {"minus": y, "twice": True},
            {"minus": y, "twice": 1},
            {"plus": y, "minus": y, "twice": False},
        ):
            warm_up(fast, x, **keywords)
            assert_same(replay(fast, x, **keywords), function(x, **keywords))
        assert fast.stats["cached"] == 6

    def test_nested_structures(self):
        def function(batch):
            return batch["a"][0] + batch["b"].sum() + batch["scale"]

        fast = nimble.compile(function, strict=True)
        fast.prepare({"a": [torch.randn(3)], "b": torch.randn(2), "scale": 2})
        batch = {"a": [torch.randn(3)], "b": torch.randn(2), "scale": 2}
        assert_same(replay(fast, batch), function(batch))

    def test_a_shape_stays_a_shape(self):
        def grow(x, shape):
            return x.sum() + torch.zeros(shape.numel())

        fast = nimble.compile(grow)
        for _ in range(3):
            x = torch.randn(3)
            assert_same(fast(x, torch.Size([2, 2])), grow(x, torch.Size([2, 2])))

    def test_no_arguments_at_all(self):
        weight = torch.randn(3)
        fast = nimble.compile(lambda: weight * 2, strict=True).prepare()
        weight.fill_(4)
        assert_same(replay(fast), torch.full((3,), 8.0))

    def test_an_unused_input(self):
        fast = nimble.compile(lambda x, unused: x + 1, strict=True).prepare(torch.ones(2), torch.ones(5))
        assert_same(replay(fast, torch.zeros(2), torch.zeros(5)), torch.ones(2))

    def test_an_argument_that_cannot_be_hashed(self):
        def function(x, options):
            return x * options.scale

        class Options:
            __hash__ = None

            def __init__(self, scale):
                self.scale = scale

        fast = nimble.compile(function)
        x, two, three = torch.randn(3), Options(2), Options(3)
        warm_up(fast, x, two)
        assert_same(fast(x, three), x * 3)
        assert_same(fast(x, two), x * 2)
