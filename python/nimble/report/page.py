"""One page that needs nothing else: its parts lie beside this file and are put together here."""

import html
import json
from importlib.resources import files
from pathlib import Path

# Later ones use what earlier ones define.
SCRIPTS = [
    "format.js",
    "theme.js",
    "program.js",
    "span_index.js",
    "viewport.js",
    "surface.js",
    "gestures.js",
    "selection.js",
    "details.js",
    "lanes.js",
    "timeline.js",
    "memory.js",
    "graph.js",
    "tables.js",
    "method.js",
    "summary.js",
    "main.js",
]


def _part(name: str) -> str:
    return files("nimble.report").joinpath("web", name).read_text(encoding="utf-8")


def _embedded(document: dict) -> str:
    # Inside a script element only `</` and `<!--` could end it early.
    return json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")


def page_of(document: dict) -> str:
    scripts = "\n".join(_part(name) for name in SCRIPTS)
    page = _part("page.html")
    for mark, content in {
        "{{title}}": html.escape(document["title"]),
        "/*{{style}}*/": _part("style.css"),
        "{{data}}": _embedded(document),
        "/*{{scripts}}*/": f'(() => {{\n"use strict";\n{scripts}}})();',
    }.items():
        before, found, after = page.partition(mark)
        assert found, f"page.html has no {mark}"
        page = before + content + after
    return page


def write_page(document: dict, path: str | Path) -> None:
    Path(path).write_text(page_of(document), encoding="utf-8")
