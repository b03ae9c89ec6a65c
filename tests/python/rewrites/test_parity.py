"""Rewritten networks are as near to the truth as eager's: against a float64 model, at most twice eager's error."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nearness import (
    assert_as_near_as_eager,
    assert_usually_as_near_as_eager,
    distance,
    in_double,
)
from rewrites.random_networks import (
    linear_networks,
    networks,
    pointwise_programs,
    pooling_networks,
    transformers,
)
from support import replay

import nimble

MANY = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}
LAYOUTS = st.sampled_from([torch.contiguous_format, torch.channels_last])


def check(model: torch.nn.Module, x: torch.Tensor, fast) -> None:
    with torch.no_grad():
        assert_as_near_as_eager(replay(fast, x), model(x), in_double(model)(x.double()), least=1e-6)


def fired_on_fresh_input(model: torch.nn.Module, x: torch.Tensor, tune: float) -> Counter:
    """How often each rewrite did, where the answer to an input that nothing was recorded with is right."""
    fast = nimble.compile(model, rewrites="default", strict=True, tune=tune)
    with torch.no_grad():
        fast.prepare(x)
    explained = fast.explain()
    reasons = set(re.findall(r"dropped\W+(.*)", explained))
    # What is not measured cannot be too slow either.
    assert reasons <= ({"the program was slower with it"} if tune else set()), explained
    check(model, torch.randn_like(x), fast)
    return what_fired(explained)


def what_fired(explained: str) -> Counter:
    found = re.findall(r"^  rewrite +(\w+): (\d+) times", explained, re.MULTILINE)
    return Counter({name: int(times) for name, times in found})


def fired_on_many(examples: int, fired_on: Callable[..., Counter], **drawn: st.SearchStrategy) -> Counter:
    """How often each rewrite did on so many random networks and inputs."""
    fired: Counter = Counter()

    @settings(max_examples=examples, **MANY)
    @given(**drawn)
    def each(**example):
        fired.update(fired_on(**example))

    each()
    return fired


def test_random_networks_are_as_near_to_the_truth_as_eagers():
    def fired_on(model, size, batch):
        return fired_on_fresh_input(model, torch.randn(batch, 4, size, size), tune=0)

    fired = fired_on_many(
        60, fired_on, model=networks(), size=st.sampled_from([5, 8]), batch=st.sampled_from([1, 3])
    )
    assert fired.keys() >= {
        "out_of_place",
        "common_subexpressions",
        "norm_through_cat",
        "fold_batch_norm",
        "relu_through_cat",
        "fold_padding",
        "mkldnn_convolution",
        "scale_batch_norm",
        "pointwise_blocks",
        "weights_once",
    }, fired


HAS_BFLOAT16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()


@pytest.mark.skipif(not HAS_BFLOAT16, reason="no bfloat16 in oneDNN on this processor")
def test_random_networks_in_bfloat16_are_as_near_to_the_truth_as_eagers():
    def fired_on(model, size, batch):
        model.bfloat16()
        x = torch.randn(batch, 4, size, size).bfloat16()
        fast = nimble.compile(model, rewrites="default", tune=0)
        with torch.no_grad():
            fast.prepare(x)
            samples = []
            for _ in range(8):
                x = torch.randn_like(x)
                samples.append((replay(fast, x), model(x), in_double(model)(x.double())))
        assert_usually_as_near_as_eager(samples, least=0)
        return what_fired(fast.explain())

    fired = fired_on_many(
        30, fired_on, model=networks(), size=st.sampled_from([5, 8]), batch=st.sampled_from([1, 3])
    )
    assert fired.keys() >= {"fold_batch_norm", "mkldnn_convolution"}, fired


def test_random_pooling_is_as_near_to_the_truth_as_eagers():
    def fired_on(model, layout):
        return fired_on_fresh_input(model, torch.randn(2, 4, 9, 9).contiguous(memory_format=layout), tune=0)

    fired = fired_on_many(40, fired_on, model=pooling_networks(), layout=LAYOUTS)
    assert fired.keys() >= {"fold_batch_norm", "mkldnn_convolution", "pointwise_blocks"}, fired


# oneDNN's linear layers are taken only where they measure faster.
@pytest.mark.parametrize(
    ("tune", "expected"),
    [(0, {"out_of_place", "merge_linears", "pointwise_blocks", "weights_once"}), (0.01, set())],
    ids=["unmeasured", "measured"],
)
def test_random_linear_layers_are_as_near_to_the_truth_as_eagers(tune, expected):
    def fired_on(model, shape):
        return fired_on_fresh_input(model, torch.randn(shape), tune)

    shapes = st.sampled_from([(8,), (1, 8), (5, 8), (2, 3, 8)])
    fired = fired_on_many(40, fired_on, model=linear_networks(), shape=shapes)
    assert fired.keys() >= expected, fired


def test_random_transformers_are_as_near_to_the_truth_as_eagers():
    def fired_on(model, batch):
        return fired_on_fresh_input(model, torch.randn(batch, 5, 8), tune=0)

    fired = fired_on_many(20, fired_on, model=transformers(), batch=st.sampled_from([1, 3]))
    assert fired.keys() >= {"out_of_place", "pointwise_blocks"}, fired


def test_random_pointwise_functions_are_as_near_to_the_truth_as_eagers():
    def fired_on(model, layout):
        return fired_on_fresh_input(model, torch.randn(2, 6, 7, 7).contiguous(memory_format=layout), tune=0)

    fired = fired_on_many(40, fired_on, model=pointwise_programs(), layout=LAYOUTS)
    assert fired["pointwise_blocks"], fired


def test_a_chain_of_pointwise_functions_goes_over_memory_once():
    def mish(x, y):
        return x * torch.tanh(torch.log(1 + torch.exp(x))) + y

    fast = nimble.compile(mish, rewrites="default", strict=True, tune=0)
    x, y = torch.randn(3, 5000), torch.randn(3, 1)
    with torch.no_grad():
        fast.prepare(x, y)
        assert "pointwise_blocks: 1 times, 6 to 1 tasks" in fast.explain()
        torch.testing.assert_close(fast(y.expand(3, 5000).contiguous(), y), mish(y.expand(3, 5000), y))


@settings(max_examples=10, **MANY)
@given(model=networks())
def test_random_networks_follow_their_weights(model):
    fast = nimble.compile(model, rewrites="default", tune=0, strict=True)
    x = torch.randn(1, 4, 6, 6)
    with torch.no_grad():
        fast.prepare(x)
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    check(model, x, fast)
    assert fast.stats["recordings"] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_compared_with_a_run_in_double_precision(dtype):
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
    model.to(dtype)
    fast = nimble.compile(model, rewrites="default", strict=True)
    x = torch.randn(2, 4, 9, 9, dtype=dtype)
    with torch.no_grad():
        fast.prepare(x)
        reference = in_double(model)(x.double())
        error, eagers = distance(fast(x), reference), distance(model(x), reference)
    assert "fold_batch_norm: 1 times" in fast.explain()
    assert error <= 2 * eagers + 1e-5 * reference.abs().max().item()
