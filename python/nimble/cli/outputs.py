"""Where a command writes: looked at before anything that takes time, and standard output that nobody reads any more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.console import Console

from nimble.exit_codes import WrongInput


def check_file(path: Path) -> None:
    """WrongInput where this file could not be written later."""
    if path.is_dir():
        raise WrongInput(f"{path} is a folder, where a file is to be written")
    if not path.parent.is_dir():
        raise WrongInput(f"there is no folder {path.parent} to write {path.name} to")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise WrongInput(f"{path} cannot be written")


class Page(Console):
    """Standard output. Whoever reads it may go away (`nimble doctor | head -1`), which ends a command and breaks
    nothing; rich by itself would end with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def forget_standard_output() -> None:
    """So that Python, when it ends, does not try once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
