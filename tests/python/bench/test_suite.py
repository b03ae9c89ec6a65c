"""The suite from end to end, with workloads that take no time: real processes, real systems."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nimble.bench.arguments import add_arguments, settings_of
from nimble.bench.child import Child, Stopped
from nimble.bench.job import Job
from nimble.bench.measure import QUICK
from nimble.bench.suite import Suite
from nimble.bench.systems import GROUPS, SYSTEMS, chosen
from nimble.nearest import UnknownName


def bench(folder: Path, *arguments: str, path: list[str] | None = None) -> subprocess.CompletedProcess:
    places = [*(path or []), *(each for each in sys.path if each)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    command = [
        sys.executable,
        "-m",
        "nimble.bench",
        "--device",
        "cpu",
        "--seconds",
        "0.1",
        "--out",
        str(folder),
        *arguments,
    ]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def rows_of(folder: Path) -> dict[tuple[str, str], dict]:
    report = json.loads((folder / "results.json").read_text())
    return {(row["workload"], row["system"]): row for row in report["rows"]}


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    folder = tmp_path_factory.mktemp("bench")
    workloads = ("add_one", "training/small_perceptron")
    return folder, bench(
        folder, "--workloads", *workloads, "--batch", "4", "--systems", "no-compilers", "--exhibits"
    )


def test_a_run_ends_well(tiny_run):
    _, result = tiny_run
    assert result.returncode == 0, result.stderr


def test_every_system_that_fits_has_a_row_with_figures(tiny_run):
    rows = rows_of(tiny_run[0])
    wanted = {"eager", "nimble", "nimble-one-stream"}
    for workload in ("add_one", "training/small_perceptron"):
        assert wanted <= {system for name, system in rows if name == workload}
        for system in wanted:
            row = rows[workload, system]
            assert row["timing"]["runs"] >= 3
            assert row["timing"]["p5"] <= row["timing"]["median"] <= row["timing"]["p95"]
            assert row["over_eager"] > 0
            assert row["batch"] == 4


def test_answers_are_compared_with_eagers(tiny_run):
    rows = rows_of(tiny_run[0])
    assert rows["add_one", "nimble"]["answer"] == "same bits"
    assert rows["training/small_perceptron", "nimble"]["answer"] == "same bits"
    assert rows["add_one", "eager"]["answer"] == "itself"


def test_what_is_timed_as_nimble_is_a_replay(tiny_run):
    for row in rows_of(tiny_run[0]).values():
        if row["system"].startswith("nimble"):
            assert row["stats"]["replays"] > 0
            assert row["stats"]["tasks"] > 0
            assert row["critical_path_milliseconds"] > 0


def test_a_gpus_systems_have_no_row_on_a_cpu(tiny_run):
    assert not [system for _, system in rows_of(tiny_run[0]) if "graph" in system]


def test_machine_and_versions_are_recorded(tiny_run):
    report = json.loads((tiny_run[0] / "results.json").read_text())
    assert report["machine"]["versions"]["torch"].startswith("2.11")
    assert report["machine"]["threads"] > 0
    assert report["command"].endswith(
        "--workloads add_one training/small_perceptron --batch 4 --systems no-compilers --exhibits"
    )
    assert str(tiny_run[0]) not in report["command"]


def test_tables_and_pictures_lie_beside_the_data(tiny_run):
    folder, result = tiny_run
    assert "| add_one | 4 | fp32 |" in (folder / "results.md").read_text()
    assert "| add_one | 4 | fp32 |" in result.stdout
    assert "| small_perceptron, batch 4, fp32 |" in (folder / "results-exhibits.md").read_text()
    pytest.importorskip("matplotlib")
    assert (folder / "results-inference-speed.svg").exists()
    assert (folder / "results-training-speed.png").exists()


def test_a_system_that_fails_gets_a_row_that_says_why_and_the_run_goes_on(tmp_path):
    broken = tmp_path / "packages/openvino"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise OSError('this processor is too old')\n")
    result = bench(
        tmp_path,
        "--workloads",
        "add_one",
        "--systems",
        "openvino",
        "nimble",
        "--json",
        path=[str(tmp_path / "packages")],
    )
    assert result.returncode == 0, result.stderr
    rows = {row["system"]: row for row in json.loads(result.stdout)["rows"]}  # and nothing else is printed
    assert "this processor is too old" in rows["openvino"]["failed"]
    assert "timing" in rows["nimble"]


def test_a_compiler_that_takes_too_long_is_ended(tmp_path):
    slow = tmp_path / "packages/openvino"
    slow.mkdir(parents=True)
    (slow / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    start = time.monotonic()
    arguments = ("--workloads", "add_one", "--systems", "openvino", "--prepare-limit", "12")
    result = bench(tmp_path, *arguments, path=[str(tmp_path / "packages")])
    assert result.returncode == 0, result.stderr
    assert "not ready after" in rows_of(tmp_path)["add_one", "openvino"]["failed"]
    assert time.monotonic() - start < 300
    assert "timing" in rows_of(tmp_path)["add_one", "eager"]


def processes_of(folder: Path) -> list[str]:
    """Command lines of running processes whose environment names this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:  # gone meanwhile, or another user's
            continue
    return found


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_an_interrupted_run_loses_nothing_and_leaves_no_process(tmp_path, sent, status):
    slow = tmp_path / "packages/openvino"
    slow.mkdir(parents=True)
    (slow / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    command = [sys.executable, "-m", "nimble.bench", "--device", "cpu", "--quick", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--workloads", "add_one", "--systems", "openvino"],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(slow.parent), *(each for each in sys.path if each)])},
        # Whoever was started in the background by a shell ignores it, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(
        lambda: (tmp_path / "results.json").exists() and "timing" in rows_of(tmp_path)["add_one", "eager"]
    )
    process.send_signal(sent)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == status
    if sent == signal.SIGINT:
        assert f"what was measured so far is in {tmp_path}/results.json" in told
    rows = rows_of(tmp_path)
    assert rows["add_one", "eager"]["timing"]["runs"] > 0
    assert rows["add_one", "openvino"]["failed"] == "not reached"
    wait_until(lambda: not processes_of(slow.parent))


def test_what_a_crashed_worker_started_ends_with_it(tmp_path, monkeypatch):
    crashing = tmp_path / "python"
    crashing.write_text("#!/bin/sh\nsleep 600 >/dev/null 2>&1 &\nexit 3\n")
    crashing.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(crashing))
    child = Child(Job("add_one", 1, "fp32", "cpu", ("eager",), QUICK, profile=False), compiler_threads=1)
    with pytest.raises(Stopped, match="exit status 3"):
        child.answer(time.monotonic() + 60)
    child.end()
    wait_until(lambda: not processes_of(Path(child.cache.name)))


def wait_until(holds, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.2)


def test_what_is_not_reached_in_time_gets_a_row_that_says_so(tmp_path):
    result = bench(tmp_path, "--workloads", "add_one", "--systems", "nimble", "--time-limit", "0.5")
    assert result.returncode == 0, result.stderr
    for row in rows_of(tmp_path).values():
        assert row["failed"].startswith("not reached")
    assert "not reached" in (tmp_path / "results.md").read_text()


def test_a_quick_look_compares_eager_and_nimble_with_and_without_rewrites(tmp_path):
    result = bench(tmp_path, "--quick", "--workloads", "add_one")
    assert result.returncode == 0, result.stderr
    rows = rows_of(tmp_path)
    assert {system for _, system in rows} == {"eager", "nimble", "nimble-rewrites"}
    for row in rows.values():
        assert row["answer"] and row["timing"]["runs"] > 0
        assert "critical_path_milliseconds" not in row  # tasks timed alone take a while
    # No more than the comparison needs: further runs are for watching memory, which only a GPU has.
    assert rows["add_one", "nimble"]["stats"]["replays"] <= 2


def settings_from(*arguments: str):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return settings_of(parser.parse_args(["--device", "cpu", *arguments]))


@pytest.mark.parametrize(("arguments", "limits"), [((), [120, 600]), (("--prepare-limit", "30"), [30, 30])])
def test_the_compiler_that_searches_longest_has_longer_unless_the_user_says_otherwise(arguments, limits):
    settings = settings_from(*arguments, "--systems", "torch-compile", "torch-compile-max-autotune")
    compilers = [system for system in settings.systems if system.own_process]
    assert [settings.patience_with(system) for system in compilers] == limits


def test_compilers_that_may_take_long_prepare_after_the_others():
    names = ["torch-compile", "torch-compile-max-autotune", "torch-compile-freezing"]
    settings = settings_from(
        "--workloads", "mobilenet_v2", "resnet50", "--systems", *names, "--side-by-side", "4"
    )
    waves = Suite(settings, lambda rows: None, lambda text: None, lambda: None).waves_of_compilers()
    found = [[(cell.workload.name, system.name) for cell, system in wave] for wave in waves]
    assert found == [
        [(network, name) for network in ("mobilenet_v2", "resnet50") for name in (names[0], names[2])],
        [(network, names[1]) for network in ("mobilenet_v2", "resnet50")],
    ]


def test_a_quick_look_is_at_two_networks_without_compilers():
    settings = settings_from("--quick")
    assert [str(cell) for cell in settings.cells()] == [
        "mobilenet_v2, batch 1, fp32",
        "googlenet, batch 1, fp32",
    ]
    assert not any(system.own_process for system in settings.systems)
    assert not settings.profile


def test_eager_is_always_among_the_systems():
    assert [system.name for system in chosen(["nimble"])] == ["eager", "nimble"]


def test_groups_of_systems():
    assert not any(SYSTEMS[name].own_process for name in GROUPS["no-compilers"])
    assert set(GROUPS["quick"]) < set(GROUPS["no-compilers"])
    assert {"torch-compile", "torchscript", "aot-inductor", "onnxruntime", "openvino"} <= set(
        GROUPS["compilers"]
    )
    assert {"nimble-one-stream", "nimble"} <= set(GROUPS["ablations"])


def test_rewrites_of_training_can_be_left_out_of_steps_with_a_tolerance():
    assert {
        "nimble-tolerant",
        "nimble-tolerant-no-fuse_batch_norm",
        "nimble-tolerant-no-fuse_foreach",
    } <= set(SYSTEMS)
    assert "nimble-tolerant-no-pooling" not in SYSTEMS


@pytest.mark.parametrize(
    ("by_default", "expected"),
    [
        (False, {"nimble-rewrites": "default", "nimble-no-fold": ["pack"], "nimble-no-pack": ["fold"]}),
        (True, {"nimble-no-rewrites": "none", "nimble-no-fold": ["pack"], "nimble-no-pack": ["fold"]}),
    ],
)
def test_each_rewrite_can_be_left_out(monkeypatch, by_default, expected):
    from nimble.bench.systems import nimble as ours

    asked = {}
    monkeypatch.setattr(ours, "infer", lambda **options: options["rewrites"])
    for variant in ours.rewrite_variants(["fold", "pack"], by_default):
        asked[variant.name] = variant.infer
        assert variant.exact == (variant.infer == "none")
    assert asked == expected


def test_a_rewrite_that_comes_with_every_other_is_no_variant():
    assert "nimble-no-fold_batch_norm" in SYSTEMS
    assert "nimble-no-out_of_place" not in SYSTEMS


def test_an_unknown_system_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="torch-compile"):
        chosen(["torch-compil"])
