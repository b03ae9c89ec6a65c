"""Where commands write: what cannot be written is told before the work, and nobody minds a reader who goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.command import environment_of, nimble, nimble_on_a_terminal
from nimble.cli import main, outputs
from nimble.exit_codes import WrongInput

GRAPH = str(Path(__file__).resolve().parents[3] / "examples/graphs/diamond.json")


@pytest.fixture
def nothing_is_made(monkeypatch):
    """The work must not begin."""

    def load(*_):
        raise AssertionError("a model was made")

    for command in ("run", "report"):
        monkeypatch.setattr(f"nimble.cli.{command}.load", load)


@pytest.mark.parametrize(("command", "option"), [("run", "--report"), ("report", "--out")])
def test_a_page_that_cannot_be_written_is_refused_before_the_work(
    command, option, model_file, tmp_path, capsys, nothing_is_made
):
    places = {
        tmp_path / "nowhere/page.html": "there is no folder",
        tmp_path: "is a folder",
        model_file / "page.html": "there is no folder",
    }
    for place, advice in places.items():
        assert main([command, f"{model_file}:perceptron", option, str(place), "--device", "cpu"]) == 2
        assert advice in capsys.readouterr().err


def test_a_folder_without_permission_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs.os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(WrongInput, match="cannot be written"):
        outputs.check_file(tmp_path / "page.html")


@pytest.mark.parametrize(
    "arguments", [["{file}:perceptron", "resnte18"], ["{file}:perceptron", "--option", "strems=1"]]
)
def test_wrong_names_and_options_are_refused_before_the_work(arguments, model_file, capsys, nothing_is_made):
    assert main(["run", *(each.format(file=model_file) for each in arguments), "--device", "cpu"]) == 2
    assert "did you mean resnet18" in (error := capsys.readouterr().err) or "streams" in error


def test_bench_refuses_a_file_as_its_folder(model_file, capsys):
    assert main(["bench", "--quick", "--device", "cpu", "--out", str(model_file)]) == 2
    assert f"{model_file} is no folder" in capsys.readouterr().err


def test_errors_of_the_system_are_told_without_numbers(tmp_path, capsys):
    assert main(["bench", "--fill", str(tmp_path / "nowhere.md")]) == 2
    assert capsys.readouterr().err == f"nimble: {tmp_path}/nowhere.md: No such file or directory\n"


def test_only_the_result_is_printed_where_there_is_no_terminal(model_file, tmp_path):
    page = str(tmp_path / "page.html")
    result = nimble("report", f"{model_file}:perceptron", "--device", "cpu", "--out", page)
    assert (result.returncode, result.stdout, result.stderr) == (0, page + "\n", "")


@pytest.mark.parametrize("text", [b"", b"these are no weights", b"\x80\x02]."])
def test_a_file_that_holds_no_weights_is_refused_by_name(text, model_file, tmp_path, capsys):
    weights = tmp_path / "no_weights.pt"
    weights.write_bytes(text)
    arguments = ["--device", "cpu", "--weights", str(weights)]
    assert main(["run", f"{model_file}:perceptron", *arguments]) == 2
    assert f"{weights} holds no state_dict" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["doctor"], ["doctor", "--json"], ["bench", "--list"], ["plan", GRAPH]]
)
def test_a_reader_who_goes_away_breaks_nothing(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [sys.executable, "-m", "nimble", *arguments],
        env=environment_of(PYTHONUNBUFFERED=""),
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    error = process.stderr.read()
    assert (process.wait(), error) == (141, b"")


def test_an_interruption_is_told(model_file, tmp_path):
    model_file.write_text(
        model_file.read_text() + "\n\ndef waits():\n    print('here', flush=True)\n    input()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "nimble", "run", f"{model_file}:waits", "--device", "cpu"],
        env=environment_of(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Whoever was started in the background by a shell ignores it, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout.readline() == b"here\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (130, b"nimble: interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "last"),
    [
        (["doctor"], "6/6"),
        (
            ["report", "{file}:perceptron", "--device", "cpu", "--out", "{folder}/page.html"],
            "writing the page",
        ),
        (["bench", "--quick", "--workloads", "add_one", "--device", "cpu", "--out", "{folder}"], "drawing"),
    ],
)
def test_what_takes_a_while_shows_progress_on_a_terminal(arguments, last, model_file, tmp_path):
    filled = [each.format(file=model_file, folder=tmp_path) for each in arguments]
    status, _, shown = nimble_on_a_terminal(*filled)
    assert status == 0
    assert last in shown  # the last state of a bar is always drawn
