"""Many threads replay at once while others compile, allocate and draw random numbers."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from branching_models import Branches
from support import assert_same, replay
from torch import nn

import nimble

pytestmark = pytest.mark.gpu

REPLAYING_THREADS = 8


def convolutions() -> tuple[nn.Module, tuple[int, ...]]:
    return Branches(), (1, 4, 16, 16)


def products() -> tuple[nn.Module, tuple[int, ...]]:
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.Softmax(-1)), (8, 64)


def attention() -> tuple[nn.Module, tuple[int, ...]]:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (2, 10, 32)


def recurrences() -> tuple[nn.Module, tuple[int, ...]]:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(16, 16)

        def forward(self, x):
            state = torch.zeros_like(x)
            for _ in range(6):
                state = self.cell(x, state)
            return state

    return Recurrent(), (4, 16)


class Ready:
    """A compiled model with inputs and eager's answers to them."""

    def __init__(self, make) -> None:
        model, shape = make()
        model.eval().cuda()
        self.inputs = [torch.randn(shape, device="cuda") for _ in range(16)]
        self.expected = [model(x) for x in self.inputs]
        self.fast = nimble.compile(model, strict=True, tune=0.1).prepare(self.inputs[0])


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.full)])
def test_eight_threads_replay_four_models_while_others_compile_allocate_and_draw(seconds):
    models = [Ready(make) for make in (convolutions, products, attention, recurrences)]
    torch.cuda.synchronize()
    failed = threading.Event()
    end = time.monotonic() + seconds

    def repeat(work) -> int:
        """How often the work was done. A failure of one stops all."""
        try:
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for count in itertools.count():
                    if failed.is_set() or time.monotonic() > end:
                        return count
                    work(count)
        except BaseException:
            failed.set()
            raise

    def replay_one(ready: Ready):
        def work(count: int) -> None:
            index = count % len(ready.inputs)
            assert_same(ready.fast(ready.inputs[index]), ready.expected[index])

        return work

    def compile_another(count: int) -> None:
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).cuda()
        x = torch.randn(1 + count % 7, 8, device="cuda")
        expected = model(x)
        assert_same(replay(nimble.compile(model, strict=True, tune=0).prepare(x), x), expected)

    def allocate(count: int) -> None:
        size = 1 << (8 + count % 14)
        parts = [torch.full((size,), float(value), device="cuda") for value in range(4)]
        assert [part[-1].item() for part in parts] == [0.0, 1.0, 2.0, 3.0]

    def draw(count: int) -> None:
        first, second = (torch.Generator().manual_seed(count) for _ in range(2))
        assert_same(torch.randn(1000, generator=first), torch.randn(1000, generator=second))

    works = [replay_one(models[index % len(models)]) for index in range(REPLAYING_THREADS)]
    works += [compile_another, allocate, draw]
    with ThreadPoolExecutor(len(works)) as pool:
        counts = list(pool.map(repeat, works))
    assert all(count > 0 for count in counts), counts
    assert sum(ready.fast.stats["replays"] for ready in models) >= sum(counts[:REPLAYING_THREADS])
    assert all(ready.fast.stats["eager_calls"] == 0 for ready in models)
