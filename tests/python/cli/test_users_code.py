"""Errors in a model's own code: one clear message, where and what, and the whole traceback for those who ask."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.command import nimble as command
from nimble.cli import main
from nimble.cli.users_code import ModelFailed, users_code

import nimble

BROKEN_MODELS = """
import torch


def product(x):
    return x @ torch.ones(3, 3)  # of another size


class Wrong(torch.nn.Module):
    def forward(self, x):
        return product(x)


class TiresAfter(torch.nn.Module):
    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def forward(self, x):
        self.calls -= 1
        if self.calls < 0:
            raise ValueError("tired")
        return x + 1


def wrong_forward():
    return Wrong(), torch.randn(2, 4)


def tires_of_recording():
    return TiresAfter(5), torch.randn(2, 4)


def no_weights():
    return open("no_such_weights.pt"), torch.randn(2, 4)


def leaves():
    raise SystemExit("not today")


def wants_a_size(size):
    return torch.nn.Linear(size, size), torch.randn(size)


def too_many_inputs():
    return torch.nn.Linear(3, 3), (torch.randn(3), torch.randn(3))
"""


@pytest.fixture
def broken_models(tmp_path: Path, monkeypatch) -> str:
    (tmp_path / "broken_models.py").write_text(BROKEN_MODELS)
    monkeypatch.chdir(tmp_path)
    return "broken_models.py"


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(BROKEN_MODELS.splitlines(), 1) if text in line)


@pytest.mark.parametrize("name", ["run", "report"])
def test_an_error_in_forward_shows_the_authors_frames_and_no_others(name, broken_models, capsys):
    assert main([name, f"{broken_models}:wrong_forward", "--device", "cpu"]) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "nimble: running broken_models.py:wrong_forward failed",
        f"  broken_models.py:{line_of('return product')} in forward",
        "    return product(x)",
        f"  broken_models.py:{line_of('return x @')} in product",
        "    return x @ torch.ones(3, 3)  # of another size",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x4 and 3x3)",
        "(the whole traceback: the same command with --traceback)",
    ]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("no_weights", ["calling no_weights()", 'open("no_such_weights.pt")', "FileNotFoundError"]),
        ("leaves", ["calling leaves()", "SystemExit: not today"]),
        ("wants_a_size", ["calling wants_a_size()", "missing 1 required positional argument: 'size'"]),
        ("too_many_inputs", ["running", "takes 2 positional arguments but 3 were given"]),
        ("tires_of_recording", ["recording", "in forward", "ValueError: tired"]),
    ],
)
def test_an_error_says_what_was_being_done(function, expected, broken_models, capsys):
    assert main(["run", f"{broken_models}:{function}", "--device", "cpu", "--seconds", "0.05"]) == 4
    error = capsys.readouterr().err
    assert "Traceback" not in error
    for text in expected:
        assert text in error


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import no_such_package", ["unimportable.py:1 in <module>", "ModuleNotFoundError: No module named"]),
        ("def make(:", ["unimportable.py", "def make(:", "SyntaxError"]),
    ],
)
def test_a_file_that_cannot_be_imported_shows_its_line(code, expected, tmp_path, monkeypatch, capsys):
    (tmp_path / "unimportable.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "unimportable.py:make", "--device", "cpu"]) == 4
    error = capsys.readouterr().err
    for text in ["importing unimportable.py failed", *expected]:
        assert text in error
    assert "importlib" not in error


def test_the_whole_traceback_is_there_for_those_who_ask(broken_models):
    result = command("run", f"{broken_models}:wrong_forward", "--device", "cpu", "--traceback")
    assert result.returncode == 4
    assert "Traceback (most recent call last)" in result.stderr
    assert "torch/nn/modules/module.py" in result.stderr


def test_nimbles_own_errors_go_through():
    with pytest.raises(TypeError, match="no_such_option"), users_code("compiling", whole=False):
        nimble.compile(lambda x: x, no_such_option=1)
    with pytest.raises(nimble.Error), users_code("recording", whole=False):
        raise nimble.Error("refused")
    with pytest.raises(ModelFailed, match="ZeroDivisionError"), users_code("dividing", whole=False):
        int("1") / 0


@pytest.mark.parametrize("name", [[], ["run"], ["report"]])
def test_the_help_names_the_exit_status(name, capsys):
    with pytest.raises(SystemExit):
        main([*name, "--help"])
    assert re.search(r"\b4 [^;]*model's own code", capsys.readouterr().out)
