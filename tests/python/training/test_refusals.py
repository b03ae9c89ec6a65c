"""A training step that looks at data on the host cannot be replayed: it is refused by name and trains eagerly."""

from __future__ import annotations

import contextlib
import logging
import warnings

import pytest
import torch
from torch.nn import functional as F
from torch.optim import LBFGS, SGD, Adam
from training.steps import assert_same_story
from training.workbench import batches, momentum, small_model, weights

import nimble

READ = "aten::_local_scalar_dense"


def reads_the_loss(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    scaled = loss * (2.0 if loss.item() > 1 else 1.0)
    scaled.backward()
    optimizer.step()
    return loss.detach()


def returns_a_number(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def looks_for_nan(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    if torch.isnan(loss):
        return loss.detach()
    loss.backward()
    optimizer.step()
    return loss.detach()


def branches_on_data(model, optimizer, x, y):
    optimizer.zero_grad()
    logits = model(x)
    if x.sum() > 0:
        logits = logits * 2
    loss = F.cross_entropy(logits, y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def steps_by_the_size_of_the_gradient(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    if model[0].weight.grad.norm() > 0.05:
        optimizer.step()
    return loss.detach()


CASES = [
    reads_the_loss,
    returns_a_number,
    looks_for_nan,
    branches_on_data,
    steps_by_the_size_of_the_gradient,
]
every_case = pytest.mark.parametrize("body", CASES, ids=[case.__name__ for case in CASES])


def step_with(body):
    model = small_model()
    optimizer = momentum(model)
    return model, lambda x, y: body(model, optimizer, x, y)


@every_case
def test_a_strict_step_raises_with_the_operator_and_the_place(body):
    _, step = step_with(body)
    fast = nimble.compile(step, strict=True)
    with pytest.raises(nimble.RecordError, match=READ) as refusal:
        for batch in batches(4):
            fast(*batch)
    assert f"{__file__}:" in str(refusal.value)
    assert body.__name__ in str(refusal.value)


@every_case
def test_a_plain_step_warns_once_and_trains_eagerly(body):
    def story(compiler):
        model, step = step_with(body)
        step = compiler(step)
        return [step(*batch) for batch in batches(8)], weights(model)

    with pytest.warns(nimble.FallbackWarning, match=READ) as caught:
        compiler = assert_same_story(story, replays=0)
    assert len([warning for warning in caught if warning.category is nimble.FallbackWarning]) == 1
    (fast,) = compiler.made
    assert fast.stats["replays"] == 0
    assert READ in fast.explain()


def test_the_refusal_is_logged_too(caplog):
    _, step = step_with(looks_for_nan)
    fast = nimble.compile(step)
    with caplog.at_level(logging.WARNING, logger="nimble"), warnings.catch_warnings():
        warnings.simplefilter("ignore", nimble.FallbackWarning)
        for batch in batches(4):
            fast(*batch)
    assert READ in caplog.text


def test_a_scaler_without_a_fused_optimizer_is_refused_and_told_of_fused():
    def story(compiler):
        model = small_model()
        optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
        scaler = torch.amp.GradScaler("cpu", growth_interval=2)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        step = compiler(step)
        return [step(*batch) for batch in batches(8)], weights(model), scaler.state_dict()

    with pytest.warns(nimble.FallbackWarning, match="fused=True"):
        assert_same_story(story, replays=0)


def test_a_scaler_with_a_fused_optimizer_is_replayed():
    def story(compiler):
        model = small_model()
        optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
        scaler = torch.amp.GradScaler("cpu", growth_interval=4)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        step = compiler(step)
        seen = []
        for number, (x, y) in enumerate(batches(20)):
            # A batch that overflows: its step is left out and the scale is halved, without the host being asked.
            seen.append(step(x * float("inf") if number == 10 else x, y).nan_to_num())
        return seen, weights(model), scaler.state_dict()

    assert_same_story(story, replays=14)


def test_an_optimizer_that_reads_its_count_is_no_reason_to_refuse():
    """Adam asks for `step.item()`. Its step runs eagerly after the replay of everything before it."""

    def story(compiler):
        model = small_model()
        optimizer = Adam(model.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = compiler(step)
        return [step(*batch) for batch in batches(20)], weights(model), optimizer.state_dict()

    with warnings.catch_warnings():
        warnings.simplefilter("error", nimble.FallbackWarning)
        assert_same_story(story, replays=14)


def with_a_closure(optimizer_of, replays):
    def story(compiler):
        model = small_model()
        optimizer = optimizer_of(model.parameters())

        def step(x, y):
            def closure():
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss

            return optimizer.step(closure).detach()

        step = compiler(step)
        return [step(*batch) for batch in batches(10)], weights(model)

    assert_same_story(story, replays)


def test_a_closure_is_recorded_with_the_step():
    with_a_closure(lambda parameters: SGD(parameters, lr=0.1, momentum=0.9), replays=7)


@pytest.mark.parametrize("cls", [Adam, LBFGS])
def test_a_closure_is_refused_where_the_host_would_call_it_with_an_old_batch(cls):
    with pytest.warns(nimble.FallbackWarning, match=r"step\(\) with a closure"):
        with_a_closure(lambda parameters: cls(parameters, lr=0.01), replays=0)


def test_a_step_that_raises_where_the_function_catches_it_is_refused():
    def story(compiler):
        model = small_model()
        optimizer = Adam(model.parameters(), lr=0.01)
        step_is_bad = []
        optimizer.register_step_post_hook(lambda *_: 1 / (len(step_is_bad) - 1))

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            with contextlib.suppress(ZeroDivisionError):
                optimizer.step()
            return loss.detach() * 2

        step = compiler(step)
        seen = []
        for number, batch in enumerate(batches(8)):
            step_is_bad[:] = [None] * (number > 0)
            seen.append(step(*batch))
        return seen, weights(model)

    with pytest.warns(nimble.FallbackWarning, match="an exception in an optimizer's step"):
        assert_same_story(story, replays=0)


class TestSeeding:
    """In a function that is called with the very state that it sets, nothing shows in the numbers."""

    @pytest.mark.parametrize("seed", [torch.manual_seed, torch.random.manual_seed])
    def test_inside_the_function_is_refused(self, seed):
        def story(compiler):
            def noise(x):
                seed(3)
                return F.dropout(x, 0.5)

            noise = compiler(noise)
            seen = []
            for number in range(12):
                if number < 6:
                    torch.manual_seed(3)
                seen += [noise(torch.ones(16)), torch.rand(2)]
            return seen

        with torch.no_grad(), pytest.warns(nimble.FallbackWarning, match="seeded inside the function"):
            assert_same_story(story, replays=0)

    def test_without_a_draw_is_refused_too(self):
        def double(x):
            torch.manual_seed(3)
            return x * 2

        with pytest.raises(nimble.RecordError, match="seeded inside the function"):
            nimble.compile(double).prepare(torch.ones(2))

    def test_a_state_that_is_set_back_is_not(self):
        def story(compiler):
            def twice(x):
                with torch.random.fork_rng():
                    first = F.dropout(x, 0.5)
                return first, F.dropout(x, 0.5)

            twice = compiler(twice)
            return [twice(torch.ones(16)) for _ in range(8)]

        with torch.no_grad():
            assert_same_story(story, replays=5)
