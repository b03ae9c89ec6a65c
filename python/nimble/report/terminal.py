"""`explain()` on a terminal: the same lines, with what matters in colour."""

import os
import re
import sys
from typing import TextIO

_BOLD, _DIM, _GREEN, _YELLOW = "1", "2", "32", "33"
_STYLES = {
    "replayed": _GREEN,
    "runs eagerly": _YELLOW,
    "mismatch": _YELLOW,
    "set up": _YELLOW,
    "on the host": _YELLOW,
}
_LINE = re.compile(r"  (?P<label>[a-z][a-z ]*?)(?P<gap>  +)(?P<text>.*)")


def wants_colour(stream: TextIO) -> bool:
    """Only on a terminal, and never where NO_COLOR says so (no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def _in(style: str, text: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m"


def painted(text: str) -> str:
    lines = []
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if not found:
            lines.append(_in(_BOLD, line))
            continue
        style = _STYLES.get(found["label"], _DIM)
        rest = found["text"] if style == _DIM else _in(style, found["text"])
        lines.append(f"  {_in(style, found['label'])}{found['gap']}{rest}")
    return "\n".join(lines) + "\n"


class Explanation(str):
    """Plain text to everybody who looks into it; in colour when it is printed on a terminal."""

    __slots__ = ()

    def __str__(self) -> str:
        return painted(self[:]) if wants_colour(sys.stdout) else self[:]

    def __format__(self, how: str) -> str:
        return format(self[:], how)  # part of some other text, which may go anywhere
