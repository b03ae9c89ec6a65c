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


def on_a_terminal():
    return contextlib.redirect_stdout(Terminal())


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[\d+m", "", text)


def test_plain_where_nobody_sees_colours(fast):
    assert "\x1b" not in fast.explain()


def test_in_colour_on_a_terminal_with_the_same_words(fast):
    with on_a_terminal():
        coloured = fast.explain()
    assert "\x1b[1m(f32[2, 4])\x1b[0m" in coloured
    assert "\x1b[32mreplayed\x1b[0m" in coloured
    assert without_colours(coloured) == fast.explain()


@pytest.mark.parametrize("variable, value", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_plain_where_the_reader_says_so(fast, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with on_a_terminal():
        assert "\x1b" not in fast.explain()


def test_what_it_says_is_aligned(fast):
    lines = fast.explain().splitlines()
    assert lines[0] == "(f32[2, 4])"
    for line in lines[1:]:
        assert re.match(r"  [a-z ]{13}  \S", line), line


def test_why_it_runs_eagerly_stands_out():
    refused = nimble.compile(lambda x: x.nonzero())
    with pytest.warns(nimble.FallbackWarning):
        refused(torch.randn(3))
    with on_a_terminal():
        assert "\x1b[33mruns eagerly\x1b[0m" in refused.explain()


def test_numbers_are_short_and_one_of_a_thing_is_one(fast):
    text = fast.explain()
    assert "2 tasks, 1 stream, 0 syncs" in text
    assert re.search(r"recorded +2 tasks in \d[\d.]* ms", text)
    assert not re.search(r"\de[+-]\d", text)
