"""However many streams a program runs on, its answers are the same bits."""

from __future__ import annotations

import pytest
import torch
from branching_models import Branches, small_nasnet
from nimble.bench.workloads.random_weights import enliven
from schedule_choices import assert_kept_by_the_rule
from support import assert_same, replay

import nimble


@pytest.fixture(autouse=True)
def without_grad():
    with torch.no_grad():
        yield


@pytest.mark.parametrize(
    ("build", "shape"),
    [(Branches, (1, 4, 9, 9)), (small_nasnet, (1, 3, 32, 32))],
    ids=["branches", "nasnet"],
)
def test_one_stream_and_many_give_the_same_bits(build, shape):
    model = build().eval()
    enliven(model, torch.randn(shape))
    compiled = [
        nimble.compile(model, strict=True, streams=streams).prepare(torch.randn(shape))
        for streams in (1, 2, "max")
    ]
    for _ in range(5):
        x = torch.randn(shape)
        expected = model(x)
        for fast in compiled:
            assert_same(replay(fast, x), expected)
    one, two, most = (fast.stats["streams"] for fast in compiled)
    assert (one, two) == (1, 2)
    assert most > 2
    # The most that can run side by side in the branches is one task of each.
    assert compiled[2].stats["degree_of_concurrency"] >= 6


@pytest.fixture
def eight_threads():
    """One, two and four streams are tried, however many cores there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(8)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("size", [4, 32, 64, 128])
def test_more_streams_are_kept_only_where_they_were_measured_to_be_faster(size, eight_threads):
    branches = Branches().eval().forward
    fast = nimble.compile(branches, strict=True, tune=0.05).prepare(torch.randn(1, 4, size, size))
    tried = assert_kept_by_the_rule(fast)
    assert {one["streams"] for one in tried} == {1, 2, 4}
    assert all(one["milliseconds"] > 0 for one in tried if not one["rejected"])


def test_where_streams_are_given_nothing_is_tried(eight_threads):
    branches = Branches().eval().forward
    fast = nimble.compile(branches, strict=True, streams=2).prepare(torch.randn(1, 4, 8, 8))
    (only,) = assert_kept_by_the_rule(fast)
    assert (only["streams"], only["milliseconds"]) == (2, 0)


def test_a_chain_needs_no_second_stream():
    def chain(x):
        for _ in range(5):
            x = torch.relu(x * 2)
        return x

    fast = nimble.compile(chain, strict=True, streams="max").prepare(torch.randn(9))
    assert fast.stats["streams"] == 1
    assert fast.stats["syncs"] == 0


@pytest.fixture
def one_piece():
    """An operator whose results are two halves of one piece of memory, as cuDNN returns gradients of its weights."""
    library = torch.library.Library("one_piece", "DEF")
    library.define("halves(Tensor x, Tensor y) -> (Tensor, Tensor)")
    library.impl("halves", lambda x, y: tuple(torch.stack([x * 2, y * 3])), "CPU")
    yield torch.ops.one_piece.halves
    library._destroy()


@pytest.mark.parametrize("half", [0, 1], ids=["first", "second"])
def test_whoever_reads_one_of_several_results_in_one_piece_of_memory_waits_for_it(one_piece, half):
    def function(x, y):
        return one_piece(x, y)[half] + 1

    fast = nimble.compile(function, strict=True, streams="max").prepare(torch.randn(9), torch.randn(9))
    assert fast.stats["degree_of_concurrency"] == 1
    x, y = torch.randn(9), torch.randn(9)
    assert_same(replay(fast, x, y), function(x, y))


def test_memory_is_planned():
    def chain(x):
        for _ in range(20):
            x = torch.relu(x * 2)
        return x

    fast = nimble.compile(chain, strict=True, streams=1).prepare(torch.randn(1 << 12))
    replay(fast, torch.randn(1 << 12))
    stats = fast.stats
    assert stats["allocated_bytes"] >= 39 * (4 << 12)
    assert stats["arena_bytes"] <= 4 * (4 << 12)
    assert stats["unplanned_allocations"] == 0


def test_random_tasks_keep_their_order_on_many_streams():
    def noisy(x):
        return torch.stack([x + torch.rand(8) for _ in range(12)])

    fast = nimble.compile(noisy, strict=True, streams="max").prepare(torch.zeros(8))
    for seed in range(20):
        torch.manual_seed(seed)
        expected = noisy(torch.zeros(8))
        torch.manual_seed(seed)
        assert_same(replay(fast, torch.zeros(8)), expected)


def test_writes_to_halves_of_one_tensor_are_independent():
    def halves(x):
        y = torch.empty(2, 8)
        y[0].copy_(torch.relu(x))
        y[1].copy_(torch.sigmoid(x))
        return y

    fast = nimble.compile(halves, strict=True, streams="max").prepare(torch.randn(8))
    x = torch.randn(8)
    assert_same(replay(fast, x), halves(x))
    assert fast.stats["degree_of_concurrency"] == 2


def test_writes_and_reads_of_one_tensor_stay_in_order():
    def rewrite(x):
        y = x * 1
        results = []
        for step in range(6):
            results.append(y * 10)
            y.add_(step)
            y[2:5].mul_(2)
        return torch.stack([*results, y])

    fast = nimble.compile(rewrite, strict=True, streams="max").prepare(torch.randn(8))
    for _ in range(30):
        x = torch.randn(8)
        assert_same(replay(fast, x), rewrite(x))
