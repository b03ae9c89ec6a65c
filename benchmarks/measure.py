"""Timing that can be believed: every competitor in turn, many times, median and spread."""

from __future__ import annotations

import datetime
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch


@dataclass
class Timing:
    """Milliseconds for one run."""

    median: float
    p5: float
    p95: float
    runs: int


def summarize(milliseconds: list[float]) -> Timing:
    ordered = sorted(milliseconds)
    at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]  # noqa: E731
    return Timing(statistics.median(ordered), at(0.05), at(0.95), len(ordered))


def wait_for_device() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def time_in_turn(
    competitors: dict[str, Callable[[], object]], seconds: float, fewest: int = 5, most: int = 1000
) -> dict[str, Timing]:
    """Runs the competitors in turn, round after round, so that what slows the machine down slows all of them alike.

    Stops after `seconds` for each competitor, but not before `fewest` rounds."""
    for run in competitors.values():  # warm-up
        run()
        run()
    wait_for_device()
    times: dict[str, list[float]] = {name: [] for name in competitors}
    start = time.perf_counter()
    order = list(competitors.items())
    while len(times[order[0][0]]) < most:
        order = [*order[1:], order[0]]  # nobody always comes behind the same one, whose data fills the caches
        for name, run in order:
            begin = time.perf_counter()
            run()
            wait_for_device()
            times[name].append((time.perf_counter() - begin) * 1e3)
        enough = len(times[order[0][0]]) >= fewest
        if enough and time.perf_counter() - start > seconds * len(competitors):
            break
    return {name: summarize(list_) for name, list_ in times.items()}


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    facts: dict[str, object] = {
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": processor(),
        "threads": torch.get_num_threads(),
    }
    if torch.cuda.is_available():
        facts |= {
            "gpu": torch.cuda.get_device_name(),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }
    return facts


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def as_json(timings: dict[str, Timing]) -> dict[str, dict]:
    return {name: asdict(timing) for name, timing in timings.items()}
