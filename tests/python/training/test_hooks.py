"""Hooks that run Python in the backward pass: their effects happen at every step, or the step says so. Never frozen."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from training.steps import assert_same_story
from training.workbench import batches, gradients, momentum, small_model, step_of, weights

STEPS = 10


def on_a_parameter(model, optimizer, note):
    model[0].weight.register_hook(lambda grad: note())


def after_accumulation(model, optimizer, note):
    model[0].weight.register_post_accumulate_grad_hook(lambda parameter: note())


def on_a_module(model, optimizer, note):
    model[2].register_full_backward_hook(lambda module, grad_in, grad_out: note())


def before_a_module(model, optimizer, note):
    model[2].register_full_backward_pre_hook(lambda module, grad_out: note())


def before_the_optimizer(model, optimizer, note):
    optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: note())


def after_the_optimizer(model, optimizer, note):
    optimizer.register_step_post_hook(lambda optimizer, args, kwargs: note())


HOOKS = [
    on_a_parameter,
    after_accumulation,
    on_a_module,
    before_a_module,
    before_the_optimizer,
    after_the_optimizer,
]


@pytest.mark.filterwarnings("ignore::nimble.FallbackWarning")
@pytest.mark.parametrize("register", HOOKS, ids=[hook.__name__ for hook in HOOKS])
def test_what_a_hook_counts_is_eagers_count(register):
    def story(compiler):
        model = small_model()
        optimizer = momentum(model)
        calls, counts = [], []
        register(model, optimizer, lambda: calls.append(None))
        step = compiler(step_of(model, optimizer))
        for batch in batches(STEPS):
            step(*batch)
            counts.append(len(calls))
        assert counts[-1] >= STEPS
        return counts, weights(model), gradients(model)

    assert_same_story(story, replays=0)


@pytest.mark.filterwarnings("ignore::nimble.FallbackWarning")
def test_a_hook_on_an_activation_counts_too():
    def story(compiler):
        model = small_model()
        optimizer = momentum(model)
        calls = []

        def step(x, y):
            optimizer.zero_grad()
            hidden = model[0](x)
            hidden.register_hook(lambda grad: calls.append(None))
            loss = F.cross_entropy(model[2](hidden.tanh()), y)
            loss.backward()
            optimizer.step()
            return loss

        step = compiler(step)
        for batch in batches(STEPS):
            step(*batch)
        assert len(calls) == STEPS
        return weights(model)

    assert_same_story(story, replays=0)


@pytest.mark.filterwarnings("ignore::nimble.FallbackWarning")
def test_a_hook_that_is_added_late_counts_from_then_on():
    def story(compiler):
        model = small_model()
        step = compiler(step_of(model, momentum(model)))
        calls = []
        for number, batch in enumerate(batches(12)):
            if number == 6:
                model[0].weight.register_hook(lambda grad: calls.append(None))
            step(*batch)
        assert len(calls) == 6
        return weights(model)

    assert_same_story(story, replays=2)


@pytest.mark.filterwarnings("ignore::nimble.FallbackWarning")
def test_what_a_hook_makes_of_a_gradient_counts():
    def story(compiler):
        model = small_model()
        model[0].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01) * 2)
        step = compiler(step_of(model, momentum(model)))
        seen = []
        for batch in batches(STEPS):
            step(*batch)
            seen += [weights(model), gradients(model)]
        return seen

    assert_same_story(story, replays=0)


@pytest.mark.filterwarnings("ignore::nimble.FallbackWarning")
def test_an_optimizer_that_steps_within_the_backward_pass():
    """The optimizer in a hook: gradients are used up one by one and never all there."""

    def story(compiler):
        model = small_model()
        optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

        def update(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(update)

        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss.detach()

        step = compiler(step)
        return [step(*batch) for batch in batches(STEPS)], weights(model), gradients(model)

    assert_same_story(story, replays=0)
