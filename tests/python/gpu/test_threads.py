"""Many threads replay at once while others compile, allocate and draw random numbers."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from branching_models import Branches
from support import assert_same, replay, warm_up
from torch import nn
from torch.nn import functional as F

import nimble

pytestmark = pytest.mark.gpu

REPLAYING_THREADS = 8
DROPPING_THREADS = 2


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


class Unlike:
    """Random numbers that were drawn, by all threads together. The same ones twice mean that a position in a
    generator's sequence was used twice."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self.lock = threading.Lock()

    def add(self, drawn: torch.Tensor) -> None:
        with self.lock:
            before = len(self.seen)
            self.seen.add(drawn.cpu().numpy().tobytes())
            assert len(self.seen) == before + 1, "these were drawn before"


class Dropping:
    """A compiled model that trains, with dropout, which draws from the default generator."""

    def __init__(self) -> None:
        self.x = torch.randn(4, 64, device="cuda")
        self.masks = Unlike()
        layer = nn.Linear(64, 256).cuda()

        def without_dropout(x):
            return layer(x).sigmoid() + 1

        self.kept = without_dropout(self.x) * 2
        self.fast = nimble.compile(lambda x: F.dropout(without_dropout(x), 0.5), strict=True, tune=0.1)
        self.fast.prepare(self.x)

    def work(self, count: int) -> None:
        answer = self.fast(self.x)
        mask = answer != 0
        assert_same(answer, torch.where(mask, self.kept, 0))
        self.masks.add(mask)


# The two below compile without prepare(), which would put the default generators back to where they were before it.


def compile_another(count: int) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).cuda()
    x = torch.randn(1 + count % 7, 8, device="cuda")
    assert_same(replay(warm_up(nimble.compile(model, tune=0), x), x), model(x))


def compile_what_draws(count: int) -> None:
    """From a generator of its own: the check would see what others draw from the default one."""
    generator = torch.Generator("cuda").manual_seed(count)

    def noisy(x):
        return x + torch.rand(x.shape, device=x.device, generator=generator)

    x = torch.ones(1 + count % 7, 8, device="cuda")
    expected = [noisy(x) for _ in range(5)]
    generator.manual_seed(count)
    fast = nimble.compile(noisy, tune=0)
    assert_same([fast(x), fast(x), *(replay(fast, x) for _ in range(3))], expected)


def allocate(count: int) -> None:
    size = 1 << (8 + count % 14)
    parts = [torch.full((size,), float(value), device="cuda") for value in range(4)]
    assert [part[-1].item() for part in parts] == [0.0, 1.0, 2.0, 3.0]


def draw_from_its_own(device: str):
    def work(count: int) -> None:
        first, second = (torch.Generator(device).manual_seed(count) for _ in range(2))
        drawn = [torch.randn(1000, device=device, generator=generator) for generator in (first, second)]
        assert_same(drawn[0], drawn[1])

    return work


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.full)])
def test_threads_replay_five_models_while_others_compile_allocate_and_draw(seconds):
    models = [Ready(make) for make in (convolutions, products, attention, recurrences)]
    dropping, drawn = Dropping(), Unlike()
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

    def draw_from_the_default(count: int) -> None:
        drawn.add(torch.rand(64, device="cuda"))

    works = [replay_one(models[index % len(models)]) for index in range(REPLAYING_THREADS)]
    works += [dropping.work] * DROPPING_THREADS
    works += [compile_another, compile_what_draws, allocate]
    works += [draw_from_its_own("cpu"), draw_from_its_own("cuda"), draw_from_the_default]
    with ThreadPoolExecutor(len(works)) as pool:
        counts = list(pool.map(repeat, works))
    assert all(count > 0 for count in counts), counts
    replaying, dropped = counts[:REPLAYING_THREADS], counts[REPLAYING_THREADS:][:DROPPING_THREADS]
    assert sum(ready.fast.stats["replays"] for ready in models) >= sum(replaying)
    assert dropping.fast.stats["replays"] >= sum(dropped)
    assert all(ready.fast.stats["eager_calls"] == 0 for ready in [*models, dropping])
