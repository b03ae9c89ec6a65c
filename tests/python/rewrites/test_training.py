"""Training with rewrites on: steps keep eager's bits, and rewritten inference follows them."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from nearness import assert_as_near_as_eager, in_double
from support import replay
from torch import nn
from torch.nn import functional as F
from training.cases import Case, make
from training.models import MODELS
from training.steps import assert_same_story, assert_trains_like_eager, plain
from training.workbench import gradients, momentum, step_without_labels, weights

import nimble

# Convolutions, batch norms and linear layers with activations: what is rewritten in inference.
SOME = ["mlp", "unet"]


def parameters():
    return [pytest.param(name, marks=[] if name in SOME else [pytest.mark.full]) for name in MODELS]


@pytest.mark.parametrize("model", parameters())
def test_thirty_steps_keep_eagers_bits(model):
    assert_trains_like_eager(partial(make, Case(model), "cpu"), rewrites="default")


class Residual(nn.Module):
    """What a rewrite could take together: sums and activations in place, as in torchvision's networks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        y = self.norm(self.first(x))
        y += x
        y = F.relu_(y)
        z = self.second(y)
        z += y
        return F.hardtanh_(z, 0, 6)


def test_a_step_of_training_on_the_cpu_is_not_rewritten():
    model = Residual()
    step = step_without_labels(model, momentum(model))
    compiled = nimble.compile(step, rewrites="default", tune=0)
    for _ in range(4):
        compiled(torch.randn(4, 8))
    assert compiled.stats["replays"] >= 1
    assert "rewrit" not in compiled.explain()


@pytest.mark.parametrize(
    "rewrites", ["default", ["fuse_pointwise"], ["fuse_foreach"], ["out_of_place"]], ids=str
)
def test_thirty_steps_of_a_compiled_module_keep_eagers_bits(rewrites):
    def story(compiler):
        model = Residual()
        fast = compiler(model, rewrites=rewrites) if compiler is not plain else model
        optimizer = momentum(model)
        seen = []
        for number in range(30):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(number))
            optimizer.zero_grad()
            loss = fast(x).square().mean()
            loss.backward()
            optimizer.step()
            seen += [loss, gradients(model)]
        return seen, weights(model)

    assert_same_story(story, replays=25)


def test_rewritten_inference_follows_a_compiled_training_step():
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    train = nimble.compile(step, rewrites="default", tune=0)
    infer = nimble.compile(model, rewrites="default", tune=0, strict=True)
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        infer.eval().prepare(x)
    assert "fold_batch_norm: 1 times" in infer.explain()
    for _ in range(6):
        model.train()
        train(torch.randn(4, 3, 8, 8), torch.randint(5, (4,)))
        model.eval()
        with torch.no_grad():
            assert_as_near_as_eager(replay(infer, x), model(x), in_double(model)(x.double()), least=1e-6)
    assert train.stats["replays"] >= 3
    assert infer.stats["recordings"] == 1
