"""Makes docs/planner.md and docs/planner.svg from docs/planner.json.

python benchmarks/planner/plot.py [FOLDER]
"""

import json
import sys
from pathlib import Path

MIB = 1 << 20
STEPS = {  # step of bench_planner: what the tables and the picture call it
    "topological_sort": "one topological sort",
    "reduction": "E'",
    "matching": "matching",
    "syncs": "syncs",
    "streams": "E', matching, streams, syncs",
    "memory": "memory plan",
    "plan_and_verify": "all, with memory and verification",
}

PAGE = """# How fast the planner is

One family of graphs from 10² to 10⁶ tasks: blocks of up to 64 parallel branches (√tasks in small graphs)
that fork from one task and join in another, with extra edges that are implied by others, and one or two
buffers for each task. Measured on {date} on a {machine}, one thread, beside other work: so
times are processor time, the least of five runs. planner.json has the time on the clock too.

    make bench-planner                              # prints
    python benchmarks/planner/run.py --save         # writes this page

![time and memory against size](planner.svg)

{tables}
## Targets

| | at most | measured |
|---|---|---|
{targets}
The data is in [planner.json](planner.json).
"""


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.3g}"


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---:"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def tables(rows: list[dict]) -> str:
    times = [
        [f"{r['tasks']:,.0f}", *(number(r["ms"][s]) for s in STEPS), number(r["peak_bytes"] / MIB)]
        for r in rows
    ]
    ratios = [
        [f"{r['tasks']:,.0f}", *(number(r["ms"][s] / r["ms"]["topological_sort"]) for s in list(STEPS)[1:])]
        for r in rows
    ]
    keys = ["edges", "reduced_edges", "matched", "streams", "waits", "degree of concurrency", "buffers"]
    arenas = ["one_stream_arena_to_bound", "arena_to_bound"]
    found = [
        [f"{r['tasks']:,.0f}", *(f"{r[k]:,.0f}" for k in keys), *(f"{r[k]:.3f}" for k in arenas)]
        for r in rows
    ]
    return "\n".join(
        [
            "Milliseconds, and the most memory that the whole process held, in MiB (never less than that"
            " of the process that starts it, which is what small graphs show):\n",
            table(["tasks", *STEPS.values(), "peak"], times),
            "The same as multiples of one topological sort of the same graph:\n",
            table(["tasks", *list(STEPS.values())[1:]], ratios),
            "What was found. The last two columns are the arena over its lower bound, the most bytes live"
            " together when tasks run one after the other: on one stream, and with maximum concurrency.\n",
            table(["tasks", "edges", "E'", *keys[2:], "arena, one stream", "arena, all streams"], found),
        ]
    )


def targets(rows: list[dict]) -> str:
    by_size = {row["size"]: row for row in rows}
    lines = []
    for size, step, limit in [
        (2000, "streams", 5),
        (2000, "plan_and_verify", 20),
        (100_000, "streams", 2000),
        (100_000, "plan_and_verify", 10_000),
    ]:
        if size in by_size:
            measured = number(by_size[size]["ms"][step])
            lines.append(f"| {STEPS[step]}: {size:,} tasks | {limit:,} ms | {measured} ms |\n")
    if 100_000 in by_size:
        peak = number(by_size[100_000]["peak_bytes"] / MIB)
        lines.append(f"| peak memory: 100,000 tasks | 1,024 MiB | {peak} MiB |\n")
    return "".join(lines)


def picture(rows: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "nimble"
    from matplotlib import pyplot

    tasks = [row["tasks"] for row in rows]
    figure, (time, memory) = pyplot.subplots(1, 2, figsize=(11, 4.5), width_ratios=[3, 2])
    for step, label in STEPS.items():
        style = {"color": "gray", "linestyle": "--"} if step == "topological_sort" else {"marker": "."}
        time.loglog(tasks, [row["ms"][step] for row in rows], label=label, **style)
    time.set(xlabel="tasks", ylabel="ms", title="time")
    time.legend(fontsize=8)
    memory.loglog(tasks, [row["peak_bytes"] / MIB for row in rows], marker=".", label="whole process")
    memory.axhline(1024, color="gray", linestyle="--", linewidth=1)
    memory.set(xlabel="tasks", ylabel="MiB", title="peak memory")
    for axes in (time, memory):
        axes.grid(True, which="major", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def write_all(folder: Path) -> None:
    data = json.loads((folder / "planner.json").read_text())
    page = PAGE.format(
        date=data["date"], machine=data["machine"], tables=tables(data["rows"]), targets=targets(data["rows"])
    )
    (folder / "planner.md").write_text(page)
    picture(data["rows"], folder / "planner.svg")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "docs")
