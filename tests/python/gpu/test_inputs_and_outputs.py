"""What goes into a replay on the GPU and comes out of it, from host and device memory."""

from __future__ import annotations

import pytest
import torch
from support import assert_same, replay, warm_up
from torch import nn

import nimble

pytestmark = pytest.mark.gpu


def compiled(function, *args, **options):
    """Ready to replay."""
    return nimble.compile(function, strict=True, **options).prepare(*args)


def on_gpu(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda")


def test_a_later_call_does_not_change_an_earlier_result():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).cuda()
    fast = compiled(model, on_gpu(2, 4))
    inputs = [on_gpu(2, 4) for _ in range(6)]
    results = [replay(fast, x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        assert_same(result, model(x))


def test_alias_outputs_may_be_overwritten_but_are_right_at_first():
    fast = compiled(lambda x: x * 2, on_gpu(3), outputs="alias")
    x, y = on_gpu(3), on_gpu(3)
    first = replay(fast, x)
    assert_same(first, x * 2)
    second = replay(fast, y)
    assert_same(second, y * 2)
    assert first.data_ptr() == second.data_ptr()


def test_an_aliased_output_outlives_its_model():
    x = on_gpu(1000)
    result = replay(compiled(lambda x: x * 2, on_gpu(1000), outputs="alias"), x)
    others = [on_gpu(1000) for _ in range(50)]
    assert_same(result, x * 2)
    assert len(others) == 50


@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "pageable"])
def test_a_host_input_is_copied_at_every_replay(pinned):
    weight = on_gpu(4, 3)

    def function(host):
        return host.to("cuda", non_blocking=pinned) @ weight

    def host_input():
        x = torch.randn(2, 4)
        return x.pin_memory() if pinned else x

    fast = compiled(function, host_input())
    inputs = [host_input() for _ in range(5)]
    results = [replay(fast, x) for x in inputs]
    assert_same(results, [function(x) for x in inputs])


def test_an_input_written_in_place_is_written_once_at_every_call():
    def function(x):
        x.add_(1)
        return x * 2

    fast = compiled(function, on_gpu(5))
    x = on_gpu(5)
    twin = x.clone()
    for _ in range(3):
        assert_same(replay(fast, x), function(twin))
        assert_same(x, twin)


def test_an_input_that_is_not_contiguous():
    fast = compiled(lambda x: x @ x.t(), on_gpu(6, 8)[:, ::2])
    x = on_gpu(6, 8)[:, ::2]
    assert_same(replay(fast, x), x @ x.t())


def test_numbers_in_host_tensors_are_followed():
    fast = compiled(lambda x, factor: x * factor + 1, on_gpu(5), torch.tensor(2.0))
    x, factor = on_gpu(5), torch.tensor(3.0)
    for value in (3.0, -0.5, 7.0):
        factor.fill_(value)
        assert_same(replay(fast, x, factor), x * factor + 1)


def test_a_function_moves_from_the_cpu_to_the_gpu_and_back():
    def function(x):
        return torch.relu(x) * 2 + 1

    fast = nimble.compile(function)
    for x in (torch.randn(5), on_gpu(5)):
        assert_same(replay(warm_up(fast, x), x), function(x))
    for x in (torch.randn(5), on_gpu(5), torch.randn(5)):
        assert_same(replay(fast, x), function(x))


def test_a_module_moves_from_the_cpu_to_the_gpu():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    fast, x = nimble.compile(model), torch.randn(2, 4)
    assert_same(replay(warm_up(fast, x), x), model(x))
    model.cuda()
    x = x.cuda()
    assert_same(replay(warm_up(fast, x), x), model(x))


def test_a_weight_changed_in_place_is_seen():
    model = nn.Linear(4, 3).cuda()
    fast, x = compiled(model, on_gpu(2, 4)), on_gpu(2, 4)
    model.weight.mul_(1.5)
    assert_same(replay(fast, x), model(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_is_replayed_inside_and_forgotten_outside(dtype):
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).cuda()
    fast, x = nimble.compile(model), on_gpu(4, 16)
    with torch.autocast("cuda", dtype=dtype):
        result, expected = replay(warm_up(fast, x), x), model(x)
        assert expected.dtype == dtype
        assert_same(result, expected)
    assert_same(fast(x), model(x))


def test_torch_compile_with_this_backend(made_for_dynamo):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5))
    model = model.eval().cuda()
    fast = torch.compile(model, backend="nimble")
    inputs = [on_gpu(2, 3, 4, 4) for _ in range(6)]
    assert_same([fast(x) for x in inputs], [model(x) for x in inputs])
    (graph,) = made_for_dynamo
    assert graph.stats["replays"] == 4, graph.explain()
