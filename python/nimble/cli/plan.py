"""`nimble plan`: what the program nimble-plan does, with the copy that came with this package."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from nimble import _C
from nimble.exit_codes import WRONG_INPUT, WrongInput

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
        "nimble-plan was not built with this package: build it with `make`, or install the wheel"
    )


def run(arguments: list[str]) -> int:
    """The arguments are nimble-plan's, --help among them."""
    status = subprocess.run([find_program(), *arguments]).returncode
    return status if status >= 0 else WRONG_INPUT
