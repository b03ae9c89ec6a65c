"""Which rewrites are applied, what the report says, and when they are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from rewrites.random_networks import with_statistics
from torch import nn

import nimble


def network() -> nn.Module:
    return with_statistics(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), seed=1)


def compiled(**options):
    model, x = network(), torch.randn(2, 3, 8, 8)
    fast = nimble.compile(model, **options)
    with torch.no_grad():
        fast.prepare(x)
        return fast, fast(x), model(x)


def test_the_list_says_what_each_does():
    names = nimble.rewrites()
    assert {"fold_batch_norm", "common_subexpressions", "mkldnn_convolution", "weights_once"} <= set(names)
    assert all(len(summary) > 20 for summary in names.values())


ROOT = Path(__file__).resolve().parents[3]


def section(heading: str) -> str:
    """Of docs/rewrites.md."""
    text = (ROOT / "docs" / "rewrites.md").read_text()
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)


def test_the_page_lists_every_rewrite_in_order():
    assert first_cells(section("What there is")) == [f"`{name}`" for name in nimble.rewrites()]


def test_the_page_says_of_every_rewrite_which_tests_it_has():
    tested = section("How it is known to be right")
    rows = [name for cell in first_cells(tested) for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(rows) == sorted(nimble.rewrites())
    files = [path.as_posix() for path in (ROOT / "tests").rglob("*test*")]
    named = re.findall(r"`((?:\w+/)*(?:\w+_test\.cpp|test_\w+\.py))`", tested)
    for name in [*named, *(f"{rewrite}_test.cpp" for rewrite in nimble.rewrites())]:
        assert any(file.endswith(f"/{name}") for file in files), f"there is no {name}"


def test_none_stays_bit_equal():
    fast, ours, eager = compiled(rewrites="none")
    assert torch.equal(ours, eager)
    assert "rewrite" not in fast.explain()


def test_a_list_of_names_applies_those():
    fast, ours, eager = compiled(rewrites=["fold_batch_norm"])
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    assert "fold_batch_norm: 1 times" in fast.explain()
    assert "native_batch_norm#1 into convolution#0" in fast.explain()
    assert "mkldnn" not in fast.explain()


def test_the_environment_names_them_too(monkeypatch):
    monkeypatch.setenv("NIMBLE_REWRITES", "fold_batch_norm,common_subexpressions")
    fast, _, _ = compiled()
    assert "fold_batch_norm: 1 times" in fast.explain()


def test_a_wrong_name_is_refused_with_the_nearest():
    with pytest.raises(
        ValueError, match="no rewrite is named 'fold_batchnorm'; did you mean fold_batch_norm"
    ):
        nimble.compile(network(), rewrites=["fold_batchnorm"])


def test_explain_says_what_a_rewrite_gained():
    def chain(x):
        return torch.sigmoid(torch.exp(torch.tanh(x) * 0.5) + 1.0) * torch.exp(-x)

    x = torch.randn(300_000)
    fast = nimble.compile(chain, rewrites=["pointwise_blocks"])
    with torch.inference_mode():
        fast.prepare(x)
    assert re.search(
        r"pointwise_blocks: \d+ times, \d+ to \d+ tasks in [\d.]+ ms, [\d.]+ ms less one by one \(",
        fast.explain(),
    )


def test_results_beyond_the_tolerance_drop_the_rewrites():
    fast, ours, eager = compiled(rewrites="default", tolerance=0)
    assert torch.equal(ours, eager)
    assert re.search(
        r"dropped: result 0 differs from eager's after a replay: by \d\.\de-\d\d of its largest value, "
        r"0\.0e\+00 allowed",
        fast.explain(),
    )
    assert fast.stats["replays"] == 1
    [signature] = fast._nimble._document((), {})["signatures"]
    [note] = [note for note in signature["notes"] if note["what"] == "not rewritten"]
    assert note["how"].startswith("result 0 differs from eager's")


def test_training_is_not_rewritten():
    model, x = network().train(), torch.randn(4, 3, 8, 8)
    fast = nimble.compile(model, rewrites="default", strict=True)
    fast.prepare(x, training=True)
    assert "fold_batch_norm" not in fast.explain()
    assert torch.equal(fast(x), model(x))


def test_an_evaluated_model_that_somebody_goes_back_from_is_not_rewritten():
    model, x = network(), torch.randn(2, 3, 8, 8, requires_grad=True)
    fast = nimble.compile(model, rewrites="default", strict=True)
    fast.prepare(x)
    ours = torch.autograd.grad(fast(x).sum(), x)[0]
    assert torch.equal(ours, torch.autograd.grad(model(x).sum(), x)[0])
    assert "fold_batch_norm" not in fast.explain()


@pytest.mark.parametrize("first", [True, False], ids=["convolution_first", "convolution_second"])
def test_a_sum_is_taken_in_where_autograd_watches_too(first):
    convolution = nn.Conv2d(8, 8, 3, padding=1).eval()

    def function(x, y):
        made = convolution(x)
        return torch.relu(made + y if first else y + made).detach()

    fast = nimble.compile(function, rewrites=["mkldnn_convolution"], tune=0)
    x, y = torch.randn(2, 1, 8, 16, 16)
    with torch.enable_grad():
        results = [fast(x, y) for _ in range(3)]
    torch.testing.assert_close(results[-1], function(x, y), rtol=1e-4, atol=1e-5)
    assert "dropped" not in fast.explain()
    assert "convolution#0 + add#1 + relu#2" in fast.explain()
