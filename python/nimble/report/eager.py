"""How the user's own function runs, for comparison: timed, then once more under PyTorch's profiler.

The profiler comes last of all that is measured: once it has watched a GPU, everything there is a little slower for the
rest of the process."""

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

_FEWEST_RUNS, _MOST_RUNS, _LONG_ENOUGH = 5, 100, 0.3  # seconds
_MARK = "nimble: eager"
_OPERATOR = re.compile(r"(?!autograd::)\w+::[\w.]+$")
_MOST_SHAPES = 6


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def _run_times(run: Callable[[], object], device: str) -> list[float]:
    """Nanoseconds from the call until all is done."""
    run()
    _wait(device)
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < _FEWEST_RUNS or (
        len(times) < _MOST_RUNS and time.perf_counter() - start < _LONG_ENOUGH
    ):
        begin = time.perf_counter_ns()
        run()
        _wait(device)
        times.append(time.perf_counter_ns() - begin)
    return times


def _outermost(spans: list[list]) -> list[list]:
    """Operators call others; only those that nobody else calls are kept."""
    kept: list[list] = []
    for span in sorted(spans, key=lambda span: (span[1], -span[2])):
        if not kept or span[1] >= kept[-1][2]:
            kept.append(span)
    return kept


def _one_lane_each(spans: list[list]) -> list[list[list]]:
    """Kernels of one stream may overlap by a moment; each goes to the first lane that is free."""
    lanes: list[list[list]] = []
    for span in sorted(spans, key=lambda span: span[1]):
        lane = next((lane for lane in lanes if lane[-1][2] <= span[1]), None)
        if lane is None:
            lanes.append(lane := [])
        lane.append(span)
    return lanes


def _shapes(event: Any) -> str:
    shapes = [str(shape) for shape in event.shapes() if shape]
    more = f" and {len(shapes) - _MOST_SHAPES} more" if len(shapes) > _MOST_SHAPES else ""
    return ", ".join(shapes[:_MOST_SHAPES]) + more


def lanes_of(events: Iterable[Any]) -> tuple[list[dict], int]:
    """What the profiler saw within the mark, as rows of [name, start, end, shapes], and how long that took."""
    events = list(events)
    mark = next(e for e in events if e.name() == _MARK and e.device_type() == DeviceType.CPU)
    begin = mark.start_ns()
    threads: dict[int, list[list]] = {}
    streams: dict[int, list[list]] = {}
    for event in events:
        start, end = event.start_ns() - begin, event.start_ns() + event.duration_ns() - begin
        if start < 0 or event.name() == _MARK:
            continue
        span = [event.name(), start, end, _shapes(event)]
        if event.device_type() != DeviceType.CPU:
            streams.setdefault(event.device_resource_id(), []).append(span)
        elif start <= mark.duration_ns() and _OPERATOR.match(event.name()):
            threads.setdefault(event.start_thread_id(), []).append(span)
    lanes = [
        {"name": "host" if i == 0 else f"host {i + 1}", "kind": "host", "spans": _outermost(spans)}
        for i, spans in enumerate(threads.values())
    ]
    for stream, spans in sorted(streams.items()):
        for lane in _one_lane_each(spans):
            lanes.append({"name": f"GPU {stream}", "kind": "device", "spans": lane})
    length = max([mark.duration_ns(), *(lane["spans"][-1][2] for lane in lanes)])
    return lanes, length


def _profiled(run: Callable[[], object], device: str) -> tuple[list[dict], int]:
    activities = [ProfilerActivity.CPU]
    if device.startswith("cuda"):
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, record_shapes=True, acc_events=True) as profiler:
        run()  # the first run under a profiler sets it up
        _wait(device)
        with record_function(_MARK):
            run()
            _wait(device)
    return lanes_of(profiler.profiler.kineto_results.events())


def eager_timeline(run: Callable[[], object], device: str) -> dict:
    times = sorted(_run_times(run, device))
    lanes, length = _profiled(run, device)
    return {"run": times[len(times) // 2], "runs": len(times), "profiled": length, "lanes": lanes}
