"""Steps of training that are rewritten: generated kernels do some of the pointwise work, with eager's bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F
from training.optimizers import OPTIMIZERS
from training.steps import Training, assert_same_story, assert_same_trace, plain, train
from training.workbench import gradients, momentum, ordinary_loop, step_of, step_without_labels, weights

import nimble

pytestmark = pytest.mark.gpu

STEPS = 10
SIZE, CLASSES, BATCH = 32, 10, 8


class Block(nn.Module):
    """Attention and two linear layers, each added to what it was given, with an activation behind the second."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = nn.MultiheadAttention(width, 4, dropout=dropout, batch_first=True)
        self.hidden, self.out = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x)
        x = x + self.dropout(self.attention(y, y, y, need_weights=False)[0])
        y = self.out(F.relu(self.hidden(self.norms[1](x))))
        return F.relu(x + y)


class Transformer(nn.Module):
    """Over patches of a picture."""

    def __init__(self, width: int = 64, patch: int = 8, dropout: float = 0.1) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(torch.randn((SIZE // patch) ** 2, width) * 0.1)
        self.blocks = nn.Sequential(Block(width, dropout), Block(width, dropout))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.blocks(tokens).mean(1))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": lambda: torchvision.models.resnet18(num_classes=CLASSES),
    "mobilenet_v2": lambda: torchvision.models.mobilenet_v2(num_classes=CLASSES),
    "transformer": Transformer,
}
# Of each network at least: ResNet-18 has a sum before an activation in each of eight blocks, on the way forward and
# mostly on the way back; MobileNetV2 a mean before one; the transformer's blocks end like ResNet's.
LEAST = {"resnet18": 12, "mobilenet_v2": 1, "transformer": 4}


def batch(number: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(number)
    x = torch.randn(BATCH, 3, SIZE, SIZE, generator=source)
    return x.cuda(), torch.randint(CLASSES, (BATCH,), generator=source).cuda()


def make(name: str, precision: torch.dtype, memory_format: torch.memory_format) -> Training:
    model = MODELS[name]().cuda().to(memory_format=memory_format)
    optimizer = momentum(model, lr=0.01)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cuda", precision, enabled=precision != torch.float32):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, batch, {"model": model, "optimizer": optimizer})


def fired(compiled: Any, rewrite: str = "fuse_pointwise") -> int:
    """How often a rewrite did something, in all parts."""
    return sum(int(times) for times in re.findall(rf"{rewrite}: (\d+) times", compiled.explain()))


@pytest.mark.parametrize("tune", [0, 0.05], ids=["unmeasured", "measured"])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_ten_steps_keep_eagers_bits(name, precision, tune):
    build = partial(make, name, precision, torch.contiguous_format)
    expected = train(build, plain, STEPS)
    actual = train(build, partial(nimble.compile, rewrites="default", tune=tune), STEPS)
    assert_same_trace(actual, expected)
    explained = actual.step.explain()
    assert actual.step.stats["replays"] >= STEPS - 4, explained
    assert "dropped" not in explained
    # Where it is measured, some may stay as they were.
    assert fired(actual.step) >= (LEAST[name] if tune == 0 else 0), explained


def test_ten_steps_with_channels_last():
    build = partial(make, "resnet18", torch.float32, torch.channels_last)
    expected = train(build, plain, STEPS)
    actual = train(build, partial(nimble.compile, rewrites="default", tune=0), STEPS)
    assert_same_trace(actual, expected)
    assert fired(actual.step) >= 1, actual.step.explain()


# A module whose attention drops is refused.
@pytest.mark.parametrize(
    "build", [MODELS["resnet18"], MODELS["mobilenet_v2"], partial(Transformer, dropout=0.0)], ids=MODELS
)
def test_a_compiled_module_in_an_ordinary_loop(build):
    def story(compiler):
        model = build().cuda()
        fast = model if compiler is plain else compiler(model, rewrites="default", tune=0)
        optimizer = momentum(model, lr=0.01)
        return ordinary_loop(model, fast, optimizer, map(batch, range(STEPS))), weights(model)

    (compiled,) = assert_same_story(story, replays=STEPS - 4).made
    assert fired(compiled) >= 1, compiled.explain()


def test_an_optimizer_on_the_host_between_two_parts():
    def story(compiler):
        model = MODELS["resnet18"]().cuda()
        step = step_of(model, torch.optim.Adam(model.parameters(), lr=0.001))
        run = step if compiler is plain else compiler(step, rewrites="default", tune=0)
        return [run(*batch(number)) for number in range(STEPS)], gradients(model), weights(model)

    (compiled,) = assert_same_story(story, replays=STEPS - 5).made
    assert "on the host" in compiled.explain()
    assert fired(compiled) >= 12, compiled.explain()


# By optimizer: how many kernels are left of its calls, at least.
KERNELS = {
    "momentum_foreach": 1,
    "nesterov_foreach": 1,
    "decay_foreach": 1,
    # The update, and the correction of the second moment. That of the first divides by a number, and has too few
    # numbers for a trial to tell that nothing rounds otherwise.
    "adam_foreach_capturable": 2,
    "adamw_foreach_capturable": 2,
    "rmsprop_foreach_capturable": 1,
}


def with_optimizer(name: str, dtype: torch.dtype = torch.float32, width: int = 64) -> Training:
    model = nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    model = nn.Sequential(model, nn.Flatten(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES))
    model = model.cuda().to(dtype)
    optimizer = OPTIMIZERS[name].make(model.parameters())

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(dtype)), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, batch, {"model": model, "optimizer": optimizer})


@pytest.mark.parametrize("tune", [0, 0.05], ids=["unmeasured", "measured"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_an_optimizers_calls_become_few_kernels_with_eagers_bits(name, dtype, tune):
    build = partial(with_optimizer, name, dtype)
    expected = train(build, plain, STEPS)
    actual = train(build, partial(nimble.compile, rewrites="default", tune=tune), STEPS)
    assert_same_trace(actual, expected)
    explained = actual.step.explain()
    assert actual.step.stats["replays"] >= STEPS - 4, explained
    assert "dropped" not in explained
    if tune == 0 and dtype == torch.float32:
        assert fired(actual.step, "fuse_foreach") >= KERNELS[name], explained


@pytest.mark.parametrize("name", ["decay_foreach", "adam_foreach_capturable"])
def test_each_stretch_of_a_large_model_is_one_kernel(name):
    """Three layers of 64 MiB, which are updated as soon as their gradients are there."""
    data = [torch.randn(8, 4096, device="cuda") for _ in range(STEPS)]

    def story(compiler):
        torch.manual_seed(1)
        model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(3))).cuda()
        optimizer = OPTIMIZERS[name].make(model.parameters())
        step = step_without_labels(model, optimizer)
        run = step if compiler is plain else compiler(step, rewrites="default", tune=0)
        return [run(x) for x in data], weights(model), optimizer.state_dict()

    (compiled,) = assert_same_story(story, replays=STEPS - 4).made
    assert fired(compiled, "fuse_foreach") >= 3, compiled.explain()
