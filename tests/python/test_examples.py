"""The examples run, and say what they promise to say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# What an example is given so that it takes seconds.
TINY = ["--steps", "12", "--batch", "4", "--device", "cpu"]

every_training = pytest.mark.parametrize("name", ["train_mnist", "train_cifar"])


def run(name: str, *arguments: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@every_training
def test_training_ends_with_eagers_loss(name):
    result = run(name, *TINY)
    assert result.returncode == 0, result.stderr
    losses = dict(re.findall(r"^(eager|nimble) +loss (\S+),", result.stdout, flags=re.MULTILINE))
    assert losses.keys() == {"eager", "nimble"}, result.stdout
    assert losses["eager"] == losses["nimble"]
    assert "same loss: yes" in result.stdout


@every_training
def test_training_is_replayed(name):
    result = run(name, *TINY, "--explain")
    replayed = re.search(r"replayed +(\d+) times", result.stdout)
    assert replayed, result.stdout + result.stderr
    assert int(replayed[1]) >= 8


@every_training
def test_help_says_what_it_does(name):
    result = run(name, "--help")
    assert result.returncode == 0
    assert "from the same seed" in " ".join(result.stdout.split())
