"""Writes docs/operators.md: what comes of every operator of PyTorch's samples when Nimble replays it.

python tests/python/operator_table.py [--device cuda] [--jobs N] [PATH]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from operator_samples import Operator, operators

if TYPE_CHECKING:
    from operator_outcomes import Outcome

SAMPLES_EACH = 8
DOCS = Path(__file__).resolve().parents[2] / "docs"


@dataclass(frozen=True)
class Table:
    """Which operators a table is about, and where it lies."""

    device: str
    dtypes: tuple[torch.dtype, ...]
    described: str
    path: Path

    def operators(self) -> list[Operator]:
        return [operator for dtype in self.dtypes for operator in operators(self.device, dtype)]


TABLES = {
    "cpu": Table("cpu", (torch.float32,), "float32 samples on the CPU", DOCS / "operators.md"),
    "cuda": Table(
        "cuda",
        (torch.float32, torch.float16),
        "float32 or float16 samples on CUDA",
        DOCS / "operators-cuda.md",
    ),
}

CPU_HEADER = """\
# Operators

Every operator of `torch.testing._internal.common_methods_invocations.op_db` with {described},
up to {samples} samples each: recorded on one set of values, replayed on another of the same shapes, compared
with eager to the last bit (results, arguments afterwards and the random generator's state). *Refused* means
that recording stopped with an error that names the operator given in the last column. Written by
`tests/python/operator_table.py`.
"""

CUDA_HEADER = """\
# Operators on CUDA

Every operator of `torch.testing._internal.common_methods_invocations.op_db` with {described},
up to {samples} samples each: recorded on one set of values, replayed on another of the same shapes, compared
with eager to the last bit (results, arguments afterwards and the random generators' states). *Refused* means
that recording, the capture or the check against eager stopped with the error given in the last column. Where
eager itself answers differently from run to run, *equal* means within eager's own spread. Written by
`tests/python/operator_table.py --device cuda`.
"""

COLUMNS = """
| outcome | operators |
|---|---|
{summary}

| operator | outcome | samples equal | refused | skipped | operator refused, or reason |
|---|---|---|---|---|---|
"""

HEADERS = {"cpu": CPU_HEADER, "cuda": CUDA_HEADER}


def try_nth(device: str, index: int) -> Outcome:
    """By number, because an operator cannot be sent to another process."""
    from operator_outcomes import try_operator

    operator = TABLES[device].operators()[index]
    outcome = try_operator(operator, SAMPLES_EACH)
    if device == "cuda":
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            raise SystemExit(
                f"{operator} left the GPU in error, so nothing after it counts: {error}"
            ) from None
    return outcome


def outcomes_of(table: Table, jobs: int) -> Iterator[Outcome]:
    count = len(table.operators())
    if jobs == 1:
        yield from (try_nth(table.device, index) for index in range(count))
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(try_nth, [table.device] * count, range(count))


def write_table(table: Table, path: Path, jobs: int) -> int:
    """Returns the number of operators with a wrong answer."""
    outcomes = []
    for outcome in outcomes_of(table, jobs):
        outcomes.append(outcome)
        print(f"\r{len(outcomes)} {outcome.operator:60.60}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)

    verdicts = Counter(outcome.verdict for outcome in outcomes)
    verdicts.setdefault("wrong", 0)
    summary = "\n".join(f"| {verdict} | {count} |" for verdict, count in sorted(verdicts.items()))
    rows = [
        f"| `{outcome.operator}` | {outcome.verdict} | {outcome.equal} | {len(outcome.refused)} "
        f"| {len(outcome.skipped)} | {outcome.note} |"
        for outcome in outcomes
    ]
    header = HEADERS[table.device].format(described=table.described, samples=SAMPLES_EACH)
    path.parent.mkdir(exist_ok=True)
    path.write_text(header + COLUMNS.format(summary=summary) + "\n".join(rows) + "\n")
    for outcome in outcomes:
        if outcome.wrong:
            print(f"{outcome.operator}: {outcome.note}", file=sys.stderr)
    return verdicts["wrong"]


def read_table(path: Path = TABLES["cpu"].path) -> dict[str, str]:
    """Verdict by operator."""
    rows = (line.split(" | ") for line in path.read_text().splitlines() if line.startswith("| `"))
    return {row[0].strip("| `"): row[1] for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=TABLES, default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes try operators at once")
    parser.add_argument("path", nargs="?", type=Path, help="where to write it; by default into docs/")
    options = parser.parse_args()
    table = TABLES[options.device]
    return write_table(table, options.path or table.path, options.jobs)


if __name__ == "__main__":
    wrong = main()
    sys.exit(f"{wrong} operators gave a wrong answer" if wrong else 0)
