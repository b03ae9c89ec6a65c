"""Runs the real command line, as a user would."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path


def nimble_on_a_terminal(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit status, standard output, and what a terminal that is its standard error shows."""
    ours, theirs = pty.openpty()
    settings = environment_of(TERM="xterm", COLUMNS="120", **environment)
    process = subprocess.Popen(
        [sys.executable, "-m", "nimble", *arguments], env=settings, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    out = process.stdout.read()
    return process.wait(), out.decode(), seen.decode(errors="replace")


def environment_of(**environment: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | environment


def nimble(*arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    settings = environment_of(**environment)
    command = [sys.executable, "-m", "nimble", *arguments]
    return subprocess.run(command, env=settings, cwd=folder, capture_output=True, text=True, timeout=300)
