"""For the tests of the command line: models that take no time."""

from __future__ import annotations

from pathlib import Path

import pytest

MODELS = """
import torch


def perceptron():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)), torch.randn(4, 8)


def folding():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)), torch.randn(1, 3, 9, 9)


def plain_function():
    return (lambda x, y: (x + y).relu()), (torch.randn(5), torch.randn(5))


def with_example_inputs():
    model = torch.nn.Linear(3, 3)
    model.example_inputs = (torch.randn(2, 3),)
    return model


def reads_a_value():
    return (lambda x: x * x.sum().item()), (torch.ones(3),)


def never_the_same():
    return (lambda x: x + 1e-3 * torch.rand_like(x)), (torch.ones(3),)


def no_inputs():
    return torch.nn.Linear(3, 3)
"""


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "small_models.py"
    path.write_text(MODELS)
    return path
