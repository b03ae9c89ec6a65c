"""What replays see of values that are alike at first sight, of places where nothing stood, and of settings."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from support import assert_same, replay, warm_up
from torch import nn
from torch.utils.checkpoint import checkpoint

import nimble


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", None)
        self.register_parameter("scale", None)
        self.shift = None

    def forward(self, x):
        x = x if self.mask is None else x * self.mask
        x = x if self.scale is None else x * self.scale
        return x * 2 if self.shift is None else x + self.shift


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mask", torch.tensor([1.0, 0.0, 1.0])),
        ("scale", nn.Parameter(torch.full((3,), 5.0))),
        ("shift", torch.ones(3)),
    ],
    ids=["buffer", "parameter", "attribute"],
)
def test_a_tensor_where_a_module_had_none_is_seen(name, value):
    model = Masked()
    fast = nimble.compile(model)
    x = torch.randn(2, 3)
    with torch.no_grad():
        warm_up(fast, x)
        setattr(model, name, value)
        assert_same(fast(x), model(x))
        warm_up(fast, x)
        assert_same(replay(fast, x), model(x))


def test_a_bias_that_a_layer_gets_later_is_seen():
    layer = nn.Linear(4, 4, bias=False)
    fast = nimble.compile(layer)
    x = torch.randn(2, 4)
    with torch.no_grad():
        warm_up(fast, x)
        layer.bias = nn.Parameter(torch.full((4,), 5.0))
        assert_same(fast(x), layer(x))


def test_a_tensor_where_a_closure_held_none_is_seen():
    mask = None

    def function(x):
        return x * 2 if mask is None else x * mask

    fast = nimble.compile(function)
    x = torch.randn(3)
    warm_up(fast, x)
    mask = torch.zeros(3)
    assert_same(fast(x), function(x))


class Callable:
    def __init__(self):
        self.weight = torch.ones(3)
        self.bias = None

    def __call__(self, x):
        return x * self.weight if self.bias is None else x * self.weight + self.bias


@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize("bound", [False, True], ids=["object", "bound method"])
def test_a_tensor_that_a_callable_object_gets_is_seen(name, bound):
    call = Callable()
    fast = nimble.compile(call.__call__ if bound else call)
    x = torch.randn(3)
    warm_up(fast, x)
    setattr(call, name, torch.full((3,), 7.0))
    assert_same(fast(x), call(x))


class Holder:
    def __init__(self):
        self.model = nn.Linear(3, 3)

    def __call__(self, x):
        return self.model(x)


def test_a_module_that_a_callable_object_gets_is_seen():
    holder = Holder()
    fast = nimble.compile(holder)
    x = torch.randn(2, 3)
    with torch.no_grad():
        warm_up(fast, x)
        holder.model = nn.Linear(3, 3)
        assert_same(fast(x), holder(x))


@dataclasses.dataclass(frozen=True)
class Config:
    scale: object


def scaled(x, config):
    scale = config.scale if isinstance(config, Config) else next(iter(config))
    return x * (scale[0] if isinstance(scale, tuple) else scale)


ALIKE = {
    "dataclasses": (Config(1), Config(1.0)),
    "a truth value": (Config(1), Config(True)),
    "tuples inside": (Config((1, 2)), Config((1.0, 2))),
    "frozen sets": (frozenset({1}), frozenset({1.0})),
}


@pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=ALIKE.keys())
def test_arguments_that_are_equal_in_python_but_not_alike_are_told_apart(one, other):
    assert one == other
    fast = nimble.compile(scaled)
    x = torch.arange(3)
    for config in (one, other):
        warm_up(fast, x, config)
        assert_same(replay(fast, x, config), scaled(x, config))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, complex, np.complex64])
def test_the_sign_of_zero_is_told_apart(kind):
    def divided(x, by):
        return x / complex(by).real

    fast = nimble.compile(divided)
    x = torch.ones(2)
    for by in (kind(0.0), kind(-0.0)):
        warm_up(fast, x, by)
        assert_same(replay(fast, x, by), divided(x, by))


def test_numbers_of_numpy_are_no_plain_numbers():
    fast = nimble.compile(lambda x, by: x * (2 if type(by) is float else 3))
    x = torch.ones(2)
    for by in (1.0, np.float64(1.0)):
        warm_up(fast, x, by)
    assert_same(fast(x, 1.0), x * 2)
    assert_same(fast(x, np.float64(1.0)), x * 3)


def test_a_dataclass_of_the_same_values_is_the_same_argument():
    fast = nimble.compile(scaled)
    x = torch.ones(3)
    for _ in range(2):
        fast(x, Config((2.0, 3)))
    assert_same(replay(fast, x, Config((2.0, 3))), x * 2)


def test_anomaly_mode_finds_what_it_finds_in_eager():
    layer = nn.Linear(4, 4)

    def step(x):
        layer.zero_grad()
        loss = (layer(x) * 0).sqrt().sum()
        loss.backward()
        return loss.detach()

    fast = nimble.compile(step)
    x = torch.randn(2, 4)
    for _ in range(4):
        fast(x)
    replay(fast, x)
    with torch.autograd.set_detect_anomaly(True), pytest.warns(), pytest.raises(RuntimeError, match="nan"):
        fast(x)
    replay(fast, x)


MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


class OfParameters(nn.Module):
    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.randn(4, 6))
        self.register_buffer("table", torch.randn(4, 6))

    def forward(self, x):
        left, right = self.position.chunk(2, 1)
        return (
            x.narrow(1, 0, 3) * self.position.narrow(1, 1, 3)
            + self.table.chunk(2, 1)[1]
            + left @ right.t() @ right
        )


VIEWS = {
    "chunk": lambda x: x.chunk(2, 1)[0] + 1,
    "narrow": lambda x: x.narrow(1, 0, 2) + 1,
    "split": lambda x: x.split(2, 1)[1] + 1,
    "tensor_split": lambda x: x.tensor_split(2, 1)[1] + 1,
    "chunk of a view": lambda x: x.t().chunk(2)[0].narrow(0, 0, 1) + 1,
    "written through": lambda x: x.clone().chunk(2, 1)[0].mul_(2),
    "returned": lambda x: x.chunk(2, 1),
}


def assert_replayed_in(mode, function) -> None:
    fast = nimble.compile(function)
    with mode():
        for _ in range(4):
            x = torch.randn(4, 6)
            assert_same(fast(x), function(x))
    assert fast.stats["replays"] == 2


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
@pytest.mark.parametrize("function", VIEWS.values(), ids=VIEWS.keys())
def test_views_of_arguments_in_every_mode(function, mode):
    assert_replayed_in(mode, function)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
def test_views_of_parameters_and_buffers_in_every_mode(mode):
    assert_replayed_in(mode, OfParameters())


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
@pytest.mark.parametrize("batch_first", [False, True])
def test_attention_between_three_tensors_in_every_mode(batch_first, mode):
    attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)

    def attended(query, key, value):
        return attention(query, key, value)[0]

    fast = nimble.compile(attended)
    with mode():
        for _ in range(4):
            tensors = [torch.randn(3, 4, 8) for _ in range(3)]
            assert_same(fast(*tensors), attended(*tensors))
    assert fast.stats["replays"] == 2


def around_sines(model, x):
    return model(x.sin()).sin()


@pytest.mark.parametrize("function", [lambda model, x: model(x), around_sines], ids=["alone", "among others"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_around_a_compiled_module_gives_eagers_gradients(function, reentrant):
    """It keeps track of what autograd keeps of a first run, and takes it from a second one in that order."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    fast = nimble.compile(model)

    def gradient(model, x):
        x = x.clone().requires_grad_()
        checkpoint(lambda x: function(model, x), x, use_reentrant=reentrant).sum().backward()
        return x.grad

    for _ in range(5):
        x = torch.randn(3, 4)
        assert_same(gradient(fast, x), gradient(model, x))


def test_hooks_on_saved_tensors_see_what_they_see_in_eager():
    layer = nn.Linear(4, 4)
    fast = nimble.compile(layer)

    def kept(layer, x):
        seen = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: seen.append(tuple(t.shape)) or t, lambda t: t
        ):
            layer(x).sum().backward()
        return seen

    x = torch.randn(2, 4, requires_grad=True)
    for _ in range(4):
        fast(x).sum().backward()
    assert fast.stats["replays"] > 0
    assert kept(fast, x) == kept(layer, x)


@dataclasses.dataclass
class Named:
    name: str
    layers: list

    def __hash__(self):
        return hash(self.name)


def test_a_dataclass_that_says_itself_what_makes_it_equal_is_taken_at_its_word():
    fast = nimble.compile(lambda x, named: x * len(named.layers))
    x = torch.randn(3)
    for _ in range(6):
        fast(x, Named("two", [1, 2]))
    assert fast.stats["recordings"] == 1 and fast.stats["replays"] > 0
