"""`nimble report`: compiles a model and writes the page that shows its schedule."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from nimble.bench.arguments import checked_device, default_device
from nimble.cli.models import (
    add_compile_arguments,
    add_model_arguments,
    check_model,
    check_options,
    compiled,
    load,
    short_name,
)
from nimble.cli.outputs import check_file
from nimble.cli.users_code import users_code
from nimble.exit_codes import FINE
from nimble.progress import progress_bar

SUMMARY = "compile a model and write the page that shows its timeline, memory and tasks"
EXAMPLES = """\
examples:
  nimble report googlenet                        writes googlenet.html
  nimble report my_model.py:make --out page.html
  nimble report bert --batch 8 --json

exit status: 0 fine; 2 a wrong name, file or option, or a missing package; 3 the model cannot be replayed;
4 the model's own code raised an error
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL", help="a name, or file.py:function")
    add_model_arguments(parser)
    add_compile_arguments(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where the page goes (the model's name with .html)"
    )
    parser.add_argument("--json", action="store_true", help="only JSON on standard output")


def run(arguments: argparse.Namespace) -> int:
    device = torch.device(checked_device(arguments.device or default_device()))
    path = arguments.out or Path(arguments.model.rpartition(":")[2] + ".html")
    check_options(arguments)
    check_file(path)
    check_model(arguments.model, arguments)
    # Not in inference mode, where weights that are made have no versions and rewrites derive nothing from them.
    with progress_bar(short_name(arguments.model)) as bar, torch.no_grad():
        bar.say("making the model")
        model = load(arguments.model, arguments, device)
        bar.say("recording, planning, checking")
        fast = compiled(model.module, arguments)
        with users_code(f"running {model.name}", arguments.traceback):
            for _ in range(2):  # kernels are chosen and caches filled
                model.module(*model.inputs)
        with users_code(f"recording {model.name}", arguments.traceback):
            fast.prepare(*model.inputs)
        bar.say("measuring tasks, writing the page")
        fast.report(str(path))
    if arguments.json:
        print(
            json.dumps({"model": model.name, "device": str(device), "report": str(path), "stats": fast.stats})
        )
    else:
        print(path)
    return FINE
