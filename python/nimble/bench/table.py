"""The results as Markdown: a summary with a line for each workload, and everything with a line for each system."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import compress

MIB = 2**20
NONE = "–"

# Whom the summary shows beside each other, where they were measured.
SUMMARY = (
    "eager",
    "torchscript",
    "cuda-graph",
    "torch-compile",
    "torch-compile-reduce-overhead",
    "torch-compile-freezing",
    "onnxruntime",
    "openvino",
    "nimble",
    "nimble-rewrites",
)

COLUMNS = (
    "system",
    "ms (p5–p95, runs)",
    "p99 ms",
    "× eager",
    "× graph",
    "× critical path",
    "GPU active",
    "tasks",
    "streams",
    "syncs",
    "memory MiB",
    "of eager's",
    "by the driver MiB",
    "unshared MiB",
    "prepared s",
    "recorded, planned ms",
    "while preparing MiB",
    "host µs",
    "of it launch",
    "answer",
)


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]], left: int = 1) -> str:
    """The first `left` columns hold words, the others numbers."""
    head = list(head)
    rule = ["---" if number < left else "--:" for number in range(len(head))]
    lines = [head, rule, *([cell.replace("|", "/") for cell in row] for row in rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def cells_of(rows: Iterable[dict]) -> dict[tuple, dict[str, dict]]:
    """Rows by what was run, then by who ran it."""
    found: dict[tuple, dict[str, dict]] = {}
    for row in rows:
        found.setdefault((row["workload"], row["batch"], row["dtype"]), {})[row["system"]] = row
    return found


def milliseconds(value: float) -> str:
    return f"{value:.4f}" if value < 0.1 else f"{value:.3f}" if value < 10 else f"{value:.2f}"


def median(row: dict | None) -> float | None:
    return row["timing"]["median"] if row and "timing" in row else None


def ratio(of: float | None, to: float | None) -> str:
    return f"{of / to:.2f}" if of and to else NONE


def summary(report: dict) -> str:
    cells = cells_of(report["rows"])
    shown = [name for name in SUMMARY if any(name in systems for systems in cells.values())]
    titles = {row["system"]: row["title"] for row in report["rows"]}
    lines = []
    for (workload, batch, dtype), systems in cells.items():
        times = {name: median(systems.get(name)) for name in shown}
        fastest = min((time for time in times.values() if time), default=None)
        figures = []
        for name in shown:
            time = times[name]
            text = milliseconds(time) if time else NONE
            figures.append(f"**{text}**" if time and time == fastest else text)
        ours, peer = median(systems.get("nimble")), median(systems.get("cuda-graph"))
        beside = [ratio(times.get("eager"), ours)] + ([ratio(peer, ours)] if "cuda-graph" in shown else [])
        lines.append([workload, str(batch), dtype, *figures, *beside])
    head = ["workload", "batch", "dtype", *(f"{titles[name]} ms" for name in shown), "Nimble × eager"]
    head += ["× graph"] if "cuda-graph" in shown else []
    return markdown(head, lines)


def means(report: dict) -> str:
    """Geometric means of Nimble's speed-ups."""
    parts = []
    for kind, training in (("inference", False), ("training", True)):
        found = [
            math.log(row["over_eager"])
            for row in report["rows"]
            if row["system"] == "nimble" and "over_eager" in row and trains(row) == training
        ]
        if len(found) > 1:
            parts.append(f"{math.exp(sum(found) / len(found)):.2f} in {kind}")
    return f"Geometric mean of Nimble's speed-ups over eager: {', '.join(parts)}.\n" if parts else ""


def headline(report: dict) -> str:
    """What a reader wants first: eager, the graph that PyTorch itself can make, Nimble."""
    lines = []
    for (workload, _, _), systems in cells_of(report["rows"]).items():
        times = [median(systems.get(name)) for name in ("eager", "cuda-graph", "nimble")]
        streams = systems.get("nimble", {}).get("stats", {}).get("streams", NONE)
        ratios = [ratio(times[0], times[2]), ratio(times[1], times[2])]
        figures = [milliseconds(time) if time else NONE for time in times]
        lines.append([workload.removeprefix("training/"), *figures, *ratios, str(streams)])
    head = ["model", "eager ms", "one-stream CUDA graph ms", "Nimble ms", "× eager", "× graph", "streams"]
    return markdown(head, lines)


def size_of(row: dict) -> int | None:
    """Device memory: what a system owns, where it says so (a graph its pool, Nimble its arena, inputs, results and
    workspaces); else what PyTorch had to reserve for it. In training everybody has weights, gradients and momentum of
    their own, so that only the whole can be compared."""
    reserved = row.get("memory", {}).get("steady")
    return reserved if trains(row) else row.get("owned_bytes") or reserved


def trains(row: dict) -> bool:
    return row["workload"].startswith("training/")


def figures(row: dict, systems: dict[str, dict]) -> list[str]:
    if "timing" not in row:
        return [row["title"], row.get("failed", NONE), *[NONE] * (len(COLUMNS) - 2)]
    timing, stats = row["timing"], row.get("stats", {})
    memory, of_eager = size_of(row), size_of(systems["eager"]) if "eager" in systems else None
    preparing = row.get("memory", {}).get("preparing")
    spread = f"{milliseconds(timing['p5'])}–{milliseconds(timing['p95'])}, {timing['runs']}"
    return [
        row["title"],
        f"**{milliseconds(timing['median'])}** ({spread})",
        milliseconds(timing["p99"]),
        f"{row['over_eager']:.2f}" if "over_eager" in row else NONE,
        NONE if "over_eager" not in row else over_graph(row, systems),
        ratio(timing["median"], row.get("critical_path_milliseconds")),
        f"{row['active_share']:.0%}" if "active_share" in row else NONE,
        *(str(stats[key]) if key in stats else NONE for key in ("tasks", "streams", "syncs")),
        f"{memory / MIB:.1f}" if memory else NONE,
        ratio(memory, of_eager),
        f"{row['memory']['device'] / MIB:.0f}" if row.get("memory", {}).get("device") else NONE,
        f"{stats['allocated_bytes'] / MIB:.1f}" if "allocated_bytes" in stats else NONE,
        f"{row['prepare_seconds']:.2f}" if row.get("prepare_seconds") else NONE,
        f"{stats['record_milliseconds'] + stats['plan_milliseconds']:.0f}"
        if "plan_milliseconds" in stats
        else NONE,
        f"{preparing / MIB:.0f}" if preparing else NONE,
        f"{row['host_microseconds']:.0f}" if "host_microseconds" in row else NONE,
        f"{row['launch_microseconds']:.0f}" if "launch_microseconds" in row else NONE,
        row.get("answer", NONE),
    ]


def over_graph(row: dict, systems: dict[str, dict]) -> str:
    """By way of eager, who took turns with both."""
    graph = systems.get("cuda-graph", {})
    return ratio(row["over_eager"], graph.get("over_eager"))


def details(report: dict) -> str:
    """A table for each cell, without the columns in which nobody has a figure."""
    lines = {
        cell: [figures(row, systems) for row in systems.values()]
        for cell, systems in cells_of(report["rows"]).items()
    }
    used = [
        any(line[n] != NONE for of_cell in lines.values() for line in of_cell) for n in range(len(COLUMNS))
    ]
    parts = []
    for (workload, batch, dtype), systems in cells_of(report["rows"]).items():
        parts.append(f"### {workload}, batch {batch}, {dtype}\n")
        rows = (compress(line, used) for line in lines[workload, batch, dtype])
        parts.append(markdown(compress(COLUMNS, used), rows))
        eager = systems.get("eager", {})
        if "first_run_seconds" in eager and eager["device"] != "cpu":
            seconds = eager["first_run_seconds"]
            parts.append(f"Eager's first run, in which cuDNN searches its kernels: {seconds:.2f} s.\n")
    return "\n".join(parts)


def host_time(report: dict) -> str:
    host = report.get("host_time_from_cpp")
    if not host:
        return ""
    return (
        f"From C++ one call of {host['kernels']} small kernels keeps the host busy for "
        f"{host['call_microseconds']:.1f} µs ({host['call_with_shared_results_microseconds']:.1f} µs if results may "
        f"be overwritten by the next call), a bare cudaGraphLaunch of them for "
        f"{host['graph_launch_microseconds']:.1f} µs.\n"
    )


def facts(report: dict) -> str:
    machine = report["machine"]
    parts = [machine.get("gpu"), machine["processor"], f"torch {machine['torch']}", machine["date"]]
    if "cuda" in machine:
        parts[2:2] = [f"CUDA {machine['cuda']}", f"cuDNN {machine['cudnn']}", f"driver {machine['driver']}"]
    return ", ".join(part for part in parts if part) + f"; `{report['command']}`.\n"


def page(report: dict) -> str:
    parts = [facts(report), summary(report), means(report), details(report), host_time(report)]
    return "\n".join(part for part in parts if part)
