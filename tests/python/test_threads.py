"""Any thread may call, at any time, and gets the right answer."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support import assert_same, replay, warm_up
from torch import nn

import nimble

THREADS = 8


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 4)).eval()


def in_threads(work) -> list:
    """Runs work(0), work(1), … at the same moment and hands on what any of them raises."""
    start = threading.Barrier(THREADS)

    def run(index):
        start.wait()
        with torch.no_grad():
            return work(index)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def test_eight_threads_call_one_ready_model():
    net = model()
    with torch.no_grad():
        fast = nimble.compile(net).prepare(torch.randn(3, 16))
        inputs = [[torch.randn(3, 16) for _ in range(50)] for _ in range(THREADS)]
        expected = [[net(x) for x in row] for row in inputs]
    results = in_threads(lambda index: [fast(x) for x in inputs[index]])
    assert_same(results, expected)
    assert fast.stats["replays"] >= THREADS * 50


def test_eight_threads_make_the_first_calls_together():
    net = model()
    fast = nimble.compile(net)
    with torch.no_grad():
        inputs = [[torch.randn(3, 16) for _ in range(20)] for _ in range(THREADS)]
        expected = [[net(x) for x in row] for row in inputs]
    assert_same(in_threads(lambda index: [fast(x) for x in inputs[index]]), expected)
    with torch.no_grad():
        replay(warm_up(fast, inputs[0][0]), inputs[0][0])


def test_eight_threads_with_eight_shapes():
    net = model()
    fast = nimble.compile(net, cache_size=THREADS)
    with torch.no_grad():
        inputs = [[torch.randn(1 + index, 16) for _ in range(20)] for index in range(THREADS)]
        expected = [[net(x) for x in row] for row in inputs]
    assert_same(in_threads(lambda index: [fast(x) for x in inputs[index]]), expected)


def test_eight_threads_prepare_models_of_their_own():
    def work(index):
        net = model()
        fast = nimble.compile(net, strict=True).prepare(torch.randn(2, 16))
        inputs = [torch.randn(2, 16) for _ in range(10)]
        assert_same([replay(fast, x) for x in inputs], [net(x) for x in inputs])

    in_threads(work)


def test_preparing_does_not_disturb_eager_work_in_other_threads():
    net, done = model(), threading.Event()

    def eager_until_done():
        with torch.no_grad():
            x = torch.randn(3, 16)
            expected = net(x)
            while not done.is_set():
                assert_same(net(x), expected)
                # Reading data is refused in a recording alone, and this thread records nothing.
                assert x.sum().item() == pytest.approx(x.sum().item())

    with ThreadPoolExecutor(1) as pool:
        eager = pool.submit(eager_until_done)
        try:
            with torch.no_grad():
                for rows in range(1, 6):
                    nimble.compile(net).prepare(torch.randn(rows, 16))
        finally:
            done.set()
        eager.result()


def test_a_function_with_an_effect_loses_none_of_them():
    total = torch.zeros((), dtype=torch.long)

    def count(x):
        total.add_(1)
        return x * 2

    with torch.no_grad():
        fast = nimble.compile(count, strict=True).prepare(torch.ones(3))
    in_threads(lambda index: [fast(torch.ones(3)) for _ in range(25)])
    assert total.item() == THREADS * 25


def test_grad_mode_is_each_threads_own():
    layer = nn.Linear(3, 2)
    fast = nimble.compile(layer)
    with torch.no_grad():
        warm_up(fast, torch.randn(1, 3))

    def work():
        return fast(torch.randn(1, 3)).requires_grad

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result()
    with torch.no_grad():
        assert not fast(torch.randn(1, 3)).requires_grad


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_is_detected_and_refused():
    with torch.no_grad():
        fast = nimble.compile(model(), streams=2).prepare(torch.randn(3, 16))
        replay(fast, torch.randn(3, 16))
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                fast(torch.randn(3, 16))
                answer = "no error"
            except nimble.Error as error:
                answer = str(error)
            except BaseException as error:
                answer = f"{type(error)}: {error}"
            os.write(write, answer.encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            answer = pipe.read()
        os.waitpid(child, 0)
        assert "fork" in answer
        # The parent goes on.
        replay(fast, torch.randn(3, 16))
