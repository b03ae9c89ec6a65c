"""What a report knows: measured on real replays, with names from the user's code, and nothing changed by it."""

from __future__ import annotations

import copy
import gc
import json

import pytest
import torch
from support import assert_same
from torch import nn
from torch.nn import functional as F

import nimble


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.conv(x)) + 1


def ready(function, *inputs, calls: int = 3, **options):
    fast = nimble.compile(function, tune=0.01, **options)
    for _ in range(calls):
        fast(*inputs)
    return fast


def document_of(fast, *args) -> dict:
    compiled = getattr(fast, "_nimble", fast)
    return compiled._document(args, {})


def module_of(document: dict, part: int = 0) -> dict[str, str]:
    return {task["name"]: task["module"] for task in document["parts"][part]["tasks"]}


def small_training_step(optimizer_class=torch.optim.SGD, **options):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    optimizer = optimizer_class(model.parameters(), lr=0.1, **options)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


def test_every_task_has_its_stream_a_plan_and_a_measurement():
    with torch.inference_mode():
        fast = ready(nn.Sequential(Block(), Block()), torch.randn(1, 3, 8, 8), streams=2)
        [part] = document_of(fast)["parts"]
    assert len(part["tasks"]) == 6
    for task in part["tasks"]:
        assert 0 <= task["stream"] < part["streams"]
        for clock in ("planned", "measured"):
            assert 0 <= task[clock][0] < task[clock][1]
    assert part["replay"] > 0 and part["replays"] >= 5
    assert part["critical_path_length"] <= part["planned_total"]
    assert part["edges"] == [[i, i + 1] for i in range(5)]  # a chain
    assert part["critical_path"] == list(range(6))
    assert part["critical_path_length"] == part["work"] == sum(task["cost"] for task in part["tasks"])
    assert part["launch"] == 0  # that is a GPU's
    assert part["clock"] == 0  # a CPU's own costs nothing worth taking off


def test_tasks_are_named_after_the_modules_that_made_them():
    fast = ready(nn.Sequential(Block(), Block()), torch.randn(1, 3, 8, 8))
    assert module_of(document_of(fast)) == {
        "convolution#0": "0.conv",
        "relu#1": "0.act",
        "add#2": "0",
        "convolution#3": "1.conv",
        "relu#4": "1.act",
        "add#5": "1",
    }


def test_tasks_of_the_backward_pass_are_named_after_the_modules_of_the_forward_pass():
    _, _, step = small_training_step()
    fast = ready(step, torch.randn(6, 4), torch.randn(6, 2), calls=5)
    tasks = document_of(fast)["parts"][0]["tasks"]
    backward = {(task["node"], task["module"]) for task in tasks if task["node"]}
    assert {("NativeBatchNormBackward0", "1"), ("AddmmBackward0", "0"), ("AddmmBackward0", "3")} <= backward
    assert {task["module"] for task in tasks if task["name"].startswith("_foreach") or task is tasks[-1]} == {
        "optimizer"
    }


def test_a_function_that_uses_two_models_tells_them_apart():
    encoder, decoder = nn.Sequential(nn.Linear(3, 3)), Block()
    fast = ready(lambda x: decoder(encoder(x).view(1, 3, 3, 3)), torch.randn(9, 3))
    assert set(module_of(document_of(fast)).values()) == {
        "Sequential.0",
        "Block.conv",
        "Block.act",
        "Block",
    }


def test_a_module_that_is_made_on_the_way_is_named_by_its_class():
    fast = ready(lambda x: nn.ReLU()(x) + 1, torch.randn(3))
    assert module_of(document_of(fast)) == {"relu#0": "ReLU", "add#1": ""}


def test_what_was_folded_is_told():
    fast = ready(lambda x: x + torch.arange(4).float().mul(2), torch.randn(4))
    [signature] = document_of(fast)["signatures"]
    folded = [note["subject"].split("#")[0] for note in signature["notes"] if note["what"] == "folded"]
    assert "arange" in folded and "mul" in folded
    assert all("test_document.py" in note["where"] for note in signature["notes"])


def test_what_was_rewritten_is_told():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval(), torch.randn(1, 3, 9, 9)
    with torch.no_grad():
        fast = nimble.compile(model, rewrites=["fold_batch_norm", "weights_once"]).prepare(x)
        [signature] = document_of(fast)["signatures"]
    rewritten = {note["how"]: note["subject"] for note in signature["notes"] if note["what"] == "rewritten"}
    assert "native_batch_norm#1 into convolution#0" in rewritten["fold_batch_norm"]


def test_the_memory_plan_says_where_each_buffer_lies_and_who_uses_it():
    with torch.inference_mode():
        fast = ready(nn.Sequential(Block(), Block(), Block()), torch.randn(1, 3, 8, 8))
        [part] = document_of(fast)["parts"]
    memory = part["memory"]
    assert memory["buffers"]
    for buffer in memory["buffers"]:
        assert buffer["offset"] >= 0 and buffer["offset"] + buffer["bytes"] <= memory["arena"]
        assert all(0 <= use < len(part["tasks"]) for use in buffer["uses"])
    assert memory["allocated"] == sum(buffer["bytes"] for buffer in memory["buffers"]) > memory["arena"]


def test_eager_is_timed_and_watched_beside_it():
    fast = ready(Block(), torch.randn(1, 3, 8, 8))
    eager = document_of(fast)["eager"]
    assert eager["run"] > 0 and eager["runs"] >= 5
    [lane] = eager["lanes"]
    assert {"aten::conv2d", "aten::relu", "aten::add"} <= {span[0] for span in lane["spans"]}
    for before, after in zip(lane["spans"], lane["spans"][1:], strict=False):
        assert before[1] <= before[2] <= after[1] <= eager["profiled"]


def test_a_training_step_is_as_it_was_after_a_report(tmp_path):
    model, optimizer, step = small_training_step(momentum=0.9)
    x, y = torch.randn(6, 4), torch.randn(6, 2)
    fast = ready(step, x, y, calls=5)

    def state():
        momentum = [optimizer.state[p]["momentum_buffer"] for p in model.parameters()]
        gradients = [p.grad for p in model.parameters()]
        return [
            t.clone() for t in [*model.state_dict().values(), *momentum, *gradients, torch.get_rng_state()]
        ]

    before, same_gradients = state(), [id(p.grad) for p in model.parameters()]
    fast.report(tmp_path / "step.html")
    assert_same(state(), before)
    assert [id(p.grad) for p in model.parameters()] == same_gradients
    replays = fast.stats["replays"]
    fast(x, y)
    assert fast.stats["replays"] == replays + 1


def test_after_a_report_training_goes_on_as_eager_would(tmp_path):
    def train(compiled: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model, _, step = small_training_step(momentum=0.9)
        batches = [(torch.randn(6, 4), torch.randn(6, 2)) for _ in range(9)]
        run = nimble.compile(step, tune=0.01) if compiled else step
        for number, batch in enumerate(batches):
            run(*batch)
            if compiled and number == 6:
                run.report(tmp_path / "step.html")
        return list(model.state_dict().values())

    assert_same(train(compiled=True), train(compiled=False))


def test_a_step_that_the_host_takes_part_in_is_not_run_eagerly():
    model, optimizer, step = small_training_step(torch.optim.Adam)
    x, y = torch.randn(6, 4), torch.randn(6, 2)
    fast = ready(step, x, y, calls=6)
    before = [p.detach().clone() for p in model.parameters()]
    count = next(iter(optimizer.state.values()))["step"].item()
    document = document_of(fast)
    assert "Adam" in document["parts"][0]["then_on_host"]
    assert "host" in document["eager"]["left_out"]
    assert_same([p.detach() for p in model.parameters()], before)
    assert next(iter(optimizer.state.values()))["step"].item() == count


def test_a_module_that_trains_has_a_forward_and_a_backward_part():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.randn(2, 4)
    fast = nimble.compile(model, tune=0.01)
    for _ in range(3):
        fast(x).sum().backward()
    before = [p.grad.clone() for p in model.parameters()]
    document = document_of(fast)
    assert [part["name"] for part in document["parts"]] == ["forward", "backward"]
    assert "threshold_backward#0" in module_of(document, part=1)
    assert_same([p.grad for p in model.parameters()], before)


def test_statistics_and_attributes_of_modules_are_as_they_were():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)
            self.last = None

        def forward(self, x):
            self.last = self.norm(x)
            return self.last * 2

    model, x = Counting(), torch.randn(6, 4)
    fast = nimble.compile(model, tune=0.01)
    for _ in range(4):
        fast(x).sum().backward()
    before, last = copy.deepcopy(model.state_dict()), (model.last, model.last.detach().clone())
    document = document_of(fast)
    assert [part["name"] for part in document["parts"]] == ["forward", "backward"]
    assert_same(model.state_dict(), before)
    assert model.last is last[0]
    assert_same(model.last.detach(), last[1])


def test_while_a_backward_pass_is_still_to_come_nothing_is_measured(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.randn(2, 4)
    fast = nimble.compile(model, tune=0.01)
    for _ in range(3):
        fast(x).sum().backward()
    pending = fast(x)
    with pytest.raises(nimble.Error, match="backward pass of this function is still to come"):
        fast.report(tmp_path / "r.html")
    pending.sum().backward()
    fast.report(tmp_path / "r.html")


def test_arguments_that_are_gone_are_made_up():
    table = nn.Embedding(5, 3)
    fast = nimble.compile(lambda ids, x: table(ids) + x, tune=0.01)
    with torch.no_grad():
        for _ in range(3):
            fast(torch.tensor([4, 1]), torch.randn(2, 3))
    gc.collect()
    [part] = document_of(fast)["parts"]
    assert [task["name"] for task in part["tasks"]] == ["embedding#0", "add#1"]


def test_a_report_is_made_under_the_modes_of_the_recording():
    x = torch.randn(1, 3, 8, 8)
    with torch.inference_mode():
        fast = ready(Block(), x)
    assert torch.is_grad_enabled()
    [part] = document_of(fast)["parts"]  # those of inference_mode
    [given] = document_of(fast, x)["parts"]
    assert len(part["tasks"]) == len(given["tasks"]) == 3


def test_a_report_is_made_under_the_autocast_of_the_recording():
    x = torch.randn(2, 4)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        fast = ready(nn.Linear(4, 4), x)
    [part] = document_of(fast)["parts"]
    assert "bf16[2, 4]" in part["tasks"][-1]["outputs"]
    assert not torch.is_autocast_enabled("cpu")


def test_arguments_choose_the_signature():
    block = Block()
    small, large = torch.randn(1, 3, 8, 8), torch.randn(1, 3, 16, 16)
    with torch.no_grad():
        fast = ready(block, small)
        for _ in range(3):
            fast(large)
        document = document_of(fast, small)
    shown = [s["signature"] for s in document["signatures"] if s["shown"]]
    assert shown == ["(f32[1, 3, 8, 8])"]


def test_without_a_recording_there_is_nothing_to_report(tmp_path):
    fast = nimble.compile(torch.sin)
    with pytest.raises(nimble.Error, match="nothing is recorded yet"):
        fast.report(tmp_path / "r.html")
    with pytest.raises(nimble.Error, match="nothing is recorded yet"):
        fast.trace(tmp_path / "t.json")


def test_a_document_is_plain_json():
    fast = ready(Block(), torch.randn(1, 3, 8, 8))
    document = document_of(fast)
    assert json.loads(json.dumps(document)) == document
