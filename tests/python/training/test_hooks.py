"""Hooks that run Python in the backward pass: their effects happen at every step, or the step says so. Never frozen."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.nn.modules.module import register_module_full_backward_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from training.steps import assert_same_story
from training.workbench import batches, gradients, momentum, small_model, step_of, weights

STEPS = 10


def on_a_parameter(model, optimizer, note):
    return model[0].weight.register_hook(lambda grad: note())


def after_accumulation(model, optimizer, note):
    return model[0].weight.register_post_accumulate_grad_hook(lambda parameter: note())


def on_a_module(model, optimizer, note):
    return model[2].register_full_backward_hook(lambda module, grad_in, grad_out: note())


def before_a_module(model, optimizer, note):
    return model[2].register_full_backward_pre_hook(lambda module, grad_out: note())


def before_the_optimizer(model, optimizer, note):
    return optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: note())


def after_the_optimizer(model, optimizer, note):
    return optimizer.register_step_post_hook(lambda optimizer, args, kwargs: note())


def before_every_optimizer(model, optimizer, note):
    return register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: note())


def after_every_optimizer(model, optimizer, note):
    return register_optimizer_step_post_hook(lambda optimizer, args, kwargs: note())


def on_every_module(model, optimizer, note):
    return register_module_full_backward_hook(lambda module, grad_in, grad_out: note())


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
@pytest.mark.parametrize("register", HOOKS, ids=[hook.__name__ for hook in HOOKS])
def test_a_hook_that_is_added_late_counts_from_then_on(register):
    def story(compiler):
        model = small_model()
        optimizer = momentum(model)
        step = compiler(step_of(model, optimizer))
        calls, counts = [], []
        for number, batch in enumerate(batches(12)):
            if number == 6:
                register(model, optimizer, lambda: calls.append(None))
            step(*batch)
            counts.append(len(calls))
        assert counts == [max(0, number - 5) for number in range(12)]
        return weights(model)

    assert_same_story(story, replays=2)


AROUND_STEPS = [before_the_optimizer, after_the_optimizer, before_every_optimizer, after_every_optimizer]


@pytest.mark.parametrize("register", AROUND_STEPS, ids=[hook.__name__ for hook in AROUND_STEPS])
def test_a_hook_of_an_optimizer_leaves_its_step_to_the_host_and_all_else_is_replayed(register):
    def story(compiler):
        model = small_model()
        optimizer = momentum(model)
        calls = []
        handle = register(model, optimizer, lambda: calls.append(None))
        step = compiler(step_of(model, optimizer))
        for batch in batches(STEPS):
            step(*batch)
        handle.remove()
        assert len(calls) == STEPS
        return weights(model), gradients(model)

    assert_same_story(story, replays=6)


def test_what_a_hook_of_an_optimizer_changes_counts():
    def story(compiler):
        model = small_model()
        optimizer = momentum(model)

        def decay(optimizer, args, kwargs):
            optimizer.param_groups[0]["lr"] *= 0.9

        optimizer.register_step_pre_hook(decay)
        step = compiler(step_of(model, optimizer))
        return [step(*batch) for batch in batches(STEPS)], weights(model)

    assert_same_story(story, replays=6)


def test_a_hook_that_is_gone_is_no_reason_to_refuse():
    def story(compiler):
        model = small_model()
        for register in (on_a_parameter, after_accumulation, on_a_module, before_a_module):
            register(model, None, lambda: None).remove()
        step = compiler(step_of(model, momentum(model)))
        return [step(*batch) for batch in batches(STEPS)], weights(model)

    assert_same_story(story, replays=7)


@pytest.mark.filterwarnings("ignore::nimble.FallbackWarning", "ignore:Full backward hook is firing")
@pytest.mark.parametrize("late", [False, True])
def test_a_hook_on_every_module_counts(late):
    def story(compiler):
        model = small_model()
        optimizer = momentum(model)
        calls, counts, handle = [], [], None
        step = compiler(step_of(model, optimizer))
        for number, batch in enumerate(batches(STEPS)):
            if number == (5 if late else 0):
                handle = on_every_module(model, optimizer, lambda: calls.append(None))
            step(*batch)
            counts.append(len(calls))
        handle.remove()
        return counts, weights(model)

    assert_same_story(story, replays=0)


@pytest.mark.filterwarnings("ignore::nimble.FallbackWarning")
@pytest.mark.parametrize("late", [False, True])
def test_a_hook_on_a_tensor_of_no_module_counts(late):
    def story(compiler):
        free, listed = (torch.ones(3, requires_grad=True) for _ in range(2))
        parameters = [listed]
        optimizer = torch.optim.SGD(parameters, lr=0.1)

        def step(x):
            optimizer.zero_grad()
            free.grad = None
            (x * free * parameters[0].exp()).sum().backward()
            optimizer.step()

        step = compiler(step)
        calls, counts = [], []
        for number in range(STEPS):
            if number == (5 if late else 0):
                for tensor in (free, listed):
                    tensor.register_hook(lambda grad: calls.append(None))
            step(torch.ones(3))
            counts.append(len(calls))
        return counts, free.grad, listed

    assert_same_story(story, replays=2 if late else 0)


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
