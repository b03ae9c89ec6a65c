"""What `nimble bench` does with its arguments."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from nimble.bench import systems, table, workloads
from nimble.bench.arguments import settings_of
from nimble.bench.output import Output, read
from nimble.bench.page import BLOCK, filled
from nimble.bench.plot import pictures
from nimble.bench.rows import NOT_REACHED
from nimble.bench.suite import Suite
from nimble.exit_codes import BROKEN, FINE, WrongInput
from nimble.packages import MissingPackage
from nimble.progress import progress_bar


def run(arguments: argparse.Namespace) -> int:
    if arguments.list:
        return show_names(arguments.json)
    if arguments.draw:
        return draw_again(arguments.draw, arguments.out, arguments.json)
    if arguments.fill:
        return fill_pages(arguments.fill, arguments.json)
    settings = settings_of(arguments)
    on_gpu = settings.device_name != "cpu"
    output = Output(arguments.out, arguments.name, command_line(arguments.given), arguments.exhibits, on_gpu)
    files = [arguments.out / f"{arguments.name}{ending}" for ending in (".json", ".md")]
    try:
        with progress_bar("bench") as bar:
            suite = Suite(settings, output.save, bar.say, bar.step)
            bar.expect(suite.job_count)
            rows = suite.run()
            bar.say("drawing")
            pictures_made, missing = draw(output)
    except KeyboardInterrupt:
        print(f"what was measured so far is in {files[0]}", file=sys.stderr)
        raise
    if missing:
        print(f"no pictures: {missing}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(output.report, indent=1))
    else:
        print(table.summary(output.report))
        print(table.means(output.report))
        for row in rows:
            if "failed" in row:
                print(
                    f"{row['workload']}, batch {row['batch']}, {row['dtype']}: {row['title']}: {row['failed']}"
                )
        print("written:", ", ".join(map(str, files + pictures_made)))
    return BROKEN if any(is_broken(row) for row in rows) else FINE


def command_line(given: list[str]) -> str:
    """What others may type to measure the same; where the files went is nobody's business."""
    kept, rest = [], iter(given)
    for argument in rest:
        if argument in ("--out", "--name"):
            next(rest)
        elif argument != "--json" and not argument.startswith(("--out=", "--name=")):
            kept.append(argument)
    return shlex.join(["nimble", "bench", *kept])


def is_broken(row: dict) -> bool:
    """A competitor may fail; eager and Nimble may not, unless the time was up."""
    ours = row["system"] == "eager" or row["system"].startswith("nimble")
    return ours and not row.get("failed", NOT_REACHED).startswith(NOT_REACHED)


def draw(output: Output) -> tuple[list[Path], MissingPackage | None]:
    """The pictures, or the package without which there are none."""
    try:
        return output.draw(), None
    except MissingPackage as error:
        return [], error


def draw_again(path: Path, folder: Path, as_json: bool) -> int:
    report = read(path)
    folder.mkdir(parents=True, exist_ok=True)
    tables = folder / f"{path.stem}.md"
    tables.write_text(table.page(report))
    with progress_bar("drawing", total=None):
        made = pictures(report, folder, path.stem)
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        print("written:", ", ".join(map(str, [tables, *made])))
    return FINE


def fill_pages(pages: list[Path], as_json: bool) -> int:
    """All of them, or none where one of them cannot be filled."""
    texts = [filled(page) for page in pages]
    for page, text in zip(pages, texts, strict=True):
        if not BLOCK.search(text):
            raise WrongInput(
                f"{page} has no table to fill, which stands between `<!-- nimble bench: ...` and `<!-- end -->`"
            )
    for page, text in zip(pages, texts, strict=True):
        page.write_text(text)
    if as_json:
        print(json.dumps({"filled": [str(page) for page in pages]}))
    else:
        print("filled:", ", ".join(map(str, pages)))
    return FINE


def show_names(as_json: bool) -> int:
    known = {
        "workloads": list(workloads.WORKLOADS),
        "workload_groups": workloads.GROUPS,
        "systems": {name: system.title for name, system in systems.SYSTEMS.items()},
        "system_groups": systems.GROUPS,
    }
    if as_json:
        print(json.dumps(known, indent=1))
        return FINE
    for kind, names, groups in (
        ("workloads", workloads.WORKLOADS, workloads.GROUPS),
        ("systems", systems.SYSTEMS, systems.GROUPS),
    ):
        print(f"{kind}: {', '.join(names)}")
        for group, members in groups.items():
            print(f"  {group}: {', '.join(members)}")
    return FINE
