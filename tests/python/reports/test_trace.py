"""The trace for Perfetto: each task once as planned and once as measured, inside its modules."""

from __future__ import annotations

import json

import torch
from nimble.report.trace import trace_of
from reports.synthetic import synthetic_document
from torch import nn

import nimble


def processes(trace: dict) -> dict[str, int]:
    return {e["args"]["name"]: e["pid"] for e in trace["traceEvents"] if e["name"] == "process_name"}


def slices(trace: dict, process: int) -> list[dict]:
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == process]


def test_a_trace_of_a_model_is_written_as_json(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    fast = nimble.compile(model, tune=0.01)
    with torch.inference_mode():
        for _ in range(3):
            fast(torch.randn(2, 4))
    fast.trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    measured = slices(trace, processes(trace)["Nimble: measured"])
    assert {"addmm#0", "relu#1"} <= {event["name"] for event in measured}


def test_planned_measured_and_eager_are_processes_with_a_track_for_each_stream():
    trace = trace_of(synthetic_document(tasks=40, streams=3))
    names = processes(trace)
    assert list(names) == ["Nimble: measured", "Nimble: planned", "eager, under PyTorch's profiler"]
    tracks = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert tracks == [*["stream 0", "stream 1", "stream 2"] * 2, "host", "GPU 7"]


def test_every_task_is_there_once_with_its_times():
    document = synthetic_document(tasks=40, streams=3)
    trace = trace_of(document)
    for clock in ("measured", "planned"):
        found = {e["name"]: e for e in slices(trace, processes(trace)[f"Nimble: {clock}"]) if e["args"]}
        assert len(found) == 40
        for task in document["parts"][0]["tasks"]:
            event = found[task["name"]]
            assert event["tid"] == task["stream"]
            assert event["ts"] * 1000 == task[clock][0]
            assert event["args"]["module"] == task["module"]


def test_modules_enclose_their_tasks():
    document = synthetic_document(tasks=40, streams=1)
    trace = trace_of(document)
    events = slices(trace, processes(trace)["Nimble: measured"])
    modules = [e for e in events if not e["args"]]

    def encloses(outer: dict, inner: dict) -> bool:
        slack = 1e-6
        return (
            outer["ts"] <= inner["ts"] + slack
            and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + slack
        )

    for task in (e for e in events if e["args"]):
        around = {e["name"] for e in modules if encloses(e, task)}
        assert set(task["args"]["module"].split(".")) <= around


def test_slices_of_a_track_lie_inside_each_other_or_apart():
    trace = trace_of(synthetic_document(tasks=200, streams=3))
    for process in processes(trace).values():
        by_track: dict[int, list[dict]] = {}
        for event in slices(trace, process):
            by_track.setdefault(event["tid"], []).append(event)
        for events in by_track.values():
            open_until: list[float] = []
            for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
                end = event["ts"] + event["dur"]
                while open_until and open_until[-1] <= event["ts"] + 1e-6:
                    open_until.pop()
                assert not open_until or end <= open_until[-1] + 1e-6
                open_until.append(end)


def test_each_wait_is_an_arrow_from_one_stream_to_another():
    document = synthetic_document(tasks=60, streams=4)
    trace = trace_of(document)
    arrows = [e for e in trace["traceEvents"] if e["name"] == "wait"]
    assert len(arrows) == 2 * 2 * len(document["parts"][0]["waits"])
    for start, end in zip(arrows[::2], arrows[1::2], strict=True):
        assert (start["ph"], end["ph"], start["id"]) == ("s", "f", end["id"])
        assert start["tid"] != end["tid"]
