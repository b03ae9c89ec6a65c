"""The examples run, and say what they promise to say."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# What an example is given so that it takes seconds.
TINY = ["--steps", "12", "--batch", "4", "--device", "cpu", "--explain"]

every_training = pytest.mark.parametrize("name", ["train_mnist", "train_cifar"])


def run(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=300)


@functools.cache
def said_by(name: str) -> str:
    """What a tiny run prints."""
    result = run(name, *TINY)
    assert result.returncode == 0, result.stderr
    return result.stdout


@every_training
def test_training_ends_with_eagers_loss(name):
    losses = dict(re.findall(r"^(eager|nimble) +loss (\S+),", said_by(name), flags=re.MULTILINE))
    assert losses.keys() == {"eager", "nimble"}, said_by(name)
    assert losses["eager"] == losses["nimble"]
    assert "same loss: yes" in said_by(name)


@every_training
def test_training_is_replayed(name):
    replayed = re.search(r"replayed +(\d+) times", said_by(name))
    assert replayed, said_by(name)
    assert int(replayed[1]) >= 8


@every_training
def test_both_runs_have_a_bar_and_are_timed_side_by_side(name):
    lines = said_by(name).splitlines()
    for title in ("eager", "nimble"):
        assert any(re.match(rf"{title} .*━.* 12/12$", line) for line in lines), lines
    times = [re.match(r"(?:eager|nimble) +loss .*, accuracy .*%, (\S+) ms a step$", line) for line in lines]
    eager, nimble = (float(found[1]) for found in times if found)
    (speed_up,) = [float(line.split()[1]) for line in lines if line.startswith("speed-up:")]
    # They are printed with two decimals, which are few for a step of less than a millisecond.
    assert speed_up == pytest.approx(eager / nimble, rel=0.05, abs=0.01)


@every_training
def test_a_run_too_short_to_be_timed_says_so(name):
    result = run(name, "--steps", "1", "--batch", "2", "--device", "cpu")
    assert result.returncode == 0, result.stderr
    assert "same loss: yes" in result.stdout
    assert "speed-up: none" in result.stdout


@every_training
@pytest.mark.parametrize("given", [("--steps", "0"), ("--batch", "-1"), ("--device", "cuda")])
def test_what_cannot_be_run_is_refused_in_a_line(name, given):
    result = run(name, *given, CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 2
    assert f"error: {'--device cuda' if given[0] == '--device' else 'argument ' + given[0]}" in result.stderr


def test_accuracy_rises_while_the_bar_grows():
    # As on a terminal, where each state of the bar is drawn; one thread is quicker than many on a busy machine.
    settings = ["--steps", "30", "--batch", "32", "--evaluate-every", "5", "--device", "cpu"]
    result = run("train_cifar", *settings, FORCE_COLOR="1", OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", result.stdout)
    for title in ("eager", "nimble"):
        drawn = [line for line in re.split(r"[\r\n]", text) if re.match(rf"{title} .*━", line)]
        counts = [int(re.search(r"(\d+)/30$", line)[1]) for line in drawn]
        assert len(set(counts)) > 2, drawn
        assert counts == sorted(counts)
        accuracies = [float(found[1]) for line in drawn if (found := re.search(r"accuracy +(\S+)%", line))]
        # Of ten classes guessing finds one in ten.
        assert accuracies[0] < 25 < accuracies[-1], accuracies


@every_training
def test_help_says_what_it_does(name):
    result = run(name, "--help")
    assert result.returncode == 0
    assert "from the same seed" in " ".join(result.stdout.split())
