"""What a replayed training step leaves behind: gradients, losses, statistics, random numbers. All as eager's does.

Each test tells a story twice, once with eager PyTorch and once with Nimble, and compares what was seen (steps.py)."""

from __future__ import annotations

import contextlib
import gc

import pytest
import torch
from support import assert_same, replay
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.optim import SGD, Adagrad, Adam, Optimizer
from training.optimizers import CountingSGD
from training.steps import assert_same_story, copied, plain
from training.workbench import batches, gradients, momentum, small_model, step_of, weights

import nimble

either_zeroing = pytest.mark.parametrize("set_to_none", [True, False], ids=["to_none", "to_zeros"])


def test_the_protocol():
    """The first step creates gradients and optimizer state, so that the second is the first that can be recorded."""
    model = small_model()
    step = nimble.compile(step_of(model, momentum(model)))
    for number, batch in enumerate(batches(10), 1):
        step(*batch)
        assert step.stats["replays"] == max(0, number - 3), step.explain()
    assert step.stats["validations"] == 1


def test_gradients_that_the_step_drops_are_not_kept():
    """They take as much memory as the parameters, and nobody can see them any more."""
    model = small_model()
    step = step_of(model, momentum(model))
    first, *others = batches(6)
    step(*first)
    dropped = [StorageWeakRef(parameter.grad.untyped_storage()) for parameter in model.parameters()]
    compiled = nimble.compile(step)
    for batch in others:
        compiled(*batch)
    assert compiled.stats["replays"] > 0, compiled.explain()
    assert all(gradient.expired() for gradient in dropped)


def test_gradients_take_hardly_any_memory_of_their_own():
    """Nobody needs a gradient before it is made: until then activations lie there."""
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)), nn.Linear(256, 3))
    step = nimble.compile(step_of(model, momentum(model)), streams=1)
    x, y = torch.randn(256, 256), torch.randint(3, (256,))
    for _ in range(5):
        step(x, y)
    assert step.stats["replays"] > 0, step.explain()
    of_gradients = sum(parameter.grad.nbytes for parameter in model.parameters())
    of_activations = 8 * x.nbytes
    assert step.stats["arena_bytes"] < 0.75 * (of_gradients + of_activations)


def test_gradients_outlive_the_compiled_step():
    """They lie in memory that is the step's own, and must leave it before it goes."""
    model = small_model()
    compiled = nimble.compile(step_of(model, momentum(model)))
    for batch in batches(6):
        compiled(*batch)
    assert compiled.stats["replays"] > 0, compiled.explain()
    values = copied(gradients(model))
    del compiled
    gc.collect()
    assert_same(gradients(model), values)
    for parameter in model.parameters():
        parameter.grad.zero_()


@pytest.mark.parametrize("memory", ["shared", "apart"])
@pytest.mark.parametrize("size", ["none", "other", "same"])
def test_gradients_that_were_given_other_memory_are_made_again(size, memory):
    def story(compiler):
        model = small_model()
        step = compiler(step_of(model, momentum(model)), **({} if compiler is plain else {"memory": memory}))
        seen = []
        for number, batch in enumerate(batches(15)):
            seen += [step(*batch), gradients(model)]
            for parameter in model.parameters() if number == 6 else ():
                storage = parameter.grad.untyped_storage()
                bytes_before = storage.nbytes()
                storage.resize_(0)
                if size != "none":
                    storage.resize_(bytes_before * (2 if size == "other" else 1))
        return seen, weights(model)

    assert_same_story(story, replays=8)


class FlatWeights(nn.Module):
    """As cuDNN's recurrent layers do it: parameters lie in one piece of memory, which a tensor that autograd knows
    nothing of looks at first, and so do their gradients."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, flat, a, b):
            ctx.save_for_backward(x)
            return x @ flat[: a.numel()].view(a.shape).t() + flat[a.numel() :]

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            flat = torch.cat([(gradient.t() @ x).flatten(), gradient.sum(0)])
            return (
                None,
                None,
                flat[: -gradient.shape[1]].view(gradient.shape[1], -1),
                flat[-gradient.shape[1] :],
            )

    def __init__(self):
        super().__init__()
        flat = torch.randn(3 * 4 + 3)
        self.a, self.b = nn.Parameter(flat[:12].view(3, 4)), nn.Parameter(flat[12:])

    def forward(self, x):
        with torch.no_grad():
            flat = torch.empty(0).set_(self.a.untyped_storage(), 0, (15,), (1,))
        return self.Product.apply(x, flat, self.a, self.b)


class Trainer:
    """Keeps what it trains where nobody looks for it."""

    def __init__(self, model: nn.Module, cls: type[Optimizer]):
        self.model = model
        self.step = step_of(model, cls(model.parameters(), lr=0.01))


class TestGradients:
    @either_zeroing
    def test_they_are_readable_after_a_replayed_step(self, set_to_none):
        def story(compiler):
            model = small_model()
            step = compiler(step_of(model, momentum(model), set_to_none))
            seen = []
            for batch in batches(8):
                step(*batch)
                seen.append(gradients(model))
            return seen

        assert_same_story(story, replays=4)

    @either_zeroing
    def test_they_are_back_after_a_step_though_they_were_dropped_before_it(self, set_to_none):
        def story(compiler):
            model = small_model()
            step = compiler(step_of(model, momentum(model), set_to_none))
            seen = []
            for batch in batches(10):
                for parameter in model.parameters():
                    parameter.grad = None
                step(*batch)
                seen.append(gradients(model))
            return seen

        assert_same_story(story, replays=4)

    @either_zeroing
    def test_one_that_the_user_kept_is_what_eager_makes_of_it(self, set_to_none):
        """Dropped gradients keep their values in the hands of the user; zeroed ones are written again."""

        def story(compiler):
            model = small_model()
            step = compiler(step_of(model, momentum(model), set_to_none))
            kept, seen = [], []
            for batch in batches(8):
                step(*batch)
                kept.append(model[0].weight.grad)
                seen.append([gradient.clone() for gradient in kept])
            return seen

        assert_same_story(story, replays=3)

    def test_they_add_up_where_nobody_zeroes_them(self):
        def story(compiler):
            model = small_model()

            def step(x, y):
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss

            step = compiler(step)
            seen = []
            for batch in batches(8):
                step(*batch)
                seen.append(gradients(model))
            return seen

        assert_same_story(story, replays=4)

    def test_what_the_user_does_to_them_between_two_steps_counts(self):
        def story(compiler):
            model = small_model()
            optimizer = momentum(model)

            def backward(x, y):
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss

            backward = compiler(backward)
            for number, batch in enumerate(batches(10)):
                optimizer.zero_grad(set_to_none=False)
                backward(*batch)
                for parameter in model.parameters():
                    parameter.grad.mul_(number)
                optimizer.step()
            return weights(model)

        assert_same_story(story, replays=4)

    @pytest.mark.parametrize("cls", [SGD, Adagrad])
    def test_those_of_parameters_in_one_piece_of_memory_are_all_kept(self, cls):
        def story(compiler):
            trainer = Trainer(FlatWeights(), cls)
            step = compiler(trainer.step)
            seen = []
            for batch in batches(12):
                seen += [step(*batch), gradients(trainer.model)]
            return seen, weights(trainer.model)

        assert_same_story(story, replays=6)

    def test_a_parameter_that_takes_no_part_has_none(self):
        def story(compiler):
            model = small_model()
            model.register_parameter("unused", nn.Parameter(torch.ones(3)))
            step = compiler(step_of(model, momentum(model)))
            for batch in batches(8):
                step(*batch)
            return gradients(model), weights(model)

        assert_same_story(story, replays=4)


class TestAnswers:
    def test_a_loss_that_was_not_detached_has_eagers_value(self):
        def story(compiler):
            model = small_model()
            step = compiler(step_of(model, momentum(model)))
            return [step(*batch) for batch in batches(8)]

        assert_same_story(story, replays=4)

    def test_later_steps_do_not_change_earlier_losses(self):
        model = small_model()
        step = nimble.compile(step_of(model, momentum(model)))
        losses, values = [], []
        for batch in batches(8):
            losses.append(step(*batch))
            values.append(losses[-1].item())
        assert [loss.item() for loss in losses] == values
        assert len(set(values)) == len(values)

    def test_metrics_come_with_the_loss(self):
        def story(compiler):
            model = small_model()
            optimizer = momentum(model)

            def step(x, y):
                optimizer.zero_grad()
                logits = model(x)
                loss = F.cross_entropy(logits, y)
                loss.backward()
                optimizer.step()
                return {"loss": loss.detach(), "right": (logits.argmax(1) == y).sum(), "logits": logits}

            step = compiler(step)
            return [step(*batch) for batch in batches(8)]

        assert_same_story(story, replays=4)

    def test_a_step_may_return_nothing(self):
        def story(compiler):
            model = small_model()
            plain_step = step_of(model, momentum(model))

            def step(x, y):
                plain_step(x, y)

            step = compiler(step)
            return [step(*batch) for batch in batches(8)], weights(model)

        assert_same_story(story, replays=4)


class TestAccumulation:
    @pytest.mark.parametrize(
        ("set_to_none", "replays"),
        # Where gradients are dropped, the first micro-step after an update is another program than the others.
        [(False, 16), (True, 1)],
        ids=["to_zeros", "to_none"],
    )
    def test_several_micro_steps_and_one_update(self, device, set_to_none, replays):
        def story(compiler):
            model = small_model().to(device)
            optimizer = momentum(model)

            def micro_step(x, y):
                loss = F.cross_entropy(model(x), y) / 3
                loss.backward()
                return loss.detach()

            def update():
                norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad(set_to_none=set_to_none)
                return norm

            micro_step, update = compiler(micro_step), compiler(update)
            seen = []
            for number, batch in enumerate(batches(24, device=device), 1):
                seen.append(micro_step(*batch))
                if number % 3 == 0:
                    seen += [gradients(model), update(), weights(model)]
            return seen

        assert_same_story(story, replays)

    def test_several_backward_passes_within_one_step(self, device):
        def story(compiler):
            model = small_model().to(device)
            optimizer = momentum(model)

            def step(xs, ys):
                optimizer.zero_grad()
                losses = []
                for x, y in zip(xs.unbind(), ys.unbind(), strict=True):
                    losses.append(F.cross_entropy(model(x), y) / len(xs))
                    losses[-1].backward()
                optimizer.step()
                return torch.stack(losses).sum().detach()

            step = compiler(step)
            seen = []
            for number in range(8):
                pairs = list(batches(3, first=3 * number, device=device))
                xs, ys = (torch.stack(tensors) for tensors in zip(*pairs, strict=True))
                seen += [step(xs, ys), gradients(model)]
            return seen, weights(model)

        assert_same_story(story, replays=4)


class TestStateOfModules:
    def test_batch_norm_statistics_are_updated_once_in_each_step(self):
        def story(compiler):
            model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
            step = compiler(step_of(model, momentum(model)))
            seen = []
            for batch in batches(8):
                step(*batch)
                norm = model[1]
                seen.append(
                    [norm.running_mean.clone(), norm.running_var.clone(), norm.num_batches_tracked.clone()]
                )
            assert int(model[1].num_batches_tracked) == 8
            return seen

        assert_same_story(story, replays=4)

    def test_no_step_is_lost_or_done_twice(self):
        steps_done = nn.Parameter(torch.zeros(()))
        model = small_model()
        train = step_of(model, momentum(model))

        def step(x, y):
            with torch.no_grad():
                steps_done.add_(1)
            return train(x, y)

        step = nimble.compile(step)
        for number, batch in enumerate(batches(12), 1):
            step(*batch)
            assert steps_done.item() == number
        assert step.stats["replays"] >= 6, step.explain()

    def test_an_average_of_the_weights_follows_them(self):
        def story(compiler):
            model, average = small_model(), small_model()
            average.load_state_dict(model.state_dict())
            train = step_of(model, momentum(model))

            def step(x, y):
                loss = train(x, y)
                with torch.no_grad():
                    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.1)
                return loss

            step = compiler(step)
            for batch in batches(8):
                step(*batch)
            return weights(average), weights(model)

        assert_same_story(story, replays=4)


class TestEvaluation:
    def model(self):
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))

    def test_between_steps_by_a_compiled_function_of_its_own(self, device):
        def story(compiler):
            model = self.model().to(device)
            step = compiler(step_of(model, momentum(model)))
            evaluate = compiler(lambda x: model(x).softmax(1))
            seen = []
            for number, batch in enumerate(batches(20, device=device)):
                seen.append(step(*batch))
                if number % 2:
                    model.eval()
                    with torch.no_grad():
                        seen.append(evaluate(batch[0]))
                    model.train()
            return seen, weights(model)

        compiler = assert_same_story(story, replays=20)
        assert all(compiled.stats["replays"] >= 6 for compiled in compiler.made), compiler.explain()

    def test_by_the_same_function(self, device):
        def story(compiler):
            model = self.model().to(device)
            optimizer = momentum(model)

            def run(x, y):
                loss = F.cross_entropy(model(x), y)
                if model.training:
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                return loss.detach()

            run = compiler(run)
            seen = []
            for number, batch in enumerate(batches(24, device=device)):
                model.train(number % 3 != 2)
                with torch.set_grad_enabled(model.training):
                    seen.append(run(*batch))
            return seen, weights(model)

        assert_same_story(story, replays=12)


class TestRandomNumbers:
    def test_dropout_draws_eagers_sequence(self):
        def story(compiler):
            model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5))
            optimizer = momentum(model, lr=0.01)

            def step(x):
                optimizer.zero_grad()
                out = model(x)
                out.square().mean().backward()
                optimizer.step()
                return out.detach()

            step = compiler(step)
            # The user draws too, in between.
            return [(step(x), torch.rand(2)) for x, _ in batches(10)]

        assert_same_story(story, replays=6)

    def test_seeding_between_steps_repeats_the_numbers(self):
        drop = nn.Dropout(0.5)
        weight = nn.Parameter(torch.zeros(32))

        def step(x):
            weight.grad = None
            dropped = drop(x + weight)
            dropped.sum().backward()
            return dropped.detach()

        step = nimble.compile(step)
        for _ in range(4):
            step(torch.ones(32))
        torch.manual_seed(1)
        first = replay(step, torch.ones(32))
        second = replay(step, torch.ones(32))
        torch.manual_seed(1)
        assert_same(replay(step, torch.ones(32)), first)
        assert not torch.equal(first, second)


class TestBatchesOfAnotherSize:
    def test_the_last_batch_of_an_epoch_may_be_smaller(self, device):
        def story(compiler):
            model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).to(device)
            step = compiler(step_of(model, momentum(model)))
            seen = []
            for _ in range(6):
                seen += [step(*batch) for batch in batches(4, device=device)]
                seen += [step(*batch) for batch in batches(1, size=3, first=100, device=device)]
            return seen, weights(model), gradients(model)

        assert_same_story(story, replays=18)


class TestVersionCounters:
    def test_what_autograd_saved_before_a_replayed_step_is_known_to_be_outdated(self):
        model = small_model()
        step = nimble.compile(step_of(model, momentum(model)))
        for batch in batches(5):
            step(*batch)
        saves_the_weight = model[0].weight.square().sum()
        replay(step, *next(batches(1)))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saves_the_weight.backward()

    def test_what_the_step_does_not_write_may_be_used_afterwards(self):
        model = small_model()
        step = nimble.compile(step_of(model, momentum(model)))
        other = nn.Parameter(torch.ones(3))
        for batch in batches(5):
            step(*batch)
        saves_the_other = other.square().sum()
        replay(step, *next(batches(1)))
        saves_the_other.backward()
        assert_same(other.grad, torch.full((3,), 2.0))


class TestPreparing:
    def model(self):
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))

    def test_trains_nothing(self):
        model = self.model()
        optimizer = momentum(model)
        plain_step = step_of(model, optimizer)
        plain_step(*next(batches(1)))  # an ordinary step creates the gradients and the state of the optimizer
        before = weights(model), gradients(model), copied(optimizer.state_dict()), torch.get_rng_state()
        step = nimble.compile(plain_step).prepare(*next(batches(1)))
        after = weights(model), gradients(model), copied(optimizer.state_dict()), torch.get_rng_state()
        assert_same(after, before)
        replay(step, *next(batches(1)))

    @pytest.mark.parametrize(
        "make",
        [
            lambda p: SGD(p, lr=0.1, momentum=0.9),
            lambda p: Adam(p),
            lambda p: Adam(p, fused=True),
            lambda p: Adagrad(p),
            lambda p: CountingSGD(p),
        ],
        ids=["momentum", "adam", "adam_fused", "adagrad", "own_counting"],
    )
    @pytest.mark.parametrize("steps_before", [0, 2])
    def test_that_is_refused_trains_nothing(self, make, steps_before):
        """The first step creates what later ones update, and what the host computes cannot be undone."""
        model = self.model()
        optimizer = make(model.parameters())
        step = step_of(model, optimizer)
        for batch in batches(steps_before):
            step(*batch)
        before = copied([weights(model), gradients(model), optimizer.state_dict(), torch.get_rng_state()])
        with contextlib.suppress(nimble.RecordError):
            nimble.compile(step).prepare(*next(batches(1)))
            assert steps_before > 0
        after = [weights(model), gradients(model), optimizer.state_dict(), torch.get_rng_state()]
        assert_same(after, before)

    def test_whose_optimizer_is_known_to_compute_on_the_host_is_refused(self):
        model = self.model()
        optimizer = Adam(model.parameters())
        step = nimble.compile(step_of(model, optimizer))
        for batch in batches(6):
            step(*batch)
        before = copied([weights(model), gradients(model), optimizer.state_dict()])
        with pytest.raises(nimble.RecordError, match="computes on the host"):
            step.prepare(*next(batches(1, size=7)))
        assert_same([weights(model), gradients(model), optimizer.state_dict()], before)
        replay(step, *next(batches(1)))

    def test_that_is_refused_within_a_scaled_step_leaves_the_optimizer_unscaled(self):
        model = small_model()
        optimizer = Adam(model.parameters(), fused=True)
        optimizer.register_step_pre_hook(lambda *_: None)
        scaler = torch.amp.GradScaler("cpu")

        def step(x, y):
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()

        with pytest.raises(nimble.RecordError, match="computes on the host"):
            nimble.compile(step).prepare(*next(batches(1)))
        assert not hasattr(optimizer, "grad_scale")
        assert not hasattr(optimizer, "found_inf")
