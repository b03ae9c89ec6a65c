"""Reports of training on a GPU: everything that measuring changes is put back."""

from __future__ import annotations

import pytest
import torch
from branching_models import Branches
from support import assert_same
from training.workbench import momentum, step_without_labels

import nimble

pytestmark = pytest.mark.gpu


def test_a_training_step_with_dropout_goes_on_as_eager_would(tmp_path):
    def train(compiled: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        layers = torch.nn.Linear(16, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4)
        model = torch.nn.Sequential(*layers).cuda()
        step = step_without_labels(model, momentum(model))
        run = nimble.compile(step) if compiled else step
        for number in range(8):
            run(torch.ones(8, 16, device="cuda") * number)
            if compiled and number == 5:
                run.report(tmp_path / "step.html")
        return list(model.state_dict().values())

    assert_same(train(compiled=True), train(compiled=False))


def test_a_module_that_trains_is_measured_forward_and_backward():
    model, x = Branches().cuda(), torch.randn(1, 4, 16, 16, device="cuda")
    fast = nimble.compile(model)
    for _ in range(4):
        fast(x).sum().backward()
    document = fast._nimble._document((), {})
    assert [part["name"] for part in document["parts"]] == ["forward", "backward"]
    assert any(task["module"].startswith("branches.5.") for task in document["parts"][1]["tasks"])
