"""`nimble plan`: what the program nimble-plan does, with the copy that came with this package."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from nimble import _C
from nimble.exit_codes import WrongInput
from nimble.progress import progress_bar

SUMMARY = "plan task graphs: streams, synchronisations and memory, verified, with the predicted time"


def find_program() -> Path:
    """In an installed package, in a build folder, or on the path."""
    package = Path(_C.__file__).resolve().parent
    found = [package / "bin/nimble-plan", package.parents[1] / "tools/nimble-plan"]
    on_path = shutil.which("nimble-plan")
    for program in [*found, *([Path(on_path)] if on_path else [])]:
        if program.exists():
            return program
    raise WrongInput(
        "nimble-plan was not built with this package: build it with `make run`, or install the wheel"
    )


def run(arguments: list[str]) -> int:
    """The arguments are nimble-plan's, --help among them."""
    # Its help shows the name that it was called by.
    call = partial(subprocess.run, ["nimble plan", *arguments], executable=find_program())
    watched = sys.stderr.isatty() and "--json" not in arguments
    status = run_watched(call) if watched else call().returncode
    if status == -signal.SIGPIPE:
        raise BrokenPipeError
    if status < 0:
        raise WrongInput(f"nimble-plan was ended by {signal.Signals(-status).name}")
    return status


def run_watched(call: Callable[..., subprocess.CompletedProcess]) -> int:
    """What it prints, at its end in any case, waits until the bar is gone."""
    with progress_bar("planning", total=None):
        ended = call(capture_output=True)
    for stream, text in ((sys.stdout, ended.stdout), (sys.stderr, ended.stderr)):
        stream.flush()
        stream.buffer.write(text)
        stream.flush()
    return ended.returncode
