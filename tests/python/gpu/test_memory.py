"""Device memory is PyTorch's own, is given back, and does not grow."""

from __future__ import annotations

import os

import pytest
import torch
from branching_models import Branches
from support import assert_same, replay
from torch import nn

import nimble

pytestmark = pytest.mark.gpu

SHAPE = (1, 4, 32, 32)


def compile_and_use(**options) -> None:
    model = nn.Sequential(Branches(), nn.Flatten(), nn.LazyLinear(10)).eval().cuda()
    x = torch.randn(SHAPE, device="cuda")
    expected = model(x)
    assert_same(replay(nimble.compile(model, strict=True, **options).prepare(x), x), expected)


@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.full)])
def test_models_compiled_and_destroyed_give_all_memory_back(count, settled_memory):
    # Libraries take memory of their own the first time they are used.
    for _ in range(3):
        compile_and_use(tune=0)
    before = settled_memory()
    for _ in range(count):
        compile_and_use(tune=0)
    assert settled_memory() == before


@pytest.mark.parametrize(("options", "count"), [({"tune": 0}, 15), ({}, 2)], ids=["unmeasured", "measured"])
def test_what_lies_beside_pytorchs_memory_is_given_back_too(options, count, settled_memory):
    """Graphs, streams and events are the driver's, and PyTorch's own count knows nothing of them."""

    def taken_from_the_device() -> int:
        settled_memory()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return total - free

    rounds = []
    for _ in range(5):
        for _ in range(count):
            compile_and_use(**options)
        rounds.append(taken_from_the_device())
    # The driver keeps what the first round took, and may take a little more in another one, but not in each.
    assert rounds[-1] <= max(rounds[1:-1]), f"bytes in use after each round of {count}: {rounds}"


def test_schedules_that_are_compared_share_memory(settled_memory):
    """They are measured one after the other, so that preparing takes little more than two of them."""

    def wide(x):
        chains = [x * (number + 1) for number in range(8)]
        for _ in range(3):
            chains = [chain.sin() for chain in chains]
        return torch.stack([chain.sum() for chain in chains])

    x = torch.randn(1 << 23, device="cuda")
    expected = wide(x)
    before = settled_memory()
    torch.cuda.reset_peak_memory_stats()
    used = torch.cuda.memory_allocated()
    fast = nimble.compile(wide, strict=True).prepare(x)
    preparing = torch.cuda.max_memory_allocated() - used
    assert_same(replay(fast, x), expected)
    several = 8 * 2 * x.nbytes  # what the widest schedule needs: each of eight chains one piece and the next
    assert len(fast.explain().split("tried")) > 4, fast.explain()
    assert preparing < 3 * several
    # The one that was chosen has what it needs and no more.
    needed = sum(fast.stats[part] for part in ("arena_bytes", "static_bytes", "workspace_bytes"))
    assert settled_memory() - before < needed + (4 << 20)


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.full)])
@pytest.mark.parametrize("outputs", ["copy", "alias"])
def test_replays_do_not_grow(count, outputs, settled_memory):
    model = Branches().eval().cuda()
    x = torch.randn(SHAPE, device="cuda")
    fast = nimble.compile(model, strict=True, outputs=outputs).prepare(x)
    for _ in range(500):
        result = fast(x)
    before, reserved, resident = settled_memory(), torch.cuda.memory_reserved(), resident_bytes()
    for _ in range(count):
        result = fast(x)
    assert settled_memory() == before
    assert torch.cuda.memory_reserved() == reserved
    assert resident_bytes() - resident < 8 << 20
    assert_same(result, model(x))


def test_pytorchs_own_tools_go_on_working(settled_memory):
    x = torch.randn(SHAPE, device="cuda")
    model = Branches().eval().cuda()
    fast = nimble.compile(model, strict=True).prepare(x)
    before = settled_memory()

    megabyte = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    assert settled_memory() == before + (1 << 20)
    pointer = megabyte.data_ptr()
    blocks = [
        block
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    ]
    assert pointer in {block["address"] for block in blocks}
    assert sum(block["size"] for block in blocks) >= before
    del megabyte
    assert settled_memory() == before

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    assert_same(replay(fast, x), model(x))


def test_intermediate_results_share_planned_memory():
    def chain(x):
        for _ in range(20):
            x = torch.relu(x * 2)
        return x

    x = torch.randn(1 << 16, device="cuda")
    fast = nimble.compile(chain, strict=True, streams=1).prepare(x)
    assert_same(replay(fast, x), chain(x))
    stats = fast.stats
    assert stats["allocated_bytes"] >= 39 * (4 << 16)
    assert stats["arena_bytes"] <= 4 * (4 << 16)
    assert stats["unplanned_allocations"] == 0
