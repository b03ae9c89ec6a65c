"""How much of the time a GPU has something to do. Timings after profiling are off, so this comes last in a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

Span = tuple[float, float]


def active_share(run: Callable[[], object], runs: int = 10) -> float | None:
    """The share of wall time in which at least one kernel runs, from the profiler's kernel records; None where the
    profiler sees none."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(runs):
            run()
        torch.cuda.synchronize()
    return covered_share(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type.name == "CUDA"
    )


def covered_share(spans: Iterable[Span]) -> float | None:
    """How much of the time from the first start to the last end is inside one of the spans or several."""
    ordered = sorted(spans)
    if not ordered:
        return None
    begin = end = ordered[0][0]
    covered = 0.0
    for start, stop in ordered:
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered / (end - begin) if end > begin else None
