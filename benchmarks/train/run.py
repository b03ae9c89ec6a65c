"""Training steps: eager, torch.compile, a one-stream CUDA graph and Nimble, with the same weights and data.

    make bench-train           (python -m benchmarks.train.run [--quick] [--out FOLDER] [MODEL ...])

Writes train.json and train.md to the folder (build/benchmarks), after every row. A step is zero_grad, forward, loss,
backward and SGD with momentum 0.9; float32 with TF32 convolutions, cudnn.benchmark on. Pictures are 32 x 32, as in the
paper, but for resnet50_224; inception_v3, which cannot see so little, enlarges them to 96 x 96.

Before anything is timed, the losses of the first steps are compared with eager's. With --deterministic those of the
CUDA graph and of Nimble must be the same bits. Without, cuDNN chooses its kernels by timing them and eager's own losses
differ from run to run; then all must be close.

Memory is what PyTorch has reserved at most during a few steps after the preparation, less what it had before the system
was built; `while preparing` is the same until then. torch.compile runs at each model's first batch only, since it takes
minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console

import nimble
from benchmarks.measure import Timing, as_json, machine, time_in_turn
from benchmarks.train.child import Child
from benchmarks.train.prepare import FIRST_STEPS, Prepared, are_close, prepare, use_settings
from benchmarks.train.programs import KINDS
from benchmarks.train.systems import COMPILED, EXACT

console = Console()


class Failed(Exception):
    """A system that cannot be measured; the text goes into its row."""


def row_of(name: str, batch: int, system: str, **found) -> dict:
    return {"model": name, "batch": batch, "system": system, **found}


def compared(prepared: Prepared, eager: tuple[list[float], list[float]], same_bits_wanted: bool) -> str:
    """How the losses of the first steps compare with those of two eager runs; raises if that is not good enough.

    cuDNN chooses its kernels by timing them, so eager's own bits may be others in each run, and a few steps later its
    losses too."""
    if repr(prepared.losses) in (repr(eager[0]), repr(eager[1])):  # in this form NaN equals itself
        return "same bits"
    if same_bits_wanted or not are_close(prepared.losses[:2], eager[0][:2], 0.02):
        raise Failed(f"its losses {prepared.losses} are not eager's {eager[0]}")
    return "close"


def check_replays(system: str, prepared: Prepared) -> None:
    if system == "Nimble" and not prepared.step.stats["replays"]:
        raise Failed("runs eagerly: " + " ".join(prepared.step.explain().split())[:300])


def exact_rows(name: str, batch: int, arguments: argparse.Namespace) -> Iterator[dict]:
    device = arguments.device
    # The first run is cuDNN's search, which everybody would need once. The second tells whether bits repeat.
    first, second = (prepare(EXACT["eager"], name, batch, device).losses for _ in range(2))
    repeatable = repr(first) == repr(second)
    ready: dict[str, Prepared] = {}
    losses: dict[str, str] = {}
    for system in arguments.systems:
        if system not in EXACT or (device == "cpu" and "CUDA" in system):
            continue
        console.print(f"  {system}: first steps", style="dim")
        try:
            prepared = prepare(EXACT[system], name, batch, device)
            losses[system] = "itself"
            if system != "eager":
                losses[system] = compared(prepared, (first, second), arguments.deterministic)
            check_replays(system, prepared)
            ready[system] = prepared
        except (Failed, RuntimeError) as error:
            if isinstance(error, torch.AcceleratorError):
                raise  # nothing works on a GPU after this
            yield row_of(name, batch, system, failed=str(error))
    timings = time_in_turn({s: p.run for s, p in ready.items()}, arguments.seconds, fewest=10)
    for system, timing in timings.items():
        prepared = ready[system]
        yield row_of(
            name,
            batch,
            system,
            timing=as_json({system: timing})[system],
            over_eager=timings["eager"].median / timing.median,
            memory=prepared.memory,
            first_steps_seconds=prepared.first_steps_seconds,
            losses=losses[system],
            eager_repeats_its_bits=repeatable,
            **(
                {"stats": prepared.step.stats, "explain": prepared.step.explain()}
                if system == "Nimble"
                else {}
            ),
        )


def compiled_rows(name: str, batch: int, arguments: argparse.Namespace) -> Iterator[dict]:
    """All systems prepare side by side, since that is work for the processor; they are timed one after the other."""
    systems = [system for system in arguments.systems if system in COMPILED]
    threads = max(1, (os.cpu_count() or 1) // max(1, len(systems)))
    shared = (arguments.device, arguments.seconds, arguments.deterministic, threads)
    children = {system: Child(name, batch, system, *shared) for system in systems}
    deadline = time.monotonic() + arguments.limit
    ready: dict[str, dict] = {}
    try:
        for system, child in children.items():
            console.print(f"  {system}: compiling", style="dim")
            try:
                ready[system] = child.answer(deadline)
            except RuntimeError as error:
                child.end()
                yield row_of(name, batch, system, failed=f"{error} ({arguments.limit:.0f} s)")
        for system, facts in ready.items():
            console.print(f"  {system}: timing", style="dim")
            try:
                children[system].go()
                timings = children[system].answer(time.monotonic() + 60 + 4 * arguments.seconds)
            except (RuntimeError, BrokenPipeError) as error:
                yield row_of(name, batch, system, failed=str(error))
                continue
            finally:
                children[system].end()
            over = Timing(**timings["eager"]).median / Timing(**timings["compiled"]).median
            yield row_of(
                name, batch, system, timing=timings["compiled"], over_eager=over, losses="close", **facts
            )
    finally:
        for child in children.values():
            child.end()


def mebibytes(row: dict, key: str) -> str:
    return f"{row['memory'][key] / 2**20:.0f}" if row.get("memory") else "–"


def table(report: dict) -> str:
    head = [
        "model",
        "batch",
        "system",
        "ms (p5–p95, runs)",
        "× eager",
        "memory MiB",
        "of eager's",
        "while preparing MiB",
        f"first {FIRST_STEPS} steps s",
        "losses",
    ]
    lines = ["| " + " | ".join(head) + " |", "|---|--:|---" + "|--:" * (len(head) - 4) + "|---|"]
    eager_memory = {
        (row["model"], row["batch"]): row["memory"]["steady"]
        for row in report["rows"]
        if row["system"] == "eager" and row.get("memory")
    }
    for row in report["rows"]:
        start = [row["model"], str(row["batch"]), row["system"]]
        if "failed" in row:
            lines.append("| " + " | ".join([*start, row["failed"].replace("|", "/"), *["–"] * 6]) + " |")
            continue
        timing, of_eager = row["timing"], eager_memory.get((row["model"], row["batch"]))
        share = f"{row['memory']['steady'] / of_eager:.2f}" if of_eager and row.get("memory") else "–"
        cells = [
            *start,
            f"**{timing['median']:.2f}** ({timing['p5']:.2f}–{timing['p95']:.2f}, {timing['runs']})",
            f"{row['over_eager']:.2f}",
            mebibytes(row, "steady"),
            share,
            mebibytes(row, "preparing"),
            f"{row['first_steps_seconds']:.1f}",
            row["losses"],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def chosen(arguments: argparse.Namespace) -> list[tuple[str, int]]:
    """Models and batches to measure."""
    found = []
    for name in arguments.models or KINDS:
        sizes = arguments.batches or KINDS[name].batches
        found += [(name, batch) for batch in (sizes[:1] if arguments.quick else sizes)]
    return found


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.train.run", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--quick", action="store_true", help="the smallest batch only, without torch.compile")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), metavar="FOLDER")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try this program")
    parser.add_argument("--batches", type=int, nargs="+", metavar="N", help="instead of each model's own")
    parser.add_argument("--seconds", type=float, default=1.0, help="timing for each system (1)")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds torch.compile may prepare (120)")
    parser.add_argument(
        "--systems", nargs="+", metavar="SYSTEM", default=[*EXACT, *COMPILED], choices=[*EXACT, *COMPILED]
    )
    parser.add_argument(
        "--deterministic", action="store_true", help="cuDNN's deterministic kernels for everybody"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.models if name not in KINDS]
    if unknown:
        parser.error(f"no model named {unknown[0]!r}; there are {', '.join(KINDS)}")
    if arguments.device == "cuda" and not nimble.cuda_available():
        raise SystemExit("no CUDA device: this benchmark needs one (--device cpu only tries the program)")
    if "eager" not in arguments.systems:
        arguments.systems.insert(0, "eager")  # what all others are compared with
    return arguments


def main() -> None:
    arguments = parsed()
    use_settings(arguments.device, arguments.deterministic)
    arguments.out.mkdir(parents=True, exist_ok=True)
    report: dict = {"machine": machine(), "command": "make bench-train", "rows": []}

    def add(row: dict) -> None:  # written at once, so that nothing measured is lost
        report["rows"].append(row)
        (arguments.out / "train.json").write_text(json.dumps(report, indent=1))
        (arguments.out / "train.md").write_text(table(report))
        result = row.get("failed") or f"{row['timing']['median']:.2f} ms, {row['over_eager']:.2f} × eager"
        console.print(f"  {row['system']}: {result}", markup=False, highlight=False)

    programs = chosen(arguments)
    for number, (name, batch) in enumerate(programs, 1):
        console.print(f"[{number}/{len(programs)}] {name}, batch {batch}", style="bold", markup=False)
        for row in exact_rows(name, batch, arguments):
            add(row)
        first_of_model = name not in [other for other, _ in programs[: number - 1]]
        if first_of_model and not arguments.quick:
            for row in compiled_rows(name, batch, arguments):
                add(row)
        if arguments.device == "cuda":
            torch.cuda.empty_cache()
    print(table(report))


if __name__ == "__main__":
    main()
