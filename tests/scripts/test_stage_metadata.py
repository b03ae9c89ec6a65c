"""python/stage_metadata.py: entry points of a package that was built and not installed."""

import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]


def staged(folder: Path, version: str):
    """The one distribution that Python finds in the folder."""
    script = ROOT / "python/stage_metadata.py"
    subprocess.run([sys.executable, script, ROOT / "pyproject.toml", version, folder], check=True)
    (distribution,) = distributions(path=[str(folder)])
    return distribution


def test_torch_finds_the_compiler_backend_and_the_shell_the_command(tmp_path):
    entry_points = staged(tmp_path, "1.2.3").entry_points
    (backend,) = entry_points.select(group="torch_dynamo_backends")
    (command,) = entry_points.select(group="console_scripts")
    assert (backend.name, backend.value) == ("nimble", "nimble.dynamo:backend")
    assert (command.name, command.value) == ("nimble", "nimble.cli:main")


def test_a_new_version_takes_the_place_of_the_old_one(tmp_path):
    assert staged(tmp_path, "1.2.3").version == "1.2.3"
    assert staged(tmp_path, "1.2.4").version == "1.2.4"
