"""Progress bars: on standard error, and only where that is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


class Line:
    """One bar: what is being done, and how much of it is over."""

    def __init__(self, progress: Progress, title: str, total: int | None) -> None:
        self.progress = progress
        self.title = title
        self.task = progress.add_task(title, total=total)

    def say(self, text: str) -> None:
        self.progress.update(self.task, description=f"{self.title}: {text}" if self.title else text)

    def expect(self, total: int) -> None:
        self.progress.update(self.task, total=total)

    def step(self) -> None:
        self.progress.advance(self.task)


@contextmanager
def progress_bar(title: str = "", total: int | None = 1) -> Iterator[Line]:
    """Where nobody knows how much there is to do, `total` is None: the bar moves and the time goes on."""
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Line(progress, title, total)
