"""Writes docs/operators.md: what comes of every operator of PyTorch's samples when Nimble replays it.

python tests/python/operator_table.py [docs/operators.md]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from operator_samples import operators

SAMPLES_EACH = 8
OUTCOMES_IN_DOCS = Path(__file__).resolve().parents[2] / "docs" / "operators.md"

HEADER = """\
# Operators

Every operator of `torch.testing._internal.common_methods_invocations.op_db` with float32 samples on the CPU,
up to {samples} samples each: recorded on one set of values, replayed on another of the same shapes, compared
with eager to the last bit (results, arguments afterwards and the random generator's state). *Refused* means
that recording stopped with an error that names the operator given in the last column. Written by
`tests/python/operator_table.py`.

| outcome | operators |
|---|---|
{summary}

| operator | outcome | samples equal | refused | skipped | operator refused, or reason |
|---|---|---|---|---|---|
"""


def write_table(path: Path) -> int:
    """Returns the number of operators with a wrong answer."""
    from operator_outcomes import try_operator

    outcomes = []
    for operator in operators():
        outcomes.append(try_operator(operator, SAMPLES_EACH))
        print(f"\r{len(outcomes)} {operator.name:60.60}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)

    verdicts = Counter(outcome.verdict for outcome in outcomes)
    verdicts.setdefault("wrong", 0)
    summary = "\n".join(f"| {verdict} | {count} |" for verdict, count in sorted(verdicts.items()))
    rows = [
        f"| `{outcome.operator}` | {outcome.verdict} | {outcome.equal} | {len(outcome.refused)} "
        f"| {len(outcome.skipped)} | {outcome.note} |"
        for outcome in outcomes
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEADER.format(samples=SAMPLES_EACH, summary=summary) + "\n".join(rows) + "\n")
    return verdicts["wrong"]


def read_table(path: Path = OUTCOMES_IN_DOCS) -> dict[str, str]:
    """Verdict by operator."""
    rows = (line.split(" | ") for line in path.read_text().splitlines() if line.startswith("| `"))
    return {row[0].strip("| `"): row[1] for row in rows}


if __name__ == "__main__":
    wrong = write_table(Path(sys.argv[1]) if len(sys.argv) > 1 else OUTCOMES_IN_DOCS)
    sys.exit(f"{wrong} operators gave a wrong answer" if wrong else 0)
