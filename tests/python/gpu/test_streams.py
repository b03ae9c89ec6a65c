"""Replays run on the caller's current stream, in order with all that the caller put there."""

from __future__ import annotations

import pytest
import torch
from branching_models import Branches, small_nasnet
from nimble.bench.workloads.random_weights import enliven
from support import assert_same, replay

import nimble

pytestmark = pytest.mark.gpu

# Long enough for whatever does not wait to overtake.
BUSY_CYCLES = 50_000_000


def branchy(x):
    left, right = torch.relu(x), torch.sigmoid(x)
    for _ in range(3):
        left, right = left * 1.5 + right, torch.tanh(right) - left
    return left + right


@pytest.fixture
def fast():
    return nimble.compile(branchy, strict=True, streams="max").prepare(torch.randn(1000, device="cuda"))


def test_the_current_stream_is_honoured(fast):
    x, fresh = torch.zeros(1000, device="cuda"), torch.randn(1000, device="cuda")
    expected = branchy(fresh)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(BUSY_CYCLES)
        x.copy_(fresh)
        result = replay(fast, x)
        # Work after the replay waits for it, and the replay has read its input before that is overwritten.
        doubled = result * 2
        x.zero_()
    stream.synchronize()
    assert_same(result, expected)
    assert_same(doubled, expected * 2)


def test_an_input_made_on_another_stream_is_awaited_as_usual(fast):
    x, fresh = torch.zeros(1000, device="cuda"), torch.randn(1000, device="cuda")
    expected = branchy(fresh)
    torch.cuda.synchronize()
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(producer):
        torch.cuda._sleep(BUSY_CYCLES)
        x.copy_(fresh)
    consumer.wait_stream(producer)
    with torch.cuda.stream(consumer):
        result = replay(fast, x)
    consumer.synchronize()
    assert_same(result, expected)


def test_replays_on_two_streams_do_not_meet(fast):
    inputs = [torch.randn(1000, device="cuda") for _ in range(20)]
    expected = [branchy(x) for x in inputs]
    torch.cuda.synchronize()
    streams, results = [torch.cuda.Stream(), torch.cuda.Stream()], []
    for index, x in enumerate(inputs):
        with torch.cuda.stream(streams[index % 2]):
            results.append(replay(fast, x))
    torch.cuda.synchronize()
    assert_same(results, expected)


def test_a_replay_on_another_stream_waits_for_the_end_of_the_one_before(fast):
    x = torch.randn(1000, device="cuda")
    expected = branchy(x)
    torch.cuda.synchronize()
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    ends = torch.cuda.Event(), torch.cuda.Event()
    results = []
    for stream, end in zip(streams, ends, strict=True):
        with torch.cuda.stream(stream):
            if stream is streams[0]:
                torch.cuda._sleep(BUSY_CYCLES)
            results.append(replay(fast, x))
            end.record()
    second_is_done = ends[1].query()
    assert ends[0].query() or not second_is_done
    torch.cuda.synchronize()
    assert_same(results, [expected] * 2)


def test_a_replay_does_not_make_the_host_wait(fast):
    x = torch.randn(1000, device="cuda")
    expected = branchy(x)
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = replay(fast, x)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert_same(result, expected)


@pytest.mark.parametrize(
    ("build", "shape"),
    [(Branches, (1, 4, 9, 9)), (small_nasnet, (1, 3, 32, 32))],
    ids=["branches", "nasnet"],
)
def test_one_stream_and_many_give_the_same_bits(build, shape):
    model = build().eval().cuda()
    enliven(model, torch.randn(shape, device="cuda"))
    compiled = [
        nimble.compile(model, strict=True, streams=streams).prepare(torch.randn(shape, device="cuda"))
        for streams in (1, 4, "max")
    ]
    for _ in range(20):
        x = torch.randn(shape, device="cuda")
        expected = model(x)
        for fast in compiled:
            assert_same(replay(fast, x), expected)
    one, four, most = (fast.stats["streams"] for fast in compiled)
    assert one == 1
    assert 1 < four <= 4
    assert most > 4


@pytest.mark.parametrize("streams", [1, 4, "max"])
def test_without_a_graph_the_bits_are_the_same(streams):
    model = torch.nn.Sequential(Branches(), torch.nn.Dropout(0.3)).cuda()
    shape = (1, 4, 9, 9)
    fast = nimble.compile(model, strict=True, graph=False, streams=streams)
    with torch.no_grad():
        fast.prepare(torch.randn(shape, device="cuda"))
        for seed in range(5):
            x = torch.randn(shape, device="cuda")
            torch.manual_seed(seed)
            expected = model(x)
            torch.manual_seed(seed)
            assert_same(replay(fast, x), expected)


def test_hundreds_of_streams_are_not_tried_unless_asked_for():
    def branches(x):
        return sum(torch.sin(x + number) for number in range(150))

    x = torch.randn(8, device="cuda")
    chosen = nimble.compile(branches, strict=True).prepare(x)
    assert chosen.stats["streams"] < 128
    assert "too many for the memory that CUDA would keep" in chosen.explain()
    most = nimble.compile(branches, strict=True, streams="max").prepare(x)
    assert most.stats["streams"] >= 150
    assert_same(replay(most, x), branches(x))
