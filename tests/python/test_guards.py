"""A replay is only for calls like the recorded one; others are recorded anew, or an error when strict."""

from __future__ import annotations

import warnings

import pytest
import torch
from nimble.arguments import Arguments
from support import assert_same, replay, warm_up
from torch import nn
from torch.nn import functional as F

import nimble


@pytest.fixture(autouse=True)
def without_grad():
    with torch.no_grad():
        yield


def function(x):
    return torch.relu(x) * 2 + x.mean()


OTHER_INPUTS = {
    "shape": lambda x: torch.randn(8, 6),
    "fewer dimensions": lambda x: x[0],
    "more dimensions": lambda x: x[None],
    "one row, which would broadcast": lambda x: x[:1],
    "no rows": lambda x: x[:0],
    "dtype": lambda x: x.double(),
    "a narrower dtype": lambda x: x.bfloat16(),
    "strides": lambda x: x.t().contiguous().t(),
    "expanded": lambda x: x[:1].expand(4, 6),
    "every other column": lambda x: torch.randn(4, 12)[:, ::2],
}
every_other_input = pytest.mark.parametrize("change", OTHER_INPUTS.values(), ids=OTHER_INPUTS.keys())


@every_other_input
def test_another_input_is_recorded_anew(change):
    fast = nimble.compile(function)
    x = torch.randn(4, 6)
    warm_up(fast, x)
    recordings, other = fast.stats["recordings"], change(x)
    assert_same(fast(other), function(other))
    assert fast.stats["recordings"] > recordings
    fast(other)
    assert_same(replay(fast, other), function(other))
    # The first is still in the cache.
    assert_same(replay(fast, x), function(x))


@every_other_input
def test_another_input_is_an_error_when_strict(change):
    fast = nimble.compile(function, strict=True)
    x = torch.randn(4, 6)
    fast.prepare(x)
    with pytest.raises(nimble.GuardError):
        fast(change(x))
    assert_same(replay(fast, x), function(x))
    # What is prepared for is welcome.
    other = change(x)
    fast.prepare(other)
    assert_same(replay(fast, other), function(other))


def test_a_guard_error_tells_what_was_given_and_what_was_prepared():
    fast = nimble.compile(function, strict=True).prepare(torch.randn(4, 6))
    with pytest.raises(nimble.GuardError) as refusal:
        fast(torch.randn(5, 6))
    assert "4, 6" in str(refusal.value) or "4x6" in str(refusal.value)
    assert "5, 6" in str(refusal.value) or "5x6" in str(refusal.value)
    assert "prepare" in str(refusal.value)


def test_another_device_is_recorded_anew():
    fast = nimble.compile(function)
    warm_up(fast, torch.randn(4, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nimble.FallbackWarning)
        result = fast(torch.empty(4, 6, device="meta"))
    assert result.device.type == "meta"
    assert result.shape == (4, 6)


@pytest.mark.parametrize("arguments", [(), (1, 2), (1, 2, 3)], ids=["too few", "too many", "far too many"])
def test_a_wrong_number_of_arguments_is_pythons_error(arguments):
    fast = nimble.compile(function)
    x = torch.randn(4, 6)
    warm_up(fast, x)
    with pytest.raises(TypeError):
        fast(*(x for _ in arguments))
    assert_same(replay(fast, x), function(x))


def test_an_unknown_keyword_is_pythons_error():
    fast = nimble.compile(function)
    x = torch.randn(4, 6)
    warm_up(fast, x)
    with pytest.raises(TypeError, match="scale"):
        fast(x, scale=2)
    assert_same(replay(fast, x), function(x))


def test_other_values_of_plain_arguments_are_recorded_anew():
    def scaled(x, scale, *, shift=0.0, mode="add"):
        return x * scale + shift if mode == "add" else x * scale - shift

    fast = nimble.compile(scaled)
    x = torch.randn(3)
    for args, kwargs in [
        ((2,), {}),
        ((3,), {}),
        ((2.0,), {}),
        ((True,), {}),
        ((2,), {"shift": 1.0}),
        ((2,), {"shift": 1.0, "mode": "subtract"}),
        ((2,), {"shift": -0.0}),
    ]:
        warm_up(fast, x, *args, **kwargs)
        assert_same(replay(fast, x, *args, **kwargs), scaled(x, *args, **kwargs))
    assert fast.stats["cached"] == 7


def test_one_and_true_and_one_point_zero_are_different_arguments():
    fast = nimble.compile(lambda x, scale: x * scale)
    x = torch.tensor([1, 2, 3])
    for scale in (1, True, 1.0):
        warm_up(fast, x, scale)
        assert_same(replay(fast, x, scale), x * scale)


def test_a_tensor_in_place_of_a_number_is_recorded_anew():
    fast = nimble.compile(lambda x, scale: x * scale)
    x = torch.randn(3)
    warm_up(fast, x, 2.0)
    other = torch.tensor(3.0)
    assert_same(fast(x, other), x * other)


def test_another_structure_is_recorded_anew():
    def total(values):
        return sum(values.values()) if isinstance(values, dict) else sum(values)

    fast = nimble.compile(total)
    x, y = torch.randn(3), torch.randn(3)
    for values in ([x, y], (x, y), {"a": x, "b": y}, [x, [y]][:1], [x, y, x]):
        warm_up(fast, values)
        assert_same(replay(fast, values), total(values))


def test_which_inputs_alias_is_part_of_the_signature():
    def writes_the_second(x, y):
        y.add_(1)
        return x * 2

    fast = nimble.compile(writes_the_second)
    warm_up(fast, torch.zeros(3), torch.zeros(3))
    both = torch.ones(3)
    assert_same(fast(both, both), torch.full((3,), 4.0))
    assert_same(both, torch.full((3,), 2.0))


def test_autocast_is_part_of_the_signature():
    layer = nn.Linear(4, 4)
    fast = nimble.compile(layer)
    x = torch.randn(2, 4)
    warm_up(fast, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fast(x).dtype == torch.bfloat16
        fast(x)
        assert_same(replay(fast, x), layer(x))
    assert_same(replay(fast, x), layer(x))


def test_the_default_dtype_is_part_of_the_signature():
    def with_a_new_tensor(x):
        return x.sum() + torch.ones(3)

    fast = nimble.compile(with_a_new_tensor)
    x = torch.ones(3)
    warm_up(fast, x)
    torch.set_default_dtype(torch.float64)
    try:
        assert_same(fast(x), with_a_new_tensor(x))
    finally:
        torch.set_default_dtype(torch.float32)


def test_deterministic_algorithms_are_part_of_the_signature():
    def summed(x):
        return x.cumsum(0)

    fast = nimble.compile(summed)
    x = torch.randn(5)
    warm_up(fast, x)
    recordings = fast.stats["recordings"]
    torch.use_deterministic_algorithms(True)
    try:
        assert_same(fast(x), summed(x))
    finally:
        torch.use_deterministic_algorithms(False)
    assert fast.stats["recordings"] > recordings


def test_inference_mode_and_no_grad_answer_alike():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.Dropout(),
        # PyTorch has a second implementation of this one in Python, with other rounding.
        nn.Upsample(scale_factor=1.7, mode="bilinear"),
    ).eval()
    fast = nimble.compile(model)
    x = torch.randn(1, 3, 6, 6)
    expected, tasks = model(x), []
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            warm_up(fast, x)
            result = replay(fast, x)
            assert_same(result.clone(), expected.clone())
            assert result.is_inference() == (mode is torch.inference_mode)
        tasks.append(fast.stats["tasks"])
    assert tasks[0] == tasks[1]


def test_calls_with_and_without_grad_have_schedules_of_their_own():
    model = nn.Linear(3, 2)
    fast = nimble.compile(model)
    x = torch.randn(4, 3)
    with torch.enable_grad():
        for _ in range(3):
            fast(x).sum().backward()
    assert_same(model.weight.grad, (3 * x.sum(0)).expand(2, 3).contiguous())
    assert fast.stats["replays"] == 1
    warm_up(fast, x)
    assert_same(replay(fast, x), model(x))
    assert not replay(fast, x).requires_grad


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (torch.backends.cuda.matmul, "tf32"),
        (torch.backends.cudnn.conv, "ieee"),
        (torch.backends.cudnn.rnn, "ieee"),
    ],
    ids=["products", "convolutions", "recurrences"],
)
def test_the_newer_switches_for_tf32_are_part_of_the_signature(place, value):
    fast = nimble.compile(lambda x: x * 2)
    x = torch.randn(3)
    warm_up(fast, x)
    before, recordings = place.fp32_precision, fast.stats["recordings"]
    place.fp32_precision = value
    try:
        assert_same(fast(x), x * 2)
        assert fast.stats["recordings"] == recordings + 1
    finally:
        place.fp32_precision = before


def test_hooks_of_every_module_count_from_the_next_call_on():
    layer = nn.Linear(3, 2)
    fast = nimble.compile(layer)
    x = torch.randn(4, 3)
    warm_up(fast, x)
    handle = nn.modules.module.register_module_forward_hook(lambda _module, _args, result: result * 2)
    try:
        warm_up(fast, x)
        assert_same(replay(fast, x), F.linear(x, layer.weight, layer.bias) * 2)
    finally:
        handle.remove()
    assert_same(fast(x), layer(x))


def test_a_forward_that_is_put_in_place_of_another_counts():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    fast = nimble.compile(model)
    x = torch.randn(4, 3)
    warm_up(fast, x)
    model[1].forward = lambda x: x.tanh()
    assert_same(fast(x), model(x))
    del model[1].forward
    assert_same(fast(x), model(x))


def test_an_object_without_a_hash_is_not_taken_for_another_at_its_address():
    numpy = pytest.importorskip("numpy")
    fast = nimble.compile(lambda x, numbers: x * float(numbers[0]))
    x = torch.randn(3)
    for number in range(12):  # each is gone when the next is made, and mostly leaves it its place
        assert_same(fast(x, numpy.full(3, number)), x * number)


def test_a_method_of_a_class_can_be_compiled():
    class Scale:
        by = torch.tensor(3.0)

        @classmethod
        def up(cls, x):
            return x * cls.by

    fast = nimble.compile(Scale.up)
    x = torch.randn(3)
    warm_up(fast, x)
    assert_same(replay(fast, x), x * 3)


class TestCache:
    def test_is_bounded_and_drops_the_least_recently_used(self):
        fast = nimble.compile(function, cache_size=2)
        a, b, c = (torch.randn(n, 6) for n in (2, 3, 4))
        for x in (a, b):
            warm_up(fast, x)
        replay(fast, a)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nimble.FallbackWarning)
            warm_up(fast, c)
        assert fast.stats["cached"] == 2
        assert_same(replay(fast, a), function(a))
        recordings = fast.stats["recordings"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nimble.FallbackWarning)
            assert_same(fast(b), function(b))
        assert fast.stats["recordings"] == recordings + 1

    def test_thrashing_is_reported(self):
        fast = nimble.compile(function, cache_size=2)
        with pytest.warns(UserWarning, match="cache_size"):
            for rows in list(range(1, 7)) * 2:
                fast(torch.randn(rows, 6))

    def test_refresh_forgets_everything(self):
        fast = nimble.compile(function)
        x = torch.randn(4, 6)
        warm_up(fast, x)
        fast.refresh()
        assert fast.stats["cached"] == 0
        recordings = fast.stats["recordings"]
        warm_up(fast, x)
        assert fast.stats["recordings"] > recordings
        assert_same(replay(fast, x), function(x))


def test_numbers_of_calls_are_neither_kept_for_ever_nor_given_twice():
    arguments = Arguments(most=256)
    x = torch.ones(1)
    numbers = [arguments.flatten((x, value), {})[1] for value in range(10_000)]
    assert len(set(numbers)) == 10_000
    assert max(len(arguments._variants), len(arguments._seen)) <= 256
    assert arguments.flatten((x, 9_999), {})[1] == numbers[-1]
