"""What the host does between calls: exceptions, counters, replaced tensors. Never frozen, never broken."""

from __future__ import annotations

import warnings

import pytest
import torch
from support import assert_same, replay, warm_up
from torch import nn
from torch.utils._python_dispatch import _len_torch_dispatch_stack

import nimble


@pytest.fixture(autouse=True)
def without_grad():
    with torch.no_grad():
        yield


class TestExceptions:
    def test_an_exception_while_recording_reaches_the_caller_and_leaves_nothing_broken(self):
        fail = [True]

        def function(x):
            y = x * 2
            if fail[0]:
                raise KeyError("from the model")
            return y + 1

        fast = nimble.compile(function)
        x = torch.randn(3)
        for _ in range(2):
            with pytest.raises(KeyError, match="from the model"):
                fast(x)
        with pytest.raises(KeyError, match="from the model"):
            fast.prepare(x)
        assert _len_torch_dispatch_stack() == 0
        fail[0] = False
        assert_same(replay(warm_up(fast, x), x), x * 2 + 1)

    def test_an_exception_of_an_operator(self):
        fast = nimble.compile(lambda x, y: x @ y)
        with pytest.raises(RuntimeError, match="mat1"):
            fast(torch.randn(2, 3), torch.randn(2, 3))
        x, y = torch.randn(2, 3), torch.randn(3, 2)
        assert_same(replay(warm_up(fast, x, y), x, y), x @ y)

    def test_an_exception_in_the_second_call(self):
        calls = []

        def function(x):
            calls.append(None)
            if len(calls) == 2:
                raise KeyError("second")
            return x * 2

        fast = nimble.compile(function)
        x = torch.randn(3)
        assert_same(fast(x), x * 2)
        with pytest.raises(KeyError, match="second"):
            fast(x)
        for _ in range(3):
            assert_same(fast(x), x * 2)

    def test_prepare_puts_state_back_when_the_function_raises(self):
        total = torch.zeros(2)

        def function(x):
            total.add_(x)
            raise KeyError("after a write")

        with pytest.raises(KeyError):
            nimble.compile(function).prepare(torch.ones(2))
        assert_same(total, torch.zeros(2))

    def test_an_error_of_a_kernel_in_a_replay_is_eagers(self):
        def lookup(table, index):
            return table[index] * 2

        fast = nimble.compile(lookup)
        table = torch.randn(3)
        warm_up(fast, table, torch.tensor([0, 1]))
        with pytest.raises(IndexError):
            fast(table, torch.tensor([0, 7]))
        index = torch.tensor([2, 2])
        assert_same(fast(table, index), lookup(table, index))


class TestCallsOfTheFunction:
    def test_the_function_never_runs_more_often_than_it_is_called(self):
        runs = []

        def function(x):
            runs.append(None)
            return x * 2

        fast = nimble.compile(function)
        for calls in range(1, 6):
            fast(torch.randn(3))
            assert len(runs) == min(calls, 2)

    def test_a_replay_does_not_run_it(self):
        runs = []

        def function(x):
            runs.append(None)
            return x * 2

        fast = nimble.compile(function).prepare(torch.randn(3))
        before = len(runs)
        for _ in range(5):
            replay(fast, torch.randn(3))
        assert len(runs) == before


class TestChanges:
    def test_a_host_counter_is_found_before_the_first_replay(self):
        counter = [0]

        def function(x):
            counter[0] += 1
            return x * counter[0]

        fast = nimble.compile(function)
        x = torch.ones(2)
        with pytest.warns(nimble.FallbackWarning):
            for call in range(1, 8):
                assert_same(fast(x), x * call)
        assert fast.stats["replays"] == 0

    def test_a_host_counter_makes_prepare_raise(self):
        counter = [0]

        def function(x):
            counter[0] += 1
            return x * counter[0]

        with pytest.raises(nimble.ValidationError):
            nimble.compile(function).prepare(torch.ones(2))

    def test_a_host_counter_in_the_result_is_found(self):
        counter = [0]

        def function(x):
            counter[0] += 1
            return x * 2, counter[0]

        fast = nimble.compile(function)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nimble.FallbackWarning)
            for call in range(1, 8):
                assert fast(torch.ones(2))[1] == call

    def test_a_closures_tensor_written_in_place_is_read_anew(self):
        scale = torch.tensor(2.0)
        fast = nimble.compile(lambda x: x * scale, strict=True).prepare(torch.ones(3))
        scale.fill_(5)
        assert_same(replay(fast, torch.ones(3)), torch.full((3,), 5.0))

    def test_a_closures_tensor_replaced_is_in_the_next_answer(self):
        scale = torch.tensor(2.0)
        fast = nimble.compile(lambda x: x * scale)
        x = torch.ones(3)
        warm_up(fast, x)
        replay(fast, x)
        scale = torch.tensor(7.0)
        assert_same(fast(x), torch.full((3,), 7.0))

    def test_a_global_tensor_replaced_is_in_the_next_answer(self):
        fast = nimble.compile(times_the_global)
        x = torch.ones(3)
        globals()["GLOBAL"] = torch.tensor(2.0)
        warm_up(fast, x)
        replay(fast, x)
        globals()["GLOBAL"] = torch.tensor(9.0)
        assert_same(fast(x), torch.full((3,), 9.0))

    def test_a_closures_generator_replaced_is_in_the_next_answer(self):
        generator = torch.Generator().manual_seed(1)
        fast = nimble.compile(lambda x: x + torch.randn(3, generator=generator))
        x = torch.zeros(3)
        warm_up(fast, x)
        replay(fast, x)
        generator = torch.Generator().manual_seed(2)
        assert_same(fast(x), torch.randn(3, generator=torch.Generator().manual_seed(2)))

    def test_a_closures_module_is_watched(self):
        layer = nn.Linear(3, 3)
        fast = nimble.compile(lambda x: layer(x))
        x = torch.randn(1, 3)
        warm_up(fast, x)
        layer.weight = nn.Parameter(torch.randn(3, 3))
        assert_same(fast(x), layer(x))

    def test_refresh_is_the_way_for_what_no_guard_sees(self):
        class Settings:
            scale = 2

        settings = Settings()
        fast = nimble.compile(lambda x: x * settings.scale)
        x = torch.ones(3)
        warm_up(fast, x)
        settings.scale = 3
        fast.refresh()
        assert_same(fast(x), torch.full((3,), 3.0))


GLOBAL = torch.tensor(2.0)


def times_the_global(x):
    return x * GLOBAL


class TestValidation:
    def test_validate_every_goes_on_checking(self):
        fast = nimble.compile(lambda x: x * 2, validate_every=3)
        x = torch.randn(3)
        for _ in range(20):
            assert_same(fast(x), x * 2)
        assert fast.stats["validations"] > 3
        assert fast.stats["replays"] > fast.stats["validations"]

    def test_validate_every_finds_a_hidden_change(self):
        class Settings:
            scale = 2

        settings = Settings()
        fast = nimble.compile(lambda x: x * settings.scale, validate_every=2)
        x = torch.ones(3)
        for _ in range(4):
            fast(x)
        settings.scale = 5
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nimble.FallbackWarning)
            for _ in range(12):
                fast(x)
            assert_same(fast(x), torch.full((3,), 5.0))

    def test_the_protocol(self):
        fast = nimble.compile(lambda x: x * 2)
        x = torch.randn(3)
        fast(x)
        assert (fast.stats["validations"], fast.stats["replays"]) == (0, 0)
        fast(x)
        assert (fast.stats["validations"], fast.stats["replays"]) == (1, 0)
        fast(x)
        assert (fast.stats["validations"], fast.stats["replays"]) == (1, 1)

    def test_effects_are_applied_once_in_every_phase(self):
        total = torch.zeros(())

        def function(x):
            total.add_(x.sum())
            return total * 2

        fast = nimble.compile(function)
        for calls in range(1, 6):
            assert_same(fast(torch.ones(2)), torch.tensor(4.0 * calls))


def test_explain_tells_where_a_signature_stands():
    fast = nimble.compile(lambda x: torch.relu(x) * 2)
    assert isinstance(fast.explain(), str)
    x = torch.randn(3, 4)
    fast(x)
    assert "(f32[3, 4])" in fast.explain()
    fast(x)
    replay(fast, x)
    assert "2 tasks, 1 stream, 0 syncs" in fast.explain()


def test_an_escape_with_no_place_to_put_it_back_is_refused():
    kept = []

    def function(x):
        kept.append(x * 2)
        return x + 1

    with pytest.raises(nimble.RecordError):
        nimble.compile(function).prepare(torch.ones(2))
    fast = nimble.compile(function)
    kept.clear()
    with pytest.warns(nimble.FallbackWarning):
        for calls in range(1, 5):
            x = torch.randn(2)
            fast(x)
            assert len(kept) == calls
            assert_same(kept[-1], x * 2)
