"""`explain()` says where a step of training stands, and what is left to the host."""

from __future__ import annotations

import pytest
from torch.optim import Adam
from training.optimizers import CountingSGD
from training.workbench import batches, momentum, small_model, step_of

import nimble


def labels(compiled) -> list[str]:
    """What each line is about, after the signature."""
    signature, *lines = compiled.explain().rstrip().splitlines()
    assert signature.startswith("(f32[5, 4]")
    assert signature.endswith(" with grad")
    return [line[2:15].rstrip() for line in lines]


def test_in_each_state_of_a_step():
    model = small_model()
    step = nimble.compile(step_of(model, momentum(model)))
    assert step.explain().startswith("nothing recorded yet")
    first, second, third, fourth = batches(4)
    step(*first)
    assert labels(step) == ["set up"]
    assert "outlives the function" in step.explain()
    assert "the next call is recorded again" in step.explain()
    step(*second)
    assert labels(step) == ["recorded", "next"]
    assert "the next call is run both ways and compared" in step.explain()
    step(*third)
    assert labels(step) == ["recorded", "schedule", "memory", "tried", "replayed"]
    tasks = step.stats["tasks"]
    assert tasks > 10
    assert f"recorded       {tasks} tasks in" in step.explain()
    assert f"schedule       {tasks} tasks, {step.stats['streams']} stream" in step.explain()
    assert "replayed       1 time\n" in step.explain()
    step(*fourth)
    assert "replayed       2 times\n" in step.explain()


def test_of_an_optimizer_that_is_left_to_the_host(caplog):
    model = small_model()
    step = nimble.compile(step_of(model, Adam(model.parameters())))
    with caplog.at_level("INFO", logger="nimble"):
        for batch in batches(6):
            step(*batch)
    assert labels(step) == ["recorded", "schedule", "memory", "tried", "on the host", "replayed"]
    assert "on the host    Adam.step() runs eagerly here: it computes on the host\n" in step.explain()
    (said,) = [message for message in caplog.messages if "Adam.step()" in message]
    assert "it reads a tensor's value on the host" in said
    assert "use fused=True or capturable=True and a learning rate that is a tensor" in said


def test_of_an_optimizer_for_which_there_is_no_fused_form_none_is_advised(caplog):
    model = small_model()
    step = nimble.compile(step_of(model, CountingSGD(model.parameters())))
    with caplog.at_level("INFO", logger="nimble"):
        for batch in batches(8):
            step(*batch)
    assert "on the host    CountingSGD.step() runs eagerly here" in step.explain()
    (said,) = [message for message in caplog.messages if "CountingSGD.step()" in message]
    assert "To keep it in the schedule, use a learning rate that is a tensor" in said
    assert "fused" not in said


def test_of_a_step_that_is_refused():
    model = small_model()
    train = step_of(model, momentum(model))
    step = nimble.compile(lambda x, y: train(x, y).item())
    with pytest.warns(nimble.FallbackWarning):
        for batch in batches(4):
            step(*batch)
    assert labels(step) == ["runs eagerly"]
    assert "aten::_local_scalar_dense cannot be replayed" in step.explain()


def test_of_a_module_within_a_loop():
    model = small_model()
    fast = nimble.compile(model)
    for x, _ in batches(4):
        fast(x).sum().backward()
    of_a_part = ["schedule", "memory", "tried"]
    assert labels(fast) == ["recorded", *of_a_part, "backward", *of_a_part, "replayed"]
    assert "backward       when autograd asks for it\n" in fast.explain()
