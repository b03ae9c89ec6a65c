"""Options by keyword and by environment, the log, and the version of PyTorch."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from nimble.settings import _OPTIONS
from support import assert_same, replay, warm_up

import nimble


@pytest.fixture(autouse=True)
def without_grad():
    with torch.no_grad():
        yield


def test_an_unknown_option_is_refused_with_the_known_ones():
    with pytest.raises(TypeError, match=r"no_such_option.*strict"):
        nimble.compile(lambda x: x, no_such_option=1)


def test_the_page_lists_every_option_with_its_default():
    page = Path(__file__).resolve().parents[2] / "docs" / "getting-started.md"
    listed = re.findall(
        r"^\| `(\w+)` \| `NIMBLE_(\w+)` \| `?(.+?)`? \|", page.read_text(), flags=re.MULTILINE
    )
    assert [(name, variable) for name, variable, _ in listed] == [(name, name.upper()) for name in _OPTIONS]
    in_words = {"0": ("0", "false"), "1": ("1", "true")}
    for name, _, default in listed:
        assert default in in_words.get(_OPTIONS[name][1], (_OPTIONS[name][1],)), name


@pytest.mark.parametrize(
    "options",
    [
        {"outputs": "borrow"},
        {"memory": "none"},
        {"validate_every": -1},
        {"cache_size": -2},
        {"cache_size": 0},
        {"cache_size": 10**30},
        {"streams": -1},
        {"streams": 0},
        {"streams": "many"},
        {"streams": [1, 2]},
        {"rewrites": "default,none"},
        {"rewrites": [1]},
        {"strict": "perhaps"},
    ],
    ids=str,
)
def test_a_bad_value_is_refused_by_name(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        nimble.compile(lambda x: x, **options)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError):
        nimble.compile(torch.ones(3))


def test_the_environment_sets_defaults(monkeypatch):
    monkeypatch.setenv("NIMBLE_STRICT", "1")
    fast = nimble.compile(lambda x: x * x.sum().item())
    with pytest.raises(nimble.RecordError):
        fast(torch.ones(2))


def test_a_keyword_outweighs_the_environment(monkeypatch):
    monkeypatch.setenv("NIMBLE_STRICT", "1")
    fast = nimble.compile(lambda x: x * x.sum().item(), strict=False)
    with pytest.warns(nimble.FallbackWarning):
        assert_same(fast(torch.ones(2)), torch.full((2,), 2.0))


def test_a_bad_value_in_the_environment_names_the_variable(monkeypatch):
    monkeypatch.setenv("NIMBLE_CACHE_SIZE", "lots")
    with pytest.raises(ValueError, match="NIMBLE_CACHE_SIZE"):
        nimble.compile(lambda x: x)


@pytest.mark.parametrize("name", _OPTIONS)
def test_an_empty_variable_is_none(name, monkeypatch):
    monkeypatch.setenv(f"NIMBLE_{name.upper()}", "")
    fast = nimble.compile(lambda x: x + 1)
    assert_same(fast(torch.ones(2)), torch.full((2,), 2.0))


def test_a_wrong_rewrite_in_the_environment_names_the_variable(monkeypatch):
    monkeypatch.setenv("NIMBLE_REWRITES", "fold_batchnorm")
    with pytest.raises(ValueError, match=r"NIMBLE_REWRITES: .*did you mean fold_batch_norm"):
        nimble.compile(lambda x: x)


@pytest.mark.parametrize("streams", [1, 2, 3, "max", "auto", None])
def test_streams_are_a_choice(streams):
    def branches(x):
        return torch.relu(x) + torch.sigmoid(x) * torch.tanh(x) - torch.exp(x)

    fast = nimble.compile(branches, strict=True, streams=streams).prepare(torch.randn(100))
    x = torch.randn(100)
    assert_same(replay(fast, x), branches(x))
    if isinstance(streams, int):
        assert 1 <= fast.stats["streams"] <= streams


def test_fallbacks_are_in_the_log(caplog):
    fast = nimble.compile(lambda x: x * x.sum().item())
    with caplog.at_level(logging.WARNING, logger="nimble"), pytest.warns(nimble.FallbackWarning):
        fast(torch.ones(2))
    assert "aten::_local_scalar_dense" in caplog.text


def test_stats_have_what_a_report_needs():
    fast = warm_up(nimble.compile(lambda x: torch.relu(x) * 2), torch.randn(4))
    replay(fast, torch.randn(4))
    stats = fast.stats
    for name in (
        "tasks",
        "streams",
        "arena_bytes",
        "allocated_bytes",
        "recordings",
        "validations",
        "replays",
    ):
        assert stats[name] > 0, name
    for name in ("syncs", "eager_calls", "refusals", "unplanned_allocations"):
        assert stats[name] == 0, name


@pytest.mark.parametrize("version", ["2.10.1", "2.12.0", "2.1.1"])
def test_another_version_of_torch_is_refused_saying_which_is_needed(version):
    program = f"import torch; torch.__version__ = {version!r}; import nimble"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "ImportError" in done.stderr
    assert "2.11" in done.stderr
    assert version in done.stderr


def test_without_cuda_it_says_why():
    assert bool(nimble.why_no_cuda()) != nimble.cuda_available()
    if not nimble.cuda_available():
        assert "CUDA" in nimble.why_no_cuda()


def test_a_function_can_ask_whether_it_is_recorded():
    seen = []

    def function(x):
        seen.append(nimble.is_recording())
        return x + 1

    fast = nimble.compile(function)
    with torch.no_grad():
        for _ in range(4):
            fast(torch.ones(2))
        function(torch.ones(2))
    assert seen == [
        True,
        True,
        False,
    ]  # recorded, checked, then replayed without running; the last is our own call


def test_without_sharing_every_buffer_has_bytes_of_its_own_and_answers_stay_the_same():
    def chain(x):
        for _ in range(6):
            x = (x * 1.5).sin()
        return x

    x = torch.randn(1000)
    shared, apart = (
        nimble.compile(chain, strict=True, memory=kind).prepare(x) for kind in ("shared", "apart")
    )
    assert_same(apart(x), shared(x))
    assert apart.stats["arena_bytes"] >= apart.stats["allocated_bytes"] > 2 * shared.stats["arena_bytes"]


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("streams", "many", "neither auto, max nor a number"),
        ("cache_size", "few", "no whole number"),
        ("tune", "soon", "no number"),
        ("tolerance", "some", "no number"),
        ("tune", -1, "negative"),
        ("tune", float("nan"), "no number"),
        ("tolerance", "nan", "no number"),
    ],
)
def test_a_value_of_another_kind_is_answered_with_what_is_expected(option, value, said):
    with pytest.raises(ValueError, match=rf"option {option}: .*{value}.* is {said}"):
        nimble.compile(torch.sin, **{option: value})
