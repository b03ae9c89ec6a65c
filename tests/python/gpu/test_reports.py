"""Reports of what runs on a GPU: the device's own times, beside eager's kernels."""

from __future__ import annotations

import pytest
import torch
from branching_models import Branches
from support import assert_same

import nimble

pytestmark = pytest.mark.gpu


def document_of(fast) -> dict:
    return getattr(fast, "_nimble", fast)._document((), {})


@pytest.fixture
def branches():
    model = Branches().cuda().eval()
    x = torch.randn(1, 4, 16, 16, device="cuda")
    return model, x


@pytest.mark.parametrize("streams", [1, 4, "max"])
def test_the_device_times_each_task_in_the_order_of_the_schedule(branches, streams):
    model, x = branches
    fast = nimble.compile(model, streams=streams)
    with torch.inference_mode():
        for _ in range(3):
            fast(x)
        expected = model(x)
        [part] = document_of(fast)["parts"]
        assert_same(fast(x), expected)
    tasks = part["tasks"]
    assert part["device"] == "cuda:0"
    assert all(task["measured"][0] < task["measured"][1] for task in tasks)
    assert part["clock"] >= 0
    assert all(task["cost"] > 0 for task in tasks)
    assert part["critical_path_length"] <= part["work"] == sum(task["cost"] for task in tasks)
    for before, after in [*part["edges"], *part["waits"]]:
        assert tasks[before]["measured"][1] <= tasks[after]["measured"][0]


def test_eager_has_a_lane_for_the_host_and_one_for_kernels(branches):
    model, x = branches
    fast = nimble.compile(model)
    with torch.inference_mode():
        for _ in range(3):
            fast(x)
    eager = document_of(fast)["eager"]
    kinds = {lane["kind"] for lane in eager["lanes"]}
    assert kinds == {"host", "device"}
    host = next(lane for lane in eager["lanes"] if lane["kind"] == "host")
    assert {"aten::conv2d", "aten::relu", "aten::cat"} <= {span[0] for span in host["spans"]}
    for lane in eager["lanes"]:
        for before, after in zip(lane["spans"], lane["spans"][1:], strict=False):
            assert before[2] <= after[1]
