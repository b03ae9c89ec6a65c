"""The documentation is true: its Python runs, its C++ is that of the examples, its JSON can be read, and its links
lead somewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest
from nimble.cli.plan import find_program

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_RUN = re.compile(r"<!-- not run: *(?P<reason>.*?) *-->")
MOST_NOT_RUN = 4  # of all pages together: a block that nobody runs is a block that may be wrong

every_page = pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])


@dataclass
class Block:
    page: Path
    line: int  # of the first line of code
    language: str
    code: str
    not_run: str | None  # the reason given in the page


def blocks_of(page: Path) -> list[Block]:
    blocks, lines = [], page.read_text().splitlines()
    number = 0
    while number < len(lines):
        if not lines[number].startswith("```"):
            number += 1
            continue
        start = number + 1
        end = next(n for n in range(start, len(lines)) if lines[n].startswith("```"))
        marked = NOT_RUN.search(lines[number - 1]) if number else None
        blocks.append(
            Block(
                page,
                start + 1,
                lines[number].removeprefix("```").strip(),
                "\n".join(lines[start:end]),
                marked and marked["reason"],
            )
        )
        number = end + 1
    return blocks


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks_of(page) if block.language == "python"]


def without_code(page: Path) -> str:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


PAGES_WITH_PYTHON = [page for page in PAGES if python_blocks(page)]


@pytest.mark.parametrize("page", PAGES_WITH_PYTHON, ids=[page.stem for page in PAGES_WITH_PYTHON])
@pytest.mark.filterwarnings("ignore::nimble.FallbackWarning")
def test_the_python_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # Dynamo imports what it compiles
    for block in python_blocks(page):
        if block.not_run is None:
            # Empty lines before the code make a traceback show the line of the page.
            code = "\n" * (block.line - 1) + block.code
            exec(compile(code, str(page), "exec"), vars(module))


@every_page
def test_python_that_is_not_run_still_parses_and_says_why(page):
    for block in python_blocks(page):
        compile(block.code, f"{page}:{block.line}", "exec")
        assert block.not_run is None or len(block.not_run) > 10, f"{page}:{block.line}: give the reason"


def test_little_is_not_run():
    skipped = [block for page in PAGES for block in python_blocks(page) if block.not_run is not None]
    run = [block for page in PAGES for block in python_blocks(page) if block.not_run is None]
    assert len(skipped) <= MOST_NOT_RUN
    assert len(run) > 2 * len(skipped)


def lines_of_code(code: str, comment: str) -> set[str]:
    """Without indentation, and without what is said behind the code; lines of comment alone count."""
    lines = {line.strip() for line in code.splitlines()}
    return {re.sub(rf"(?<=\S) +{comment} .*", "", line) for line in lines} - {""}


def example_of(block: Block) -> Path:
    """The last file of examples/ that the page links to before the block."""
    before = "\n".join(block.page.read_text().splitlines()[: block.line - 1])
    links = re.findall(r"\]\(([^)\s]*examples/[^)\s]*(?:\.cpp|CMakeLists\.txt))\)", before)
    assert links, f"{block.page.name}:{block.line}: link to the example that this is a part of"
    return block.page.parent / links[-1]


@pytest.mark.parametrize(("language", "comment"), [("cpp", "//"), ("cmake", "#")])
def test_what_is_compiled_stands_in_an_example_which_is_built(language, comment):
    blocks = [block for page in PAGES for block in blocks_of(page) if block.language == language]
    assert len(blocks) >= 2
    for block in blocks:
        example = example_of(block)
        unknown = lines_of_code(block.code, comment) - lines_of_code(example.read_text(), comment)
        assert not unknown, f"{block.page.name}:{block.line}: not in {example.name}: {sorted(unknown)}"


def test_the_json_of_the_formats_is_what_they_say(tmp_path):
    blocks = [block for page in PAGES for block in blocks_of(page) if block.language == "json"]
    files = {}
    for block in blocks:
        kind = json.loads(block.code).get("format", "none")
        files[kind] = tmp_path / f"{kind}.json"
        files[kind].write_text(block.code)
    assert files.keys() == {"nimble-graph", "nimble-schedule"}
    for arguments in ([], ["--verify", files["nimble-schedule"]]):
        command = [find_program(), *arguments, files["nimble-graph"]]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@every_page
def test_every_relative_link_leads_to_a_file(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        path = page.parent / target.partition("#")[0]
        assert path.exists(), f"{page.name} links to {target}, which is not there"


@every_page
def test_every_link_to_a_heading_names_one(page):
    for target in re.findall(r"\]\(([^)\s]*#[^)\s]+)\)", without_code(page)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        linked = page.parent / file if file else page
        headings = re.findall(r"^#+ +(.+)$", without_code(linked), flags=re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in anchors, f"{page.name} links to {target}; {linked.name} has {sorted(anchors)}"


def test_every_page_is_in_the_index():
    index = without_code(ROOT / "docs" / "README.md")
    for page in PAGES:
        listed = page.name == "README.md" or f"({page.name})" in index
        assert listed, f"docs/README.md does not list {page.name}"
