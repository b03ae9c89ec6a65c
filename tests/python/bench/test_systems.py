"""Every system that runs on a CPU answers like eager, also where the model's results are a class of transformers."""

from __future__ import annotations

import pytest
import torch
from nimble.bench.check import compare, tensors_of
from nimble.bench.job import Job
from nimble.bench.measure import QUICK
from nimble.bench.systems import SYSTEMS
from nimble.bench.training import first_steps
from torch import nn

COMPILERS_THAT_TAKE_LONG = (
    "torch-compile",
    "torch-compile-max-autotune",
    "torch-compile-whole-step",
    "aot-inductor",
)


def small_bert() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    pytest.importorskip("transformers")
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=50
    )
    return BertModel(config).eval(), (torch.randint(50, (2, 12)),)


def small_network() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval(), (torch.randn(2, 3, 8, 8),)


def marked(names: list[str]) -> list:
    slow = [pytest.mark.full]
    return [pytest.param(name, marks=slow if name in COMPILERS_THAT_TAKE_LONG else []) for name in names]


ON_CPU = [system for system in SYSTEMS.values() if "cpu" in system.devices]


@pytest.mark.filterwarnings("ignore")  # that TorchScript is deprecated, and what its traces cannot see
@pytest.mark.parametrize("make", [small_network, small_bert])
@pytest.mark.parametrize("name", marked([system.name for system in ON_CPU if system.infer]))
def test_inference_gives_eagers_answer(name, make):
    system = SYSTEMS[name]
    for package in system.packages:
        pytest.importorskip(package)
    model, inputs = make()
    with torch.inference_mode():
        expected = tensors_of(model(*inputs))
        ready = system.infer(model, inputs)
        for _ in range(2):
            assert compare(ready.call(), expected, torch.float32, system.exact)


@pytest.mark.parametrize("name", marked([system.name for system in ON_CPU if system.train]))
def test_training_gives_eagers_losses(name):
    def losses(system: str) -> list[float]:
        job = Job("training/small_perceptron", 4, "fp32", "cpu", (system,), QUICK, profile=False)
        return first_steps(SYSTEMS[system], job).losses

    expected = losses("eager")
    assert len(set(expected)) == len(expected)
    if SYSTEMS[name].exact:
        assert losses(name) == expected
    else:
        assert losses(name) == pytest.approx(expected, rel=1e-4)
