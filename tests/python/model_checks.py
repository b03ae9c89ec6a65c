"""How a model of model_lists.py is built and tried, on any device."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from model_lists import ALL, ModelCase
from nimble.bench.workloads.random_weights import enliven
from support import on_device


def parameters(cases: list[ModelCase]):
    return [pytest.param(case, id=str(case), marks=[pytest.mark.full] if case.full else []) for case in cases]


def grad_mode(case: ModelCase) -> AbstractContextManager:
    """Both ways to go without autograd are used, each by half of the models."""
    return torch.inference_mode() if ALL.index(case) % 2 else torch.no_grad()


def fresh_inputs(case: ModelCase, device: str = "cpu") -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = case.inputs()
    return on_device((args, dict(kwargs)), device)


def build(case: ModelCase, device: str = "cpu") -> torch.nn.Module:
    pytest.importorskip(case.library)
    model = case.build().eval().to(device)
    args, kwargs = fresh_inputs(case, device)
    enliven(model, *args, **kwargs)
    return model
