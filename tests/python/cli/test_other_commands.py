"""`nimble` itself, `nimble doctor`, `nimble plan`, `nimble report` and `nimble bench`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.command import nimble as command
from cli.command import nimble_on_a_terminal
from nimble.cli import main

import nimble

ROOT = Path(__file__).resolve().parents[3]
GRAPHS = ROOT / "examples/graphs"
PICTURE = ROOT / "docs/pictures/timeline.png"


def finding(report: dict, name: str) -> dict:
    return next(each for each in report["findings"] if each["name"] == name)


def test_help_shows_every_command_examples_and_exit_codes():
    result = command("--help")
    assert result.returncode == 0
    for expected in ("run", "bench", "report", "plan", "doctor", "examples:", "Exit status: 0"):
        assert expected in result.stdout


@pytest.mark.parametrize("name", ["run", "bench", "report", "doctor"])
def test_every_command_has_help_with_examples_and_exit_codes(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert f"nimble {name}" in out[out.index("examples:") :]
    assert "exit status: 0" in out


def test_without_a_command_there_is_help(capsys):
    assert main([]) == 0
    assert "nimble doctor" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["rnu"], "no command is named 'rnu'; did you mean run?"),
        (["dance"], "there are run, bench, report, doctor, plan"),
        (["run", "--strems", "3"], "no option of nimble run is named '--strems'; did you mean --streams"),
        (["bench", "--quik"], "--quick"),
        (["--versoin"], "did you mean --version?"),
        (["--json", "doctor"], "nimble doctor --json"),
        (["doctor", "now"], "nimble doctor takes no 'now'"),
    ],
)
def test_a_wrong_command_or_option_is_answered_with_the_nearest(arguments, advice, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert advice in captured.err
    assert captured.out == ""


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.strip() == nimble.__version__


def test_the_path_for_cmake_is_printed_where_there_is_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(nimble, "__file__", str(tmp_path / "__init__.py"))
    assert main(["--cmake-path"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "cmake --install" in captured.err
    (tmp_path / "lib/cmake").mkdir(parents=True)
    assert main(["--cmake-path"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/lib/cmake\n"


def test_the_doctor_finds_that_nimble_works(capsys):
    assert main(["doctor", "--json"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert captured.err == ""
    assert report["works"]
    assert finding(report, "torch")["text"].startswith("2.11")
    assert finding(report, "replay on cpu")["status"] == "ok"


def test_the_doctor_says_what_is_missing_and_how_to_get_it(monkeypatch, capsys):
    from nimble.cli import doctor

    monkeypatch.setattr(doctor, "version_of", lambda name: None if name == "timm" else "1.0")
    assert main(["doctor", "--json"]) == 0
    found = finding(json.loads(capsys.readouterr().out), "timm")
    assert found["status"] == "limited"
    assert "pip install timm" in found["text"]


@pytest.mark.parametrize(
    ("name", "value"), [("NIMBLE_CACHE_SIZE", "lots"), ("NIMBLE_REWRITES", "fold_batchnorm")]
)
def test_the_doctor_ends_with_1_where_something_is_broken(name, value):
    result = command("doctor", **{name: value})
    assert result.returncode == 1
    broken = [line for line in result.stdout.splitlines() if line.startswith("broken")]
    assert any(name in line and value in line for line in broken)


def test_plan_does_what_nimble_plan_does():
    result = command("plan", str(GRAPHS / "diamond.json"))
    assert result.returncode == 0, result.stderr
    assert "streams                 2" in result.stdout


def test_plan_speaks_json_and_passes_on_help_and_exit_codes(tmp_path):
    result = command("plan", str(GRAPHS / "diamond.json"), "--json")
    assert json.loads(result.stdout)[0]["tasks"] == 4
    help_text = command("plan", "--help").stdout
    assert "Usage: nimble plan" in help_text  # not where the program lies
    assert "--streams" in help_text
    assert command("plan", str(tmp_path / "nowhere.json")).returncode == 2


def test_bench_lists_what_there_is(capsys):
    assert main(["bench", "--list", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert "nasnet_a_mobile" in known["workloads"]
    assert known["systems"]["nimble"] == "Nimble"


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--workloads", "resnet5"], "did you mean resnet50"),
        (["--systems", "torch-compiel"], "torch-compile"),
        (["--device", "cuda:77"], "cuda"),
        (["--draw", "nowhere.json"], "nowhere.json"),
        (["--draw", str(PICTURE)], "timeline.png is no JSON"),
        (["--fill", __file__], "has no table to fill"),
        (["--systems", "cuda-graph", "--device", "cpu"], "cuda-graph runs on cuda, not on cpu"),
        (
            ["--systems", "openvino", "--workloads", "training/resnet50", "--device", "cpu"],
            "openvino runs none of training/resnet50",
        ),
    ],
)
def test_bench_refuses_what_is_not_there(arguments, advice, capsys):
    assert main(["bench", *arguments]) == 2
    assert advice in capsys.readouterr().err


def test_report_writes_the_page_and_prints_its_path(model_file, tmp_path, capsys):
    path = tmp_path / "page.html"
    assert main(["report", f"{model_file}:perceptron", "--device", "cpu", "--out", str(path)]) == 0
    assert capsys.readouterr().out.strip() == str(path)
    assert "<html" in path.read_text().lower()


def test_a_report_shows_rewrites_that_derive_weights(model_file, tmp_path):
    path = tmp_path / "page.html"
    # Measured, a rewrite may turn out to be slower and be dropped.
    chosen = ["--option", "rewrites=default", "--option", "tune=0"]
    assert main(["report", f"{model_file}:folding", "--device", "cpu", "--out", str(path), *chosen]) == 0
    assert "native_batch_norm#1 into convolution#0" in path.read_text()


def test_run_writes_the_report_too(model_file, tmp_path):
    path = tmp_path / "page.html"
    assert (
        main(
            ["run", f"{model_file}:perceptron", "--device", "cpu", "--seconds", "0.05", "--report", str(path)]
        )
        == 0
    )
    assert path.exists()


def test_progress_is_shown_on_a_terminal_and_not_on_standard_output(model_file):
    model = f"{model_file}:perceptron"
    status, out, shown = nimble_on_a_terminal("run", model, "--device", "cpu", "--json", "--seconds", "0.5")
    assert status == 0
    assert "timing" in shown
    assert json.loads(out)["rows"]


def test_plan_shows_progress_on_a_terminal_and_prints_what_it_would_without():
    graph = str(GRAPHS / "diamond.json")
    status, out, shown = nimble_on_a_terminal("plan", graph)
    assert status == 0
    assert "planning" in shown
    assert out == command("plan", graph).stdout


def test_plan_passes_on_errors_and_their_status_on_a_terminal(tmp_path):
    status, out, shown = nimble_on_a_terminal("plan", str(tmp_path / "nowhere.json"))
    assert status == 2
    assert "nowhere.json" in shown
    assert out == ""


def test_plan_with_json_shows_no_progress_and_without_a_terminal_neither():
    graph = str(GRAPHS / "diamond.json")
    status, out, shown = nimble_on_a_terminal("plan", graph, "--json")
    assert (status, shown) == (0, "")
    assert json.loads(out)[0]["tasks"] == 4
    assert command("plan", graph).stderr == ""


def test_plan_says_what_ended_its_program(tmp_path, monkeypatch, capsys):
    from nimble.cli import plan

    program = tmp_path / "nimble-plan"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(plan, "find_program", lambda: program)
    assert main(["plan", "net.json"]) == 2
    assert "SIGKILL" in capsys.readouterr().err
