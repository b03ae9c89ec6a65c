"""What a run leaves behind: JSON with everything, Markdown tables and pictures made from it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from nimble import _C
from nimble.bench import exhibits, plot, table
from nimble.bench.machine import machine
from nimble.bench.rows import Rows
from nimble.exit_codes import WrongInput

FORMAT, VERSION = "nimble-bench", 1


class Output:
    """Files FOLDER/NAME.json, NAME.md and NAME-*.svg and .png."""

    def __init__(self, folder: Path, name: str, command: str, with_exhibits: bool, on_gpu: bool) -> None:
        self.folder, self.name, self.with_exhibits = folder, name, with_exhibits
        self.report: dict = {
            "format": FORMAT,
            "version": VERSION,
            "command": command,
            "machine": machine(),
            "host_time_from_cpp": host_time_from_cpp() if on_gpu else {},
            "rows": [],
        }
        if folder.exists() and not folder.is_dir():
            raise WrongInput(f"{folder} is no folder to write to")
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, rows: Rows) -> None:
        """Called after every workload, so that nothing measured is lost."""
        self.report["rows"] = list(rows)
        self.write(".json", json.dumps(self.report, indent=1) + "\n")
        self.write(".md", table.page(self.report))
        if self.with_exhibits:
            self.write("-exhibits.md", exhibits.page(self.report))

    def write(self, ending: str, text: str) -> None:
        # Never half a file, also where the run is killed while it writes.
        draft = self.folder / f"{self.name}{ending}.draft"
        draft.write_text(text)
        draft.replace(self.folder / f"{self.name}{ending}")

    def draw(self) -> list[Path]:
        return plot.pictures(self.report, self.folder, self.name)


def read(path: Path) -> dict:
    """A report that was written before; WrongInput for anything else."""
    try:
        report = json.loads(path.read_text())
    except ValueError as error:  # nor any text, perhaps
        raise WrongInput(f"{path} is no JSON: {error}") from None
    if not isinstance(report, dict) or (report.get("format"), report.get("version")) != (FORMAT, VERSION):
        raise WrongInput(f"{path} is no report of `nimble bench`, version {VERSION}")
    return report


def host_time_from_cpp() -> dict[str, float]:
    """Of benchmarks/cuda/host_time.cpp, where it was built beside this package: what a call costs without Python."""
    program = Path(_C.__file__).resolve().parents[2] / "benchmarks/cuda/bench_cuda_host_time"
    if not program.exists():
        return {}
    return json.loads(subprocess.run([program], capture_output=True, text=True, check=True).stdout)
