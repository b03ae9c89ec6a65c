"""Rewritten networks are as near to the truth as eager's: against a float64 model, at most twice eager's error."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rewrites.random_networks import networks

import nimble


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a.double() - b.double()).abs().max().item()


def assert_as_near_as_eager(model: torch.nn.Module, x: torch.Tensor, fast) -> None:
    with torch.no_grad():
        reference = copy.deepcopy(model).double()(x.double())
        eager = model(x)
        ours = fast(x)
    least = 1e-6 * reference.abs().max().item()
    assert distance(ours, reference) <= 2 * distance(eager, reference) + least
    assert ours.stride() == eager.stride()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(model=networks(), size=st.sampled_from([5, 8]), batch=st.sampled_from([1, 3]))
def test_random_networks_are_as_near_to_the_truth_as_eagers(model, size, batch):
    fast = nimble.compile(model, rewrites="default", tune=0, strict=True)
    x = torch.randn(batch, 4, size, size)
    with torch.no_grad():
        fast.prepare(x)
    assert "dropped" not in fast.explain()
    assert_as_near_as_eager(model, torch.randn_like(x), fast)
    assert fast.stats["replays"] == 1


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(model=networks())
def test_random_networks_follow_their_weights(model):
    fast = nimble.compile(model, rewrites="default", tune=0, strict=True)
    x = torch.randn(1, 4, 6, 6)
    with torch.no_grad():
        fast.prepare(x)
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    assert_as_near_as_eager(model, x, fast)
    assert fast.stats["recordings"] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_compared_with_a_run_in_double_precision(dtype):
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
    model.to(dtype)
    fast = nimble.compile(model, rewrites="default", strict=True)
    x = torch.randn(2, 4, 9, 9, dtype=dtype)
    with torch.no_grad():
        fast.prepare(x)
        reference = copy.deepcopy(model).double()(x.double())
        error, eagers = distance(fast(x), reference), distance(model(x), reference)
    assert "fold_batch_norm: 1 times" in fast.explain()
    assert error <= 2 * eagers + 1e-5 * reference.abs().max().item()
