"""Runs the real command line, as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def nimble(*arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    settings = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | environment
    command = [sys.executable, "-m", "nimble", *arguments]
    return subprocess.run(command, env=settings, cwd=folder, capture_output=True, text=True, timeout=300)
