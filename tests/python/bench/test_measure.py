"""Timing: competitors take turns, often enough and not for ever."""

from __future__ import annotations

import time

import pytest
from nimble.bench.active import covered_share
from nimble.bench.measure import QUICK, Amount, host_microseconds, summarize, time_in_turn


def test_two_hundred_runs_are_enough_for_fast_systems():
    amount = Amount()
    assert not amount.is_enough(runs=199, seconds_each=1.9)
    assert amount.is_enough(runs=200, seconds_each=0.6)


def test_fast_systems_are_timed_for_a_while_all_the_same():
    assert not Amount().is_enough(runs=200, seconds_each=0.1)


def test_two_seconds_are_enough_for_slow_systems_once_there_are_a_few_runs():
    assert Amount().is_enough(runs=10, seconds_each=2.0)
    assert not Amount().is_enough(runs=2, seconds_each=60.0)


def test_competitors_take_turns_of_some_runs_and_none_always_follows_the_same_one():
    calls = []
    competitors = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    timings = time_in_turn(competitors, QUICK)
    timed = calls[6:]  # after two warm-up runs of each
    turns = [timed[at : at + QUICK.in_a_row] for at in range(0, len(timed), QUICK.in_a_row)]
    assert all(set(turn) == {turn[0]} for turn in turns)
    rounds = ["".join(turn[0] for turn in turns[at : at + 3]) for at in range(0, len(turns), 3)]
    assert set(rounds) == {"bca", "cab", "abc"}
    assert {timing.runs for timing in timings.values()} == {len(rounds) * QUICK.in_a_row}
    assert len(rounds) * QUICK.in_a_row >= QUICK.runs


def test_how_long_the_host_is_busy_takes_few_calls_where_each_is_long():
    calls = []
    assert host_microseconds(lambda: (calls.append(1), time.sleep(0.01)), seconds=0.02) >= 10_000
    assert len(calls) == 5
    calls.clear()
    host_microseconds(lambda: calls.append(1), most_calls=7)
    assert len(calls) == 7


def test_the_spread_holds_nine_tenths_of_the_runs():
    timing = summarize([float(value) for value in range(100)])
    assert (timing.p5, timing.median, timing.p95, timing.p99) == (5.0, 49.5, 95.0, 99.0)
    assert timing.runs == 100


@pytest.mark.parametrize(
    ("spans", "share"),
    [
        ([(0, 4), (6, 10)], 0.8),  # a gap of 2 in 10
        ([(0, 4), (2, 5), (8, 10)], 0.7),  # side by side counts once
        ([(0, 10), (2, 3)], 1.0),  # one inside another
        ([(6, 10), (0, 4)], 0.8),  # in any order
        ([], None),  # nothing was seen
    ],
)
def test_a_gpu_is_active_while_at_least_one_kernel_runs(spans, share):
    assert covered_share(spans) == share
