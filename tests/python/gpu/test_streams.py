"""Replays run on the caller's current stream, in order with all that the caller put there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from branching_models import Branches, small_nasnet
from nimble.bench.workloads.random_weights import enliven
from schedule_choices import assert_kept_by_the_rule
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


def test_a_call_returns_while_the_gpu_has_not_even_begun(fast):
    """The debug mode above knows of PyTorch's own waiting alone."""
    x = torch.randn(1000, device="cuda")
    expected = branchy(x)
    replay(fast, x)  # takes memory for its result, which the next one finds
    torch.cuda.synchronize()
    torch.cuda._sleep(10 * BUSY_CYCLES)
    result = replay(fast, x)
    end = torch.cuda.Event()
    end.record()
    assert not end.query(), "the call came back after the GPU was done"
    end.synchronize()
    assert_same(result, expected)


# In a process of its own: the profiler slows everything down that comes after it.
COUNT_CALLS = """
import collections, json
import torch, nimble
from torch.profiler import ProfilerActivity, profile
from gpu.test_streams import branchy

def calls(function, x):
    for _ in range(2):  # the first time sets the profiler up
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for _ in range(5):
                function(x)
            torch.cuda.synchronize()
    return collections.Counter(event.name for event in profiler.events())

with torch.no_grad():
    x = torch.randn(1000, device="cuda")
    fast = nimble.compile(branchy, strict=True, streams="max").prepare(x)
    fast(x)
    print(json.dumps({"eager": calls(branchy, x), "replayed": calls(fast, x), "streams": fast.stats["streams"]}))
"""


def test_a_replay_is_one_launch_of_one_graph():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", COUNT_CALLS]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    counted = json.loads(ended.stdout.splitlines()[-1])

    def work_given_to_the_gpu(calls: dict[str, int]) -> dict[str, int]:
        kinds = ("cudaLaunch", "cuLaunch", "cudaMemcpy", "cudaMemset", "cudaGraphLaunch")
        return {name: count for name, count in calls.items() if name.startswith(kinds)}

    assert counted["streams"] > 1
    assert sum(work_given_to_the_gpu(counted["eager"]).values()) >= 5 * 10
    assert work_given_to_the_gpu(counted["replayed"]) == {"cudaGraphLaunch": 5}


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


@pytest.mark.parametrize("size", [8, 128])
def test_more_streams_are_kept_only_where_they_were_measured_to_be_faster(size):
    branches = Branches().eval().cuda().forward
    fast = nimble.compile(branches, strict=True, tune=0.2)
    tried = assert_kept_by_the_rule(fast.prepare(torch.randn(1, 4, size, size, device="cuda")))
    assert len({one["streams"] for one in tried}) > 2
    assert all(one["milliseconds"] > 0 for one in tried if not one["rejected"])


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
