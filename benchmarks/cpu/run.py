"""Inference on the CPU: eager and Nimble in one run, and what a call costs beyond its tasks.

    make bench-cpu             (python -m benchmarks.cpu.run [--seconds S] [--out FOLDER])

Writes cpu.json and cpu.md to the folder (build/benchmarks).
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import torch
from rich.progress import track

import nimble
from benchmarks.demo import DEFAULT, run_model
from benchmarks.measure import machine, time_in_turn


class AddOne(torch.nn.Module):
    """Hardly any work: what is left is the cost of a call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def call_cost() -> dict[str, float]:
    model, x = AddOne(), torch.zeros(1)
    with torch.inference_mode():
        fast = nimble.compile(model, strict=True).prepare(x)
        timings = time_in_turn({"eager": lambda: model(x), "nimble": lambda: fast(x)}, 0.5, 1000, 20000)
    return {name: timing.median * 1e3 for name, timing in timings.items()}


def table(report: dict) -> str:
    lines = [
        "| model | eager ms | Nimble ms (p5–p95) | speed-up | tasks | streams | arena MiB | allocations MiB | prepared s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in report["rows"]:
        eager, fast = row["eager"], row["nimble"]
        lines.append(
            f"| {row['model']} | {eager['median']:.1f} ({eager['p5']:.1f}–{eager['p95']:.1f}) "
            f"| {fast['median']:.1f} ({fast['p5']:.1f}–{fast['p95']:.1f}) | {row['speedup']:.2f} | {row['tasks']} "
            f"| {row['streams']} | {row['arena_bytes'] / 2**20:.1f} | {row['allocated_bytes'] / 2**20:.1f} "
            f"| {row['prepare_seconds']:.2f} |"
        )
    lines.append("")
    lines.append(
        f"Geometric mean of the speed-ups: {report['geometric_mean']:.2f}. One call of a model that only adds"
    )
    cost = report["call_microseconds"]
    lines.append(f"one to a number: {cost['eager']:.1f} µs eager, {cost['nimble']:.1f} µs with Nimble.")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.cpu.run", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="timing for each model and competitor (5)")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), metavar="FOLDER")
    arguments = parser.parse_args()
    cpu = torch.device("cpu")
    rows = [
        run_model(n, cpu, arguments.seconds, lambda _: None) for n in track(DEFAULT, description="timing")
    ]
    mean = math.exp(sum(math.log(row["speedup"]) for row in rows) / len(rows))
    report = {
        "machine": machine(),
        "command": "make bench-cpu",
        "geometric_mean": mean,
        "call_microseconds": call_cost(),
        "rows": rows,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "cpu.json").write_text(json.dumps(report, indent=1))
    (arguments.out / "cpu.md").write_text(table(report))
    print(table(report))


if __name__ == "__main__":
    main()
