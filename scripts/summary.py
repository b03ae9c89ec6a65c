#!/usr/bin/env python3
"""Counts the tests that CTest, GoogleTest and pytest wrote into one folder as JUnit XML.

    summary.py FOLDER RUN...

A run is ctest or pytest, its results FOLDER/RUN.xml; without that file the run crashed. Where a whole
GoogleTest program is one CTest test, the program's own <name>.xml lies beside them and its cases are counted
in place of that one. The last line is plain, for machines.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

NO_GPU = "no CUDA device"


def outcome(case: ElementTree.Element) -> str:
    """'passed', 'failed' or 'skipped', in any of the three dialects."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    # CTest: status is run, fail, notrun or disabled. GoogleTest: result tells a skip.
    status = case.get("status")
    if case.find("skipped") is not None or case.get("result") == "skipped" or status == "disabled":
        return "skipped"
    # A test whose program is not there is neither skipped nor passed.
    return "failed" if status in ("fail", "notrun") else "passed"


def count(cases: list[ElementTree.Element]) -> Counter[str]:
    counts = Counter(outcome(case) for case in cases)
    counts["no gpu"] = sum(outcome(case) == "skipped" and mentions(case, NO_GPU) for case in cases)
    return counts


def mentions(case: ElementTree.Element, text: str) -> bool:
    return any(text in (element.text or "") or text in element.get("message", "") for element in case.iter())


def cases_of(file: Path) -> list[ElementTree.Element]:
    try:
        return list(ElementTree.parse(file).iter("testcase"))
    except (FileNotFoundError, ElementTree.ParseError):
        # The run crashed before it could write its results: that is a failure, not an absence of tests.
        return [ElementTree.Element("testcase", name=file.stem, status="fail")]


def cases_of_ctest(folder: Path) -> list[ElementTree.Element]:
    cases = []
    for case in cases_of(folder / "ctest.xml"):
        program = folder / f"{case.get('name')}.xml"
        inner = cases_of(program) if program.exists() else []
        # A program can fail although none of its cases did, by crashing at its end: then it counts itself.
        agrees = outcome(case) != "failed" or any(outcome(each) == "failed" for each in inner)
        cases += inner if inner and agrees else [*inner, case]
    return cases


def describe(counts: Counter[str]) -> str:
    return f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"


def main(folder: Path, runs: list[str]) -> int:
    cases = {"ctest": cases_of_ctest, "pytest": lambda folder: cases_of(folder / "pytest.xml")}
    counts_of = {run: count(cases[run](folder)) for run in runs}
    total = sum(counts_of.values(), Counter())

    print()
    for name, counts in counts_of.items():
        print(f"{name:8}{describe(counts)}")
    if total["no gpu"]:
        print(f"{total['no gpu']} GPU tests were skipped: {NO_GPU}")
    print(describe(total))
    return 1 if total["failed"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
