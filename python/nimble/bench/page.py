"""Keeps the tables of a page what the data says. Between the lines

    <!-- nimble bench: benchmarks/cuda.json headline batch=1 -->
    <!-- end -->

stands a table of that report (its path is the page's own), of the kind named, of the rows that match. Several reports,
joined by `+`, are one; of what several have measured, the first counts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from nimble.bench import exhibits, table
from nimble.bench.output import read
from nimble.exit_codes import WrongInput
from nimble.nearest import find

BLOCK = re.compile(r"(?P<head><!-- nimble bench: (?P<what>[^>]*?) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)

KINDS = {
    "headline": table.headline,
    "summary": table.summary,
    "details": table.details,
    "facts": table.facts,
    "host-time": table.host_time,
    "means": table.means,
    "exhibits": exhibits.page,
    "ablations": exhibits.ablations,
}


def filled(page: Path) -> str:
    """The page's text with all of its tables made anew."""

    def fill(block: re.Match) -> str:
        return f"{block['head']}\n{made(block['what'], page)}\n{block['end']}"

    return BLOCK.sub(fill, page.read_text())


def first_measured(rows: Iterable[dict]) -> list[dict]:
    """Of each system and cell one row: the first that has figures, or else the first."""
    kept: dict[tuple, dict] = {}
    for row in rows:
        key = tuple(row[name] for name in ("workload", "batch", "dtype", "system"))
        if key not in kept or ("failed" in kept[key] and "failed" not in row):
            kept[key] = row
    return list(kept.values())


def made(what: str, page: Path) -> str:
    path, kind, *conditions = what.split()
    report, *others = (read(page.parent / each) for each in path.split("+"))
    report["rows"] = first_measured(row for each in (report, *others) for row in each["rows"])
    for condition in conditions:
        key, separator, value = condition.partition("=")
        if not separator or key not in ("workload", "batch", "dtype", "system"):
            raise WrongInput(
                f"{page}: {condition!r} chooses no rows; workload=, batch=, dtype= and system= do"
            )
        report["rows"] = [row for row in report["rows"] if str(row[key]) == value]
    return KINDS[find(kind, KINDS, "kind of table")](report)
