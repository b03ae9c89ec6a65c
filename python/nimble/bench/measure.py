"""Timing that can be believed: every competitor in turn, many times, median and spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass
class Timing:
    """Milliseconds for one run."""

    median: float
    p5: float
    p95: float
    p99: float
    runs: int


@dataclass(frozen=True)
class Amount:
    """How often everybody runs: `runs` times and for `seconds` at least, but no longer than `most_seconds` (each on
    average) once there are `fewest`. And how often in a row when it is their turn: whoever serves a model calls it
    again and again, so that only the first run of a turn finds caches full of somebody else's data."""

    runs: int = 200
    seconds: float = 0.5
    most_seconds: float = 2.0
    fewest: int = 5
    in_a_row: int = 5

    def is_enough(self, runs: int, seconds_each: float) -> bool:
        if runs < self.fewest:
            return False
        return seconds_each >= self.most_seconds or (runs >= self.runs and seconds_each >= self.seconds)


QUICK = Amount(runs=30, seconds=0.1, most_seconds=0.5, fewest=3, in_a_row=3)
MOST_RUNS = 20_000


def summarize(milliseconds: list[float]) -> Timing:
    ordered = sorted(milliseconds)
    at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]  # noqa: E731
    return Timing(statistics.median(ordered), at(0.05), at(0.95), at(0.99), len(ordered))


def wait_for_device() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def time_in_turn(competitors: dict[str, Callable[[], object]], amount: Amount) -> dict[str, Timing]:
    """Runs the competitors in turn, some runs each, so that what slows the machine down slows all of them alike."""
    for run in competitors.values():  # warm-up
        run()
        run()
    wait_for_device()
    times: dict[str, list[float]] = {name: [] for name in competitors}
    start = time.perf_counter()
    order = list(competitors.items())
    for runs in range(0, MOST_RUNS, amount.in_a_row):
        if amount.is_enough(runs, (time.perf_counter() - start) / len(competitors)):
            break
        order = [*order[1:], order[0]]  # nobody always comes behind the same one
        for name, run in order:
            for _ in range(amount.in_a_row):
                begin = time.perf_counter()
                run()
                wait_for_device()
                times[name].append((time.perf_counter() - begin) * 1e3)
    return {name: summarize(list_) for name, list_ in times.items()}


def host_microseconds(
    run: Callable[[], object], most_calls: int = 50, fewest: int = 5, seconds: float = 1.0
) -> float:
    """How long the host is busy with one call, while the GPU has nothing to do but keep up."""
    times: list[float] = []
    while len(times) < fewest or (len(times) < most_calls and sum(times) < seconds * 1e6):
        wait_for_device()
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e6)
    wait_for_device()
    return statistics.median(times)
