"""The benchmark suite on a GPU: every column has its figure, in inference and in training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> dict[tuple[str, str], dict]:
    folder: Path = tmp_path_factory.mktemp("bench")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [
        sys.executable,
        "-m",
        "nimble.bench",
        "--device",
        "cuda",
        "--seconds",
        "0.2",
        "--out",
        str(folder),
    ]
    command += ["--workloads", "mobilenet_v3_small", "training/small_perceptron", "--systems", "no-compilers"]
    result = subprocess.run(
        [*command, "--json"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr + result.stdout[-3000:]
    return {(row["workload"], row["system"]): row for row in json.loads(result.stdout)["rows"]}


@pytest.mark.parametrize("workload", ["mobilenet_v3_small", "training/small_perceptron"])
@pytest.mark.parametrize("system", ["eager", "cuda-graph", "nimble-one-stream", "nimble"])
def test_everybody_is_timed_and_answers_like_eager(rows, workload, system):
    row = rows[workload, system]
    assert row["timing"]["runs"] >= 5
    assert row["answer"] in ("itself", "same bits") or workload.startswith("training/")
    assert row["host_microseconds"] > 0
    assert ("launch_microseconds" in row) == system.startswith("nimble")
    assert row["memory"]["steady"] >= 0


@pytest.mark.parametrize("system", ["eager", "cuda-graph", "nimble"])
def test_the_gpu_is_active_for_a_share_of_the_time(rows, system):
    assert 0 < rows["mobilenet_v3_small", system]["active_share"] <= 1


def test_memory_of_graphs_and_schedules_is_known(rows):
    assert rows["mobilenet_v3_small", "cuda-graph"]["owned_bytes"] > 0
    assert rows["mobilenet_v3_small", "nimble"]["owned_bytes"] > 0


def test_the_state_of_the_gpu_is_recorded(rows):
    clocks = rows["mobilenet_v3_small", "nimble"]["clocks"]
    assert not clocks or "clocks.sm" in clocks
