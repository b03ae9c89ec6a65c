"""A real browser, and documents to show in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from nimble.report.page import write_page


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The tensors are so small that more threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def browser() -> Iterator:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no Chromium: install the system's package `chromium`")
    with playwright.sync_playwright() as running:
        # Containers often have neither the rights for a sandbox nor much shared memory.
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        launched = running.chromium.launch(executable_path=chromium, args=options)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser, tmp_path) -> Iterator[Callable]:
    """Opens a document, or a page that was written already. When the test is over: no error was logged and nothing
    was asked of the network."""
    contexts, problems = [], []

    def open_it(report: dict | Path, **settings):
        if isinstance(report, dict):
            document, report = report, tmp_path / "report.html"
            write_page(document, report)
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(("file:", "data:")) or problems.append(f"asked for {request.url}")
            ),
        )
        page.goto(report.as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert problems == []
