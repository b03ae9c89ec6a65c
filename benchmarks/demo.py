"""What `make run` shows: five networks, eager and with Nimble, on the GPU where there is one.

python -m benchmarks.demo [--seconds S] [--json FILE] [MODEL ...]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable

import torch
from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch.utils import _pytree as pytree

import nimble
from benchmarks.measure import as_json, machine, time_in_turn
from benchmarks.models import MODELS, make

DEFAULT = ("resnet50", "mobilenet_v2", "googlenet", "inception_v3", "nasnet_a_mobile")


def same(a: object, b: object) -> bool:
    pairs = zip(pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True)
    return all(torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in pairs)


def run_model(name: str, device: torch.device, seconds: float, say: Callable[[str], None]) -> dict:
    say("making the model")
    model, inputs = make(name)
    model, inputs = model.to(device), tuple(tensor.to(device) for tensor in inputs)
    with torch.inference_mode():
        for _ in range(2):  # kernels are chosen and caches filled, for eager and so for what is recorded
            expected = model(*inputs)
        say("recording, planning, checking")
        fast = nimble.compile(model, strict=True)
        start = time.perf_counter()
        fast.prepare(*inputs)
        prepare_seconds = time.perf_counter() - start
        equal = same(fast(*inputs), expected)
        say("timing")
        timings = time_in_turn({"eager": lambda: model(*inputs), "nimble": lambda: fast(*inputs)}, seconds)
    return {
        "model": name,
        "device": str(device),
        "same_bits": equal,
        "speedup": timings["eager"].median / timings["nimble"].median,
        "prepare_seconds": prepare_seconds,
        **as_json(timings),
        **fast.stats,
    }


def show(rows: list[dict], console: Console) -> None:
    table = Table(
        title=f"milliseconds, batch 1, on {rows[0]['device']}",
        caption="medians of interleaved runs; MiB: the arena, of what it takes without planning",
        box=box.SIMPLE,
    )
    table.add_column("model", no_wrap=True)
    for title in (
        "eager",
        "nimble",
        "speed-up",
        "tasks",
        "streams",
        "syncs",
        "concurrency",
        "MiB",
        "prepared s",
        "bits",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["model"],
            f"{row['eager']['median']:.2f}",
            f"{row['nimble']['median']:.2f}",
            f"{row['speedup']:.2f}x",
            str(row["tasks"]),
            str(row["streams"]),
            str(row["syncs"]),
            str(row["degree_of_concurrency"]),
            f"{row['arena_bytes'] / 2**20:.1f} of {row['allocated_bytes'] / 2**20:.0f}",
            f"{row['prepare_seconds']:.2f}",
            "same" if row["same_bits"] else "DIFFER",
        )
    console.print(table)
    mean = math.exp(sum(math.log(row["speedup"]) for row in rows) / len(rows))
    console.print(f"geometric mean of the speed-ups: {mean:.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.demo", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--seconds", type=float, default=4.0, help="timing for each model and competitor (4)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.models if name not in MODELS]
    if unknown:
        parser.error(f"no model named {unknown[0]!r}; there are {', '.join(MODELS)}")
    device = torch.device("cuda" if nimble.cuda_available() else "cpu")
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True

    console = Console()
    console.width = max(console.width, 130)  # the whole table, also where the terminal is narrow or none
    rows = []
    names = arguments.models or DEFAULT
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        line = progress.add_task("")
        for number, name in enumerate(names, 1):
            prefix = f"[{number}/{len(names)}] {name}: "
            rows.append(
                run_model(
                    name,
                    device,
                    arguments.seconds,
                    lambda text, p=prefix: progress.update(line, description=p + text),
                )
            )
    show(rows, console)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"machine": machine(), "rows": rows}, file, indent=1)
    if not all(row["same_bits"] for row in rows):
        raise SystemExit("results differ from eager's")


if __name__ == "__main__":
    main()
