"""A timeline as Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing show.

A process for each part, once as planned and once as measured, and one for eager. In it a track for each stream, on
which modules enclose their tasks as functions enclose what they call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

Event = dict


def _microseconds(nanoseconds: float) -> float:
    return nanoseconds / 1000


def _name(process: int, name: str, order: int) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": order}}


def _track(process: int, track: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "name": "thread_name", "pid": process, "tid": track, "args": {"name": name}}
    yield {
        "ph": "M",
        "name": "thread_sort_index",
        "pid": process,
        "tid": track,
        "args": {"sort_index": track},
    }


def _slice(process: int, track: int, name: str, start: float, end: float, **arguments: object) -> Event:
    return {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": track,
        "ts": _microseconds(start),
        "dur": _microseconds(end - start),
        "args": arguments,
    }


def _modules(process: int, track: int, tasks: list[dict], clock: str) -> Iterator[Event]:
    """A slice around each run of neighbours that lie in the same module: for `a.b.c` one for each of a, b and c."""
    opened: list[tuple[str, float]] = []
    end = 0.0

    def close(depth: int) -> Iterator[Event]:
        while len(opened) > depth:
            name, start = opened.pop()
            yield _slice(process, track, name, start, end)

    for task in tasks:
        path = task["module"].split(".") if task["module"] else []
        same = 0
        while same < min(len(path), len(opened)) and path[same] == opened[same][0]:
            same += 1
        yield from close(same)
        opened += [(name, task[clock][0]) for name in path[same:]]
        end = task[clock][1]
    yield from close(0)


def _timeline(part: dict, clock: str, process: int) -> Iterator[Event]:
    tasks = part["tasks"]
    for stream in range(part["streams"]):
        yield from _track(process, stream, f"stream {stream}")
        own = sorted((task for task in tasks if task["stream"] == stream), key=lambda task: task[clock])
        yield from _modules(process, stream, own, clock)
        for task in own:
            yield _slice(
                process,
                stream,
                task["name"],
                *task[clock],
                **{key: task[key] for key in ("operator", "inputs", "outputs", "module", "where")},
            )
    for number, (before, after) in enumerate(part["waits"]):
        for phase, task, time in (("s", tasks[before], tasks[before][clock][1]), ("f", tasks[after], None)):
            # An arrow belongs to the slice that is open at its time, so it leaves just before the end.
            at = max(task[clock][0], time - 1) if time is not None else task[clock][0]
            event = {"ph": phase, "name": "wait", "cat": "wait", "id": process * 1_000_000 + number}
            event |= {"pid": process, "tid": task["stream"], "ts": _microseconds(at)}
            yield event | ({"bp": "e"} if phase == "f" else {})


def _eager(eager: dict, process: int) -> Iterator[Event]:
    for track, lane in enumerate(eager["lanes"]):
        yield from _track(process, track, lane["name"])
        for name, start, end, shapes in lane["spans"]:
            yield _slice(process, track, name, start, end, inputs=shapes)


def trace_of(document: dict) -> dict:
    events: list[Event] = []
    processes = 0
    for part in document["parts"]:
        prefix = "" if len(document["parts"]) == 1 else f"{part['name']}, "
        for clock in ("measured", "planned"):
            processes += 1
            events += _name(processes, f"Nimble: {prefix}{clock}", processes)
            events += _timeline(part, clock, processes)
    eager = document["eager"]
    if eager and "lanes" in eager:
        events += _name(processes + 1, "eager, under PyTorch's profiler", 0)
        events += _eager(eager, processes + 1)
    return {"displayTimeUnit": "ns", "traceEvents": events}


def write_trace(document: dict, path: str | Path) -> None:
    Path(path).write_text(json.dumps(trace_of(document)), encoding="utf-8")
