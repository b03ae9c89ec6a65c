"""Times the planner and measures its memory; `make bench-planner` runs this.

    python benchmarks/planner/run.py [--save] [--most TASKS]

Prints a table. `--save` also writes docs/planner.json, docs/planner.md and docs/planner.svg.
"""

import argparse
import datetime
import json
import os
import runpy
import subprocess
import tempfile
from pathlib import Path

import plot

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/benchmarks/planner/bench_planner"
SIZES = [100, 300, 1000, 2000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
MIB = 1 << 20


def run_program(pattern: str) -> tuple[dict, int]:
    """Google Benchmark's report, and the most memory the process held at once, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [PROGRAM, f"--benchmark_filter={pattern}", f"--benchmark_out={report}"]
        command += ["--benchmark_repetitions=5", "--benchmark_min_time=0.05"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"bench_planner failed on {pattern}")
        return json.loads(report.read_text()), usage.ru_maxrss * 1024


def measure(tasks: int) -> dict:
    """One row: processor time of each step (the least of five runs), counts, memory of a whole plan."""
    row: dict = {"size": tasks, "ms": {}, "wall_ms": {}}
    report, _ = run_program(f"/{tasks}$")
    skip = {"real_time", "cpu_time", "iterations", "repetitions", "repetition_index", "threads"}
    skip |= {"family_index", "per_family_instance_index"}
    for run in report["benchmarks"]:
        if run["run_type"] != "iteration":
            continue
        step = run["name"].split("/")[0]
        for times, kind in ((row["ms"], "cpu_time"), (row["wall_ms"], "real_time")):
            times[step] = min(run[kind], times.get(step, float("inf")))
        counters = {k: v for k, v in run.items() if isinstance(v, (int, float)) and k not in skip}
        if step == "plan_one_stream":
            counters = {f"one_stream_{k}": v for k, v in counters.items()}
        row |= counters
    row["peak_bytes"] = run_program(f"plan_and_verify/{tasks}$")[1]
    return row


def machine() -> str:
    # By its path: the package would load torch, and memory of this process counts as its children's.
    processor = runpy.run_path(str(ROOT / "python/nimble/processor.py"))
    return f"machine with {os.cpu_count()} hardware threads ({processor['processor_name']()})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--save", action="store_true", help="keep the numbers in docs/")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the largest graph, in tasks")
    options = parser.parse_args()
    rows = []
    for tasks in (size for size in SIZES if size <= options.most):
        rows.append(measure(tasks))
        ms = rows[-1]["ms"]
        print(
            f"{tasks:>9,} tasks: streams {ms['streams']:9.2f} ms, memory {ms['memory']:9.2f} ms,"
            f" plan and verify {ms['plan_and_verify']:9.2f} ms, peak {rows[-1]['peak_bytes'] / MIB:6.0f} MiB",
            flush=True,
        )
    if options.save:
        today = datetime.date.today().isoformat()
        data = {"date": today, "machine": machine(), "rows": rows}
        (ROOT / "docs/planner.json").write_text(json.dumps(data, indent=1) + "\n")
        plot.write_all(ROOT / "docs")
    else:
        print(plot.tables(rows))


if __name__ == "__main__":
    main()
