"""Memory and threads are given back, and a replay leaves nothing behind."""

from __future__ import annotations

import dataclasses
import gc
import os
import time
import weakref

import pytest
import torch
from support import assert_same, replay, warm_up
from torch import nn

import nimble


@pytest.fixture(autouse=True)
def without_grad():
    with torch.no_grad():
        yield


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def running_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def settled_threads(at_most: int) -> int:
    """A thread that was joined may stay listed for a moment."""
    for _ in range(200):
        if running_threads() <= at_most:
            break
        time.sleep(0.01)
    return running_threads()


def branchy(x):
    left, right = torch.relu(x), torch.sigmoid(x)
    for _ in range(3):
        left, right = left * 1.5 + right, torch.tanh(right) - left
    return left + right


def replay_many_times(count: int) -> int:
    """By how many bytes the process grew."""
    fast = nimble.compile(branchy, strict=True).prepare(torch.randn(64))
    x = torch.randn(64)
    for _ in range(2000):
        fast(x)
    gc.collect()
    before = resident_bytes()
    for _ in range(count):
        result = fast(x)
    gc.collect()
    assert_same(result, branchy(x))
    assert fast.stats["replays"] >= count
    return resident_bytes() - before


def test_twenty_thousand_replays_do_not_grow():
    assert replay_many_times(20_000) < 2 << 20


@pytest.mark.full
def test_a_million_replays_do_not_grow():
    assert replay_many_times(1_000_000) < 4 << 20


def test_recording_again_and_again_does_not_grow():
    fast = nimble.compile(branchy, cache_size=2, tune=0)

    def record(sizes):
        for size in sizes:
            warm_up(fast, torch.randn(size, 1000))

    sizes = list(range(1, 9))
    with pytest.warns(UserWarning, match="cache_size"):
        record(sizes * 3)
    gc.collect()
    before = resident_bytes()
    record(sizes * 6)
    gc.collect()
    assert resident_bytes() - before < 8 << 20


def test_a_collected_model_frees_its_arena():
    class Wide(nn.Module):
        def forward(self, x):
            # About 64 MiB of intermediate results that live at the same time.
            parts = [x * n for n in range(16)]
            return torch.stack([part.sum() for part in parts]).sum()

    x = torch.randn(1 << 20)

    def use() -> int:
        fast = nimble.compile(Wide(), streams=1).prepare(x)
        replay(fast, x)
        return fast.stats["arena_bytes"]

    arena = use()
    assert arena > 8 << 20
    gc.collect()
    before = resident_bytes()
    for _ in range(6):
        use()
        gc.collect()
    # Six arenas that stayed would be many times this.
    assert resident_bytes() - before < 2 * arena


def test_a_compiled_module_is_collected_without_help():
    model = nn.Linear(3, 3)
    fast = warm_up(nimble.compile(model), torch.randn(1, 3))
    gone = weakref.ref(model)
    del model, fast
    gc.collect()
    assert gone() is None


def test_a_compiled_function_does_not_keep_its_arguments_or_results():
    fast = nimble.compile(branchy, strict=True).prepare(torch.randn(8))
    x = torch.randn(8)
    result = replay(fast, x)
    memory = [weakref.ref(tensor) for tensor in (x, result)]
    del x, result
    gc.collect()
    assert [reference() for reference in memory] == [None, None]


class Batch:
    def __init__(self, x):
        self.x = x


@dataclasses.dataclass(frozen=True)
class Named:
    """Equal to others by its value, so that it has to be remembered itself."""

    name: int
    batch: Batch = dataclasses.field(compare=False)


def test_objects_among_the_arguments_are_not_kept():
    fast = nimble.compile(lambda batch: batch.x * 2, cache_size=100)
    given = []
    for _ in range(40):
        batch = Batch(torch.randn(8))
        given.append(weakref.ref(batch))
        assert_same(fast(batch), batch.x * 2)
    del batch
    gc.collect()
    assert (
        sum(reference() is not None for reference in given) <= 1
    )  # that of the last recording, for a report
    fast.refresh()
    assert not any(reference() is not None for reference in given)


def test_refresh_lets_go_of_values_among_the_arguments():
    fast = nimble.compile(lambda named: named.batch.x * 2)
    given = []
    for name in range(5):
        batch = Batch(torch.randn(8))
        given.append(weakref.ref(batch))
        fast(Named(name, batch))
    del batch
    fast.refresh()
    gc.collect()
    assert not any(reference() is not None for reference in given)


def test_an_object_at_the_address_of_an_earlier_one_is_another():
    fast = nimble.compile(lambda batch: batch.x * 2, cache_size=100)
    for value in range(20):
        assert_same(fast(Batch(torch.full((3,), float(value)))), torch.full((3,), 2.0 * value))


def test_no_thread_is_started_by_a_call_and_none_stays_after_the_owner():
    # PyTorch's own pools start with its first parallel work.
    torch.randn(1 << 16).sum()
    branchy(torch.randn(1 << 16))
    warm_up(nimble.compile(branchy, streams=1), torch.randn(1 << 16))
    gc.collect()
    before = running_threads()
    fast = nimble.compile(branchy, streams=4).prepare(torch.randn(1 << 16))
    replay(fast, torch.randn(1 << 16))
    ready = running_threads()
    for _ in range(50):
        replay(fast, torch.randn(1 << 16))
    assert running_threads() <= ready
    del fast
    gc.collect()
    assert settled_threads(before) <= before


def test_interpreter_exit_with_a_ready_model_is_clean():
    import subprocess
    import sys

    program = (
        "import torch, nimble\n"
        "with torch.no_grad():\n"
        "    fast = nimble.compile(lambda x: x * 2 + x.relu(), streams=2).prepare(torch.randn(9))\n"
        "    print(fast(torch.ones(9)).sum().item())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "27.0"
