"""What changes between two steps is noticed by the very next one: rates, optimizers, parameters, loaded states."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from support import assert_same, random_states, set_random_states
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import StepLR
from training.steps import assert_same_story
from training.workbench import batches, gradients, momentum, small_model, step_of, weights

import nimble

OPTIMIZERS = {
    "sgd": lambda p: SGD(p, lr=0.1, momentum=0.9),
    "sgd_fused": lambda p: SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: Adam(p, lr=0.01),
    "adam_fused": lambda p: Adam(p, lr=0.01, fused=True),
}
every_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)


class TestSettingsOfAnOptimizer:
    @every_optimizer
    @pytest.mark.parametrize(("setting", "value"), [("lr", 0.02), ("weight_decay", 0.3)])
    def test_a_new_value_counts_at_once(self, make, setting, value):
        def story(compiler):
            model = small_model()
            optimizer = make(model.parameters())
            step = compiler(step_of(model, optimizer))
            seen = []
            for number, batch in enumerate(batches(24)):
                if number == 8:
                    optimizer.param_groups[0][setting] = value
                step(*batch)
                seen.append(weights(model))
            return seen

        assert_same_story(story, replays=12)

    @pytest.mark.parametrize("make", [momentum, lambda model: SGD(model.parameters(), lr=0.1)])
    def test_a_strict_step_trains_and_raises_when_one_changes(self, make):
        model = small_model()
        optimizer = make(model)
        step = nimble.compile(step_of(model, optimizer), strict=True)
        for batch in batches(8):
            step(*batch)
        assert step.stats["replays"] >= 4
        optimizer.param_groups[0]["lr"] = 0.01
        with pytest.raises(nimble.GuardError, match="optimizer"):
            step(*batch)

    def test_a_value_may_go_back_and_forth(self):
        def story(compiler):
            model = small_model()
            optimizer = momentum(model)
            step = compiler(step_of(model, optimizer))
            seen = []
            for number, batch in enumerate(batches(24)):
                optimizer.param_groups[0]["lr"] = 0.1 if number % 4 < 2 else 0.05
                step(*batch)
                seen.append(weights(model))
            return seen

        assert_same_story(story)

    @every_optimizer
    def test_a_scheduler_in_the_loop(self, make):
        def story(compiler):
            model = small_model()
            optimizer = make(model.parameters())
            scheduler = StepLR(optimizer, step_size=1, gamma=0.9)
            step = compiler(step_of(model, optimizer))
            seen = []
            for batch in batches(20):
                step(*batch)
                scheduler.step()
                seen.append(weights(model))
            return seen

        assert_same_story(story, replays=12)

    @pytest.mark.filterwarnings("ignore::nimble.FallbackWarning", "ignore:Detected call of")
    @pytest.mark.parametrize("comes_first", [False, True])
    @every_optimizer
    def test_a_scheduler_inside_the_step_is_never_frozen(self, make, comes_first):
        """Its count is a number on the host: replays alone would go on with one rate for ever."""

        def story(compiler):
            model = small_model()
            optimizer = make(model.parameters())
            scheduler = StepLR(optimizer, step_size=3, gamma=0.5)
            train = step_of(model, optimizer)

            def step(x, y):
                if comes_first:
                    scheduler.step()
                loss = train(x, y)
                if not comes_first:
                    scheduler.step()
                return loss

            step = compiler(step)
            seen = []
            for batch in batches(12):
                step(*batch)
                seen += [weights(model), scheduler.get_last_lr(), scheduler.last_epoch]
            return seen

        assert_same_story(story, replays=0)

    @pytest.mark.filterwarnings("ignore::nimble.FallbackWarning")
    @pytest.mark.parametrize("comes_first", [False, True])
    @every_optimizer
    def test_a_rate_that_is_set_inside_the_step_is_never_frozen(self, make, comes_first):
        def story(compiler):
            model = small_model()
            optimizer = make(model.parameters())
            train = step_of(model, optimizer)

            def decay():
                for group in optimizer.param_groups:
                    group["lr"] *= 0.9

            def step(x, y):
                if comes_first:
                    decay()
                loss = train(x, y)
                if not comes_first:
                    decay()
                return loss

            step = compiler(step)
            return [step(*batch) for batch in batches(12)], weights(model)

        assert_same_story(story, replays=0)

    @pytest.mark.parametrize("clip", [False, True], ids=["as_is", "clipped"])
    @pytest.mark.parametrize("name", ["sgd_fused", "adam_fused"])
    def test_a_scheduler_in_the_loop_of_a_scaler(self, name, clip):
        """The step on the host sees the scale, and whether a gradient overflowed, of this very replay."""

        def story(compiler):
            model = small_model()
            optimizer = OPTIMIZERS[name](model.parameters())
            scheduler = StepLR(optimizer, step_size=1, gamma=0.9)
            scaler = torch.amp.GradScaler("cpu", growth_interval=3)

            def step(x, y):
                optimizer.zero_grad(set_to_none=False)
                loss = F.cross_entropy(model(x), y)
                scaler.scale(loss).backward()
                if clip:
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                scaler.step(optimizer)
                scaler.update()
                return loss.detach().nan_to_num()

            step = compiler(step)
            seen = []
            for number, (x, y) in enumerate(batches(24)):
                step(x * float("inf") if number % 9 == 8 else x, y)
                scheduler.step()
                seen += [weights(model), scaler.state_dict()]
            assert not hasattr(optimizer, "grad_scale")
            assert not hasattr(optimizer, "found_inf")
            return seen

        assert_same_story(story, replays=12)

    @pytest.mark.parametrize("cls", [SGD, Adam, AdamW])
    def test_a_rate_that_is_a_tensor_is_read_at_every_replay(self, cls):
        def story(compiler):
            model = small_model()
            rate = torch.tensor(0.05)
            optimizer = cls(model.parameters(), lr=rate, fused=True)
            step = compiler(step_of(model, optimizer))
            seen = []
            for batch in batches(30):
                step(*batch)
                rate.mul_(0.9)
                seen.append(weights(model))
            return seen

        assert_same_story(story, replays=24)

    def test_two_groups_have_settings_of_their_own(self):
        def story(compiler):
            model = small_model()
            groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.01}]
            optimizer = SGD(groups, lr=0.1, momentum=0.9)
            step = compiler(step_of(model, optimizer))
            for number, batch in enumerate(batches(20)):
                if number == 8:
                    optimizer.param_groups[1]["lr"] = 0.5
                step(*batch)
            return weights(model)

        assert_same_story(story, replays=8)


class TestOptimizers:
    def test_one_that_is_swapped_in_the_closure(self):
        def story(compiler):
            model = small_model()
            optimizer = momentum(model)

            def step(x, y):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                return loss

            step = compiler(step)
            seen = []
            for number, batch in enumerate(batches(20)):
                if number == 8:
                    optimizer = SGD(model.parameters(), lr=0.5)
                step(*batch)
                seen.append(weights(model))
            return seen

        assert_same_story(story, replays=8)

    def test_one_that_is_swapped_in_an_object(self):
        class Trainer:
            def __init__(self):
                self.model = small_model()
                self.optimizer = momentum(self.model)

            def step(self, x, y):
                self.optimizer.zero_grad()
                loss = F.cross_entropy(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                return loss

        def story(compiler):
            trainer = Trainer()
            step = compiler(trainer.step)
            seen = []
            for number, batch in enumerate(batches(20)):
                if number == 8:
                    trainer.optimizer = SGD(trainer.model.parameters(), lr=0.5)
                step(*batch)
                seen.append(weights(trainer.model))
            return seen

        assert_same_story(story, replays=8)

    def test_a_group_that_is_added(self):
        def story(compiler):
            model = small_model()
            optimizer = SGD(model[0].parameters(), lr=0.1, momentum=0.9)
            step = compiler(step_of(model, optimizer))
            seen = []
            for number, batch in enumerate(batches(20)):
                if number == 8:
                    optimizer.add_param_group({"params": model[2].parameters(), "lr": 0.01})
                step(*batch)
                seen.append(weights(model))
            return seen

        assert_same_story(story, replays=8)

    def test_state_that_is_dropped_begins_anew(self):
        def story(compiler):
            model = small_model()
            optimizer = momentum(model)
            step = compiler(step_of(model, optimizer))
            seen = []
            for number, batch in enumerate(batches(20)):
                if number == 8:
                    optimizer.state.clear()
                step(*batch)
                seen.append(weights(model))
            return seen

        assert_same_story(story, replays=8)

    def test_a_tensor_of_the_state_that_is_replaced_is_used(self):
        def story(compiler):
            model = small_model()
            optimizer = momentum(model)
            step = compiler(step_of(model, optimizer))
            seen = []
            for number, batch in enumerate(batches(20)):
                if number == 8:
                    optimizer.state[model[0].weight] = {"momentum_buffer": torch.ones(8, 4)}
                step(*batch)
                seen.append(weights(model))
            return seen

        assert_same_story(story, replays=8)


class Counting(Optimizer):
    """A user's, whose steps become smaller. Where it counts is what differs."""

    def __init__(self, params, place):
        super().__init__(params, {"lr": 0.1, "calls": 0})
        self.place, self.calls = place, 0

    def count(self, group, parameter):
        if self.place == "attribute":
            self.calls += 1
            return self.calls
        held = group if self.place == "group" else self.state[parameter]
        held["calls"] = held.get("calls", 0) + 1
        return held["calls"]

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                # Only now and then another number: a check of the next call or two would find nothing.
                size = 1 + self.count(group, parameter) // 32
                parameter.sub_(parameter.grad, alpha=group["lr"] / size)


class TestCounting:
    @pytest.mark.parametrize("place", ["attribute", "group", "state"])
    def test_an_optimizer_that_counts_is_left_to_the_host(self, place):
        def story(compiler):
            model = small_model()
            step = compiler(step_of(model, Counting(model.parameters(), place)))
            return [step(*batch) for batch in batches(40)], weights(model)

        assert_same_story(story, replays=34)


class TestParameters:
    def test_one_that_is_added_after_recording(self):
        class Growing(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = small_model()
                self.register_parameter("shift", None)

            def forward(self, x):
                logits = self.body(x)
                return logits if self.shift is None else logits + self.shift

        def story(compiler):
            model = Growing()
            optimizer = momentum(model)
            step = compiler(step_of(model, optimizer))
            seen = []
            for number, batch in enumerate(batches(20)):
                if number == 8:
                    model.shift = nn.Parameter(torch.ones(3))
                    optimizer.add_param_group({"params": [model.shift]})
                step(*batch)
                seen.append(weights(model))
            return seen, gradients(model)

        assert_same_story(story, replays=8)

    def test_one_that_is_frozen_and_thawed(self):
        def story(compiler):
            model = small_model()
            step = compiler(step_of(model, SGD(model.parameters(), lr=0.1)))
            seen = []
            for number, batch in enumerate(batches(30)):
                model[0].weight.requires_grad_(not 10 <= number < 20)
                step(*batch)
                seen += [weights(model), gradients(model)]
            return seen

        assert_same_story(story, replays=12)

    def test_one_that_is_written_in_place(self):
        def story(compiler):
            model = small_model()
            step = compiler(step_of(model, momentum(model)))
            seen = []
            for number, batch in enumerate(batches(12)):
                step(*batch)
                if number % 3 == 0:
                    with torch.no_grad():
                        model[0].weight.clamp_(-0.1, 0.1)
                seen.append(weights(model))
            return seen

        assert_same_story(story, replays=8)


class TestGradients:
    @staticmethod
    def way_back_of(model):
        def way_back(x, y):
            for parameter in model.parameters():
                parameter.grad = None
            F.cross_entropy(model(x), y).backward()

        return way_back

    def test_one_that_is_given_other_memory(self):
        def story(compiler):
            model = small_model()
            optimizer = momentum(model)
            way_back = compiler(self.way_back_of(model))
            seen = []
            for batch in batches(12):
                way_back(*batch)
                for parameter in model.parameters():
                    parameter.grad.data = parameter.grad * 2
                optimizer.step()
                seen += [weights(model), gradients(model)]
            return seen

        assert_same_story(story, replays=6)

    def test_one_that_is_added_to_and_given_other_memory(self):
        def story(compiler):
            model = small_model()
            add = compiler(lambda x, y: F.cross_entropy(model(x), y).backward())
            seen = []
            for number, batch in enumerate(batches(16)):
                add(*batch)
                if number % 5 == 4:
                    model[0].weight.grad.data = model[0].weight.grad / 2
                seen.append(gradients(model))
            return seen

        assert_same_story(story, replays=2)

    def test_to_look_at_one_does_not_make_replays_copy_it(self):
        model = small_model()
        way_back = nimble.compile(self.way_back_of(model))
        looked_at = []
        for batch in batches(8):
            way_back(*batch)
            looked_at.append(model[0].weight.grad._cdata)
        assert way_back.stats["replays"] >= 4
        assert len(set(looked_at[-4:])) == 1

    def test_one_that_somebody_keeps_stays_as_it_was(self):
        model = small_model()
        way_back = nimble.compile(self.way_back_of(model))
        kept, copies = [], []
        for batch in batches(8):
            way_back(*batch)
            kept.append(model[0].weight.grad)
            copies.append(model[0].weight.grad.clone())
        assert way_back.stats["replays"] >= 4
        assert_same(kept, copies)

    def test_a_step_that_begins_with_the_update(self):
        def story(compiler):
            model = small_model()
            optimizer = momentum(model)

            def step(x, y):
                optimizer.step()
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                return loss.detach()

            fast = compiler(step)
            seen = []
            for batch in batches(16):
                seen += [fast(*batch), gradients(model)]
            return seen, weights(model)

        assert_same_story(story, replays=8)


class TestCheckpoints:
    @every_optimizer
    def test_going_back_to_a_saved_state_gives_the_same_continuation(self, device, make):
        def story(compiler):
            model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 3))
            model.to(device)
            optimizer = make(model.parameters())
            step = compiler(step_of(model, optimizer))
            seen = [step(*batch) for batch in batches(8, device=device)]
            file = io.BytesIO()
            torch.save([model.state_dict(), optimizer.state_dict(), random_states()], file)
            first = [step(*batch) for batch in batches(8, first=8, device=device)]
            file.seek(0)
            of_model, of_optimizer, generators = torch.load(file)
            model.load_state_dict(of_model)
            optimizer.load_state_dict(of_optimizer)
            set_random_states(generators)
            again = [step(*batch) for batch in batches(8, first=8, device=device)]
            assert_same([loss.detach() for loss in again], [loss.detach() for loss in first])
            return seen, first, again, weights(model)

        assert_same_story(story, replays=12)

    def test_a_fresh_program_goes_on_where_the_saved_one_was(self, device):
        def build():
            model = small_model().to(device)
            optimizer = momentum(model)
            return model, optimizer, nimble.compile(step_of(model, optimizer))

        model, optimizer, step = build()
        for batch in batches(8, device=device):
            step(*batch)
        saved = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
        expected = [step(*batch).detach() for batch in batches(8, first=8, device=device)]
        other, other_optimizer, other_step = build()
        other.load_state_dict(saved[0])
        other_optimizer.load_state_dict(saved[1])
        actual = [other_step(*batch).detach() for batch in batches(8, first=8, device=device)]
        assert_same(actual, expected)
        assert_same(weights(other), weights(model))
        assert step.stats["replays"] >= 10, step.explain()
