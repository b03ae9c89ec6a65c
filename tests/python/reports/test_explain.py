"""`explain()`: aligned, in colour on a terminal, plain everywhere else."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
import torch

import nimble


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def fast():
    compiled = nimble.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), tune=0.01)
    with torch.inference_mode():
        for _ in range(3):
            compiled(torch.randn(2, 4))
    return compiled


@pytest.fixture(autouse=True)
def an_ordinary_terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def printed(text: str, stream: io.StringIO) -> str:
    with contextlib.redirect_stdout(stream):
        print(text)
    return stream.getvalue()


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[\d+m", "", text)


def test_plain_where_nobody_sees_colours(fast):
    assert "\x1b" not in printed(fast.explain(), io.StringIO())


def test_in_colour_on_a_terminal_with_the_same_words(fast):
    coloured = printed(fast.explain(), Terminal())
    assert "\x1b[1m(f32[2, 4])\x1b[0m" in coloured
    assert "\x1b[32mreplayed\x1b[0m" in coloured
    assert without_colours(coloured) == printed(fast.explain(), io.StringIO())


@pytest.mark.parametrize("variable, value", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_plain_where_the_reader_says_so(fast, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    assert "\x1b" not in printed(fast.explain(), Terminal())


def test_programs_that_look_into_it_find_plain_text_everywhere(fast):
    with contextlib.redirect_stdout(Terminal()):
        text = fast.explain()
        assert "\n  recorded       2 tasks in" in text
        assert "\x1b" not in f"{text}" + text[:]


def test_what_it_says_is_aligned(fast):
    lines = fast.explain().splitlines()
    assert lines[0] == "(f32[2, 4])"
    for line in lines[1:]:
        assert re.match(r"  [a-z ]{13}  \S", line), line


def test_why_it_runs_eagerly_stands_out():
    refused = nimble.compile(lambda x: x.nonzero())
    with pytest.warns(nimble.FallbackWarning):
        refused(torch.randn(3))
    assert "\x1b[33mruns eagerly\x1b[0m" in printed(refused.explain(), Terminal())


def test_numbers_are_short_and_one_of_a_thing_is_one(fast):
    text = fast.explain()
    assert "2 tasks, 1 stream, 0 syncs" in text
    assert re.search(r"recorded +2 tasks in \d[\d.]* ms", text)
    assert not re.search(r"\de[+-]\d", text)
