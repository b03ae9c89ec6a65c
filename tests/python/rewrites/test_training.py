"""Training with rewrites on: steps are not rewritten and keep eager's bits, and rewritten inference follows them."""

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
from training.steps import assert_trains_like_eager

import nimble

# Convolutions, batch norms and linear layers with activations: what is rewritten in inference.
SOME = ["mlp", "unet"]


def parameters():
    return [pytest.param(name, marks=[] if name in SOME else [pytest.mark.full]) for name in MODELS]


@pytest.mark.parametrize("model", parameters())
def test_thirty_steps_keep_eagers_bits(model):
    assert_trains_like_eager(partial(make, Case(model), "cpu"), rewrites="default")


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
