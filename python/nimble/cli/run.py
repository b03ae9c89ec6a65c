"""`nimble run`: compiles models, compares with eager, times both in turn, and with --report writes the report."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from rich import box
from rich.table import Table

from nimble.bench.arguments import checked_device, default_device, positive_seconds
from nimble.bench.check import compare, same_bits
from nimble.bench.job import DTYPES
from nimble.bench.machine import machine
from nimble.bench.measure import Amount, time_in_turn
from nimble.bench.table import milliseconds
from nimble.cli.models import (
    Model,
    add_compile_arguments,
    add_model_arguments,
    check_model,
    check_options,
    compiled,
    keeps_eagers_bits,
    load,
    short_name,
)
from nimble.cli.outputs import Page, check_file
from nimble.cli.users_code import users_code
from nimble.exit_codes import FINE
from nimble.progress import progress_bar

DEMO = ("resnet50", "mobilenet_v2", "googlenet", "inception_v3", "nasnet_a_mobile")
SUMMARY = "compile a model, check it, time it against eager; with --report write its report"
EXAMPLES = """\
examples:
  nimble run                                     five networks
  nimble run resnet50                            of torchvision, with random weights
  nimble run timm:resnet18 --batch 8 --dtype bf16
  nimble run googlenet --streams 4 --option tune=0
  nimble run bert --report bert.html             of transformers, with its default configuration
  nimble run my_model.py:make --weights w.pt     make() returns a model and a tuple of inputs
  nimble run mobilenet_v2 --json                 only JSON on standard output

exit status: 0 fine; 1 a result differs from eager's; 2 a wrong name, file or option, or a missing package;
3 the model cannot be replayed, and the message says what to change; 4 the model's own code raised an error
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="a name, or file.py:function (five networks)"
    )
    add_model_arguments(parser)
    parser.add_argument(
        "--seconds", type=positive_seconds, default=2.0, metavar="S", help="of timing for each (2)"
    )
    add_compile_arguments(parser)
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write the report of the last model there (HTML)"
    )
    parser.add_argument("--json", action="store_true", help="only JSON on standard output")


def run(arguments: argparse.Namespace) -> int:
    device = torch.device(checked_device(arguments.device or default_device()))
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
    names = arguments.models or DEMO
    rows = []
    check_options(arguments)
    if arguments.report:
        check_file(arguments.report)
    with progress_bar(total=len(names)) as bar:
        bar.say("looking for the models")
        for name in names:  # before the first of them takes its time
            check_model(name, arguments)
        for name in names:
            say = lambda text, name=name: bar.say(f"{short_name(name)}: {text}")  # noqa: E731
            say("making the model")
            model = load(name, arguments, device)
            rows.append(run_model(model, arguments, say))
            bar.step()
    if arguments.json:
        print(json.dumps({"machine": machine(), "rows": rows}, indent=1))
    else:
        show(rows, arguments)
    return FINE


def run_model(model: Model, arguments: argparse.Namespace, say: Callable[[str], None]) -> dict:
    module, inputs = model.module, model.inputs
    in_users_code = lambda doing: users_code(f"{doing} {model.name}", arguments.traceback)  # noqa: E731
    with torch.inference_mode():
        say("running eagerly")
        with in_users_code("running"):
            module(*inputs)  # kernels are chosen and caches filled, for eager and so for what is recorded
            expected = module(*inputs)
            repeatable = all(same_bits(module(*inputs), expected) for _ in range(3))
        say("recording, planning, checking")
        fast = compiled(module, arguments)
        start = time.perf_counter()
        with in_users_code("recording"):
            fast.prepare(*inputs)
        prepare_seconds = time.perf_counter() - start
        exact = repeatable and keeps_eagers_bits(arguments)
        answer = compare(fast(*inputs), expected, DTYPES[arguments.dtype], exact)
        say("timing")
        competitors = {"eager": lambda: module(*inputs), "nimble": lambda: fast(*inputs)}
        amount = Amount(seconds=min(0.5, arguments.seconds), most_seconds=arguments.seconds)
        with in_users_code("timing"):
            timings = time_in_turn(competitors, amount)
        if arguments.report:
            say("writing the report")
            fast.report(str(arguments.report))
    return {
        "model": model.name,
        "from": model.library,
        "batch": None if model.library == "file" else arguments.batch,  # a file makes its inputs itself
        "dtype": arguments.dtype,
        "device": str(model.device),
        "answer": answer,
        "speedup": timings["eager"].median / timings["nimble"].median,
        "prepare_seconds": prepare_seconds,
        "eager": asdict(timings["eager"]),
        "nimble": asdict(timings["nimble"]),
        "stats": fast.stats,
        "report": str(arguments.report) if arguments.report else None,
    }


def show(rows: list[dict], arguments: argparse.Namespace) -> None:
    console = Page()
    console.width = max(console.width, 240)  # the whole table, also where the terminal is narrow or none
    batch = "" if any(row["batch"] is None for row in rows) else f"batch {arguments.batch}, "
    table = Table(
        title=f"milliseconds, {batch}{arguments.dtype}, on {rows[0]['device']}",
        caption="medians of interleaved runs; MiB: the arena, of what it takes without planning",
        box=box.SIMPLE,
    )
    table.add_column("model", no_wrap=True)
    titles = (
        "eager",
        "nimble",
        "speed-up",
        "tasks",
        "streams",
        "syncs",
        "concurrency",
        "MiB",
        "prepared s",
        "answer",
    )
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        stats = row["stats"]
        table.add_row(
            row["model"],
            milliseconds(row["eager"]["median"]),
            milliseconds(row["nimble"]["median"]),
            f"{row['speedup']:.2f}x",
            *(str(stats[key]) for key in ("tasks", "streams", "syncs", "degree_of_concurrency")),
            f"{stats['arena_bytes'] / 2**20:.1f} of {stats['allocated_bytes'] / 2**20:.0f}",
            f"{row['prepare_seconds']:.2f}",
            row["answer"],
        )
    console.print(table)
    if len(rows) > 1:
        mean = math.exp(sum(math.log(row["speedup"]) for row in rows) / len(rows))
        console.print(f"geometric mean of the speed-ups: {mean:.2f}x")
    if arguments.report:
        console.print(f"report: {arguments.report}", soft_wrap=True)
