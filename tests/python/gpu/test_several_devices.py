"""The device of the inputs decides where a function runs; each device has schedules of its own."""

from __future__ import annotations

import pytest
import torch
from branching_models import Branches
from support import assert_same, replay

import nimble

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]

SHAPE = (1, 4, 32, 32)


def test_one_function_has_a_schedule_for_each_device():
    fast = nimble.compile(lambda x: (x.relu() * 2).sum(1), strict=True)
    for _ in range(3):
        for device in ("cuda:0", "cuda:1"):
            x = torch.randn(SHAPE, device=device)
            result = fast(x)
            assert result.device == x.device
            assert_same(result, (x.relu() * 2).sum(1))


def test_a_replay_leaves_the_current_device_as_it_was():
    x = torch.randn(SHAPE, device="cuda:1")
    model = Branches().eval().to("cuda:1")
    fast = nimble.compile(model, strict=True).prepare(x)
    assert torch.cuda.current_device() == 0
    assert_same(replay(fast, x), model(x))
    assert torch.cuda.current_device() == 0


def test_a_program_on_two_devices_is_refused_by_name():
    x = torch.randn(SHAPE, device="cuda:0")
    with pytest.raises(nimble.RecordError, match="cuda:1"):
        nimble.compile(lambda x: x.to("cuda:1") * 2).prepare(x)
