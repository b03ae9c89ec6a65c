"""What was derived from weights follows them, however they change; and nobody sees that it was derived."""

from __future__ import annotations

import copy

import pytest
import torch
from rewrites.random_networks import with_statistics
from torch import nn

import nimble


@pytest.fixture
def model() -> nn.Module:
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 4, 1),
        nn.BatchNorm2d(4),
    ]
    return with_statistics(nn.Sequential(*layers), seed=1)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8)


@pytest.fixture
def fast(model, x):
    compiled = nimble.compile(model, rewrites="default", strict=True)
    with torch.no_grad():
        compiled.prepare(x)
    assert "fold_batch_norm: 2 times" in compiled.explain()
    return compiled


def assert_follows(model, fast, x, recordings: int = 1) -> None:
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    assert fast.stats["recordings"] == recordings


def test_an_optimizers_step(model, fast, x):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    assert_follows(model, fast, x)


def test_load_state_dict(model, fast, x):
    other = with_statistics(copy.deepcopy(model), seed=2)
    with torch.no_grad():
        other[0].weight.normal_()
    model.load_state_dict(other.state_dict())
    assert_follows(model, fast, x)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), other(x), rtol=1e-4, atol=1e-4)


def test_a_copy_into_a_slice(model, fast, x):
    with torch.no_grad():
        model[3].weight[1:2].copy_(torch.ones(1, 8, 1, 1))
    assert_follows(model, fast, x)


def test_statistics_that_a_batch_norm_updates_in_training(model, fast, x):
    before = model[1].running_mean.clone()
    model.train()
    with torch.no_grad():
        model(3 * torch.randn(4, 3, 8, 8) + 1)
    model.eval()
    assert not torch.equal(before, model[1].running_mean)
    assert_follows(model, fast, x)


def test_a_weight_that_the_function_reads_as_data(x):
    layer = nn.Conv2d(3, 8, 3)
    model = with_statistics(nn.Sequential(nn.BatchNorm2d(8)), seed=1)
    holder = nn.ModuleList([layer, model])

    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.holder = holder

        def forward(self, x):
            return self.holder[1](torch.nn.functional.conv2d(x, self.holder[0].weight.data))

    reads = Reads().eval()
    fast = nimble.compile(reads, rewrites="default", strict=True)
    with torch.no_grad():
        fast.prepare(x)
        layer.weight.mul_(3)
    assert_follows(reads, fast, x)


class LearnedConstant(nn.Module):
    """What a layer makes of a weight is a weight itself, and so is what its own weights were packed into."""

    def __init__(self, layer: nn.Module, *sizes: int):
        super().__init__()
        self.constant, self.layer = nn.Parameter(torch.randn(sizes)), layer

    def forward(self, x):
        return torch.relu(self.layer(self.constant)).sum() * x


@pytest.mark.parametrize(
    "learned",
    [
        LearnedConstant(nn.Conv2d(64, 64, 3, padding=1), 1, 64, 16, 16),
        LearnedConstant(nn.Linear(256, 256), 128, 256),
    ],
    ids=["convolution", "linear layer"],
)
def test_layers_of_weights_alone(learned, x):
    fast = nimble.compile(learned, rewrites="default", strict=True)
    with torch.no_grad():
        fast.prepare(x)
        for tensor in (learned.layer.weight, learned.constant):
            tensor.mul_(-2)
            assert_follows(learned, fast, x)


def test_a_weight_in_other_memory_is_recorded_anew(model, x):
    fast = nimble.compile(model, rewrites="default")
    with torch.no_grad():
        fast.prepare(x)
        model[0].weight.data = torch.randn(8, 3, 3, 3)
        for _ in range(3):
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    assert fast.stats["recordings"] == 2


def test_nothing_changed_means_nothing_is_derived_again(model, fast, x):
    with torch.no_grad():
        first = fast(x)
        assert torch.equal(first, fast(x))


def test_the_state_dict_is_the_users_own(model, fast):
    before = {name: (id(tensor), tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}
    after = fast.state_dict(keep_vars=True)
    assert list(after) == list(before)
    for name, tensor in after.items():
        assert id(tensor) == before[name][0] and torch.equal(tensor, before[name][1])


def test_weights_made_under_inference_mode_are_left_alone(x):
    with torch.inference_mode():
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
        fast = nimble.compile(model, rewrites="default", strict=True).prepare(x)
        assert "fold_batch_norm" not in fast.explain()
        model[0].weight.mul_(2)
        assert torch.equal(fast(x), model(x))
