"""A compiled module within an ordinary training loop: its forward and backward passes are replayed and joined by
autograd; the loss, the optimizer and everything around stay the user's."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import pytest
import torch
from support import assert_same, random_states, replay
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from training import networks
from training.steps import assert_same_story, plain
from training.workbench import batches, gradients, momentum, small_model, weights

import nimble


def trained(model: nn.Module, call, steps: int = 10) -> list:
    """An ordinary loop, in which `call` stands for the model. What it sees."""
    optimizer = momentum(model)
    seen = []
    for x, y in batches(steps, device=next(model.parameters()).device):
        optimizer.zero_grad()
        loss = F.cross_entropy(call(x), y)
        loss.backward()
        optimizer.step()
        seen += [loss.detach(), gradients(model), weights(model)]
    return seen


def warmed_up(model: nn.Module, *args, **options):
    """The compiled module, from its next call with such arguments on replayed."""
    fast = nimble.compile(model, **options)
    for _ in range(4):
        out = fast(*args)
        out.sum().backward()
    for parameter in model.parameters():
        parameter.grad = None
    return fast


class TestAnOrdinaryLoop:
    @pytest.mark.parametrize(
        "make",
        [
            small_model,
            lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)),
            lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.4), nn.Linear(8, 3)),
            lambda: nn.Sequential(nn.Linear(4, 8), networks.OwnActivation(), nn.Linear(8, 3)),
        ],
        ids=["plain", "batch_norm", "dropout", "own_function"],
    )
    def test_ends_where_eagers_ends(self, device, make):
        def story(compiler):
            model = make().to(device)
            return trained(model, compiler(model))

        assert_same_story(story, replays=6)

    def test_with_a_compiled_part_of_a_larger_model(self, device):
        class Larger(nn.Module):
            def __init__(self, compiler):
                super().__init__()
                self.before = nn.Linear(4, 4)
                self.body = small_model()
                self.after = nn.Linear(3, 3)
                self.fast = [compiler(self.body)]  # in a list, so that it is not registered once more

            def forward(self, x):
                return self.after(self.fast[0](self.before(x).relu()))

        def story(compiler):
            model = Larger(compiler).to(device)
            return trained(model, model)

        assert_same_story(story, replays=6)

    def test_with_a_compiled_module_registered_in_place_of_its_original(self, device):
        def story(compiler):
            model = nn.Sequential(nn.Linear(4, 4), small_model(), nn.Linear(3, 3)).to(device)
            model[1] = compiler(model[1])
            return trained(model, model)

        assert_same_story(story, replays=6)

    def test_under_autocast(self, device):
        def story(compiler):
            model = small_model().to(device)
            fast = compiler(model)

            def call(x):
                with torch.autocast(device, torch.bfloat16):
                    return fast(x)

            return trained(model, call)

        assert_same_story(story, replays=6)

    def test_with_evaluation_in_between(self, device):
        def story(compiler):
            model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.Linear(8, 3))
            model.to(device)
            fast = compiler(model)
            optimizer = momentum(model)
            seen = []
            for x, y in batches(12, device=device):
                fast.train()
                optimizer.zero_grad()
                F.cross_entropy(fast(x), y).backward()
                optimizer.step()
                fast.eval()
                with torch.no_grad():
                    seen.append(fast(x))
            return seen, weights(model)

        assert_same_story(story, replays=14)

    def test_with_gradients_that_add_up_over_several_batches(self, device):
        def story(compiler):
            model = small_model().to(device)
            fast = compiler(model)
            optimizer = momentum(model)
            seen = []
            for number, (x, y) in enumerate(batches(12, device=device), 1):
                (F.cross_entropy(fast(x), y) / 3).backward()
                if number % 3 == 0:
                    seen.append(gradients(model))
                    optimizer.step()
                    optimizer.zero_grad()
            return seen, weights(model)

        assert_same_story(story, replays=6)

    def test_with_hooks_on_its_parameters(self, device):
        """Hooks belong to autograd, which joins the replays: they run at each backward pass."""

        def story(compiler):
            model = small_model().to(device)
            calls = []
            model[0].weight.register_hook(lambda grad: calls.append(None) or grad * 2)
            seen = trained(model, compiler(model))
            assert len(calls) == 10
            return seen

        assert_same_story(story, replays=0)


class TestForwardAndBackwardInAnyOrder:
    def test_two_forward_passes_before_the_backward_passes(self):
        def story(compiler):
            model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 3))
            fast = compiler(model)
            seen = []
            for (x, _), (other, _) in zip(batches(8), batches(8, first=50), strict=True):
                model.zero_grad()
                first, second = fast(x), fast(other)
                second.square().sum().backward()
                seen.append(gradients(model))
                first.sum().backward()
                seen += [gradients(model), first.detach(), second.detach()]
            return seen

        assert_same_story(story)

    def test_batch_norm_between_two_forward_passes_is_no_change_to_the_first(self):
        """Its counters and statistics go on, as in eager, and the first backward pass does not mind."""

        def story(compiler):
            model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
            call = compiler(model)
            seen = []
            for _ in range(8):
                first, other_size = call(torch.randn(5, 4)), call(torch.randn(3, 4))
                again = call(torch.randn(5, 4))
                model.zero_grad()
                for result in (first, other_size, again):
                    result.square().sum().backward()
                seen += [gradients(model), weights(model)]
            return seen

        assert_same_story(story, replays=8)

    def test_two_forward_passes_joined_by_one_loss(self):
        def story(compiler):
            model = small_model()
            fast = compiler(model)
            optimizer = momentum(model)
            for (x, _), (other, _) in zip(batches(10), batches(10, first=50), strict=True):
                optimizer.zero_grad()
                F.mse_loss(fast(x), fast(other)).backward()
                optimizer.step()
            return weights(model), gradients(model)

        assert_same_story(story)

    def test_a_forward_pass_without_a_backward_pass(self):
        def story(compiler):
            model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
            fast = compiler(model)
            seen = []
            for number, (x, _) in enumerate(batches(12)):
                model.zero_grad()
                out = fast(x)
                if number % 3 != 1:
                    out.square().sum().backward()
                seen += [out.detach(), gradients(model)]
            return seen, weights(model)

        assert_same_story(story, replays=4)

    def test_an_earlier_output_keeps_its_values(self):
        model = small_model()
        fast = warmed_up(model, torch.randn(5, 4))
        first_input, second_input = torch.randn(5, 4), torch.randn(5, 4)
        first = replay(fast, first_input)
        expected = first.detach().clone()
        second = fast(second_input)  # eagerly: what the first backward pass needs is still in its place
        assert_same(first.detach(), expected)
        assert_same(second.detach(), model(second_input).detach())

    def test_a_second_backward_pass_raises_as_in_eager(self):
        model = small_model()
        fast = warmed_up(model, torch.randn(5, 4))
        loss = replay(fast, torch.randn(5, 4)).sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()

    def test_a_graph_that_is_retained_gives_its_gradients_twice(self):
        def story(compiler):
            model = small_model()
            fast = compiler(model)
            seen = []
            for x, _ in batches(8):
                model.zero_grad()
                loss = fast(x).square().sum()
                loss.backward(retain_graph=True)
                loss.backward()
                seen.append(gradients(model))
            return seen

        assert_same_story(story)

    @pytest.mark.parametrize("how", ["of_the_output", "of_a_weight"])
    def test_double_backward_is_refused_by_name(self, how):
        """A replayed backward pass is no graph of autograd, so it cannot be differentiated: eager's answer would be
        another one than none."""
        model = small_model()
        fast = warmed_up(model, torch.randn(5, 4))
        x = torch.randn(5, 4, requires_grad=how == "of_the_output")
        with pytest.raises(RuntimeError, match=r"(?i)nimble"):
            for _ in range(6):
                target = x if how == "of_the_output" else model[0].weight
                (gradient,) = torch.autograd.grad(fast(x).square().sum(), target, create_graph=True)
                gradient.square().sum().backward()


class TestInputs:
    def test_those_that_require_gradients_get_them(self):
        def story(compiler):
            model = small_model()
            fast = compiler(model)
            seen = []
            for x, _ in batches(8):
                model.zero_grad()
                x.requires_grad_()
                fast(x).square().sum().backward()
                seen += [x.grad, gradients(model)]
            return seen

        assert_same_story(story, replays=4)

    def test_whether_they_require_gradients_may_change(self):
        def story(compiler):
            model = small_model()
            fast = compiler(model)
            seen = []
            for number, (x, _) in enumerate(batches(16)):
                model.zero_grad()
                x.requires_grad_(number % 2 == 0)
                fast(x).square().sum().backward()
                seen += [x.grad, gradients(model)]
            return seen

        assert_same_story(story, replays=6)

    def test_gradients_travel_through_to_what_made_them(self):
        def story(compiler):
            model = small_model()
            fast = compiler(model)
            start = nn.Parameter(torch.ones(4))
            seen = []
            for x, _ in batches(8):
                start.grad = None
                fast(x * start).sum().backward()
                seen.append(start.grad.clone())
            return seen

        assert_same_story(story, replays=4)

    def test_frozen_weights_get_none(self):
        def story(compiler):
            model = small_model()
            model[0].requires_grad_(False)
            fast = compiler(model)
            for x, _ in batches(8):
                model.zero_grad()
                fast(x).square().sum().backward()
            return gradients(model)

        assert_same_story(story, replays=4)

    def test_an_input_written_in_place_before_the_backward_pass_raises_as_in_eager(self):
        model = small_model()
        fast = warmed_up(model, torch.randn(5, 4))
        for call in (model, partial(replay, fast)):
            x = torch.randn(5, 4)
            loss = call(x).sum()
            x.add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()


def test_a_weight_written_between_forward_and_backward_raises_as_in_eager():
    model = small_model()
    fast = warmed_up(model, torch.randn(5, 4))
    for call in (model, partial(replay, fast)):
        loss = call(torch.randn(5, 4)).square().sum()
        with torch.no_grad():
            model[2].weight.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        del loss  # whose graph still holds what its backward pass would need
    # And the next pair is right again.
    x = torch.randn(5, 4)
    model.zero_grad()
    replay(fast, x).sum().backward()
    actual = gradients(model)
    model.zero_grad()
    model(x).sum().backward()
    assert_same(actual, gradients(model))


class Pair(NamedTuple):
    logits: torch.Tensor
    hidden: torch.Tensor


class TestOutputs:
    @pytest.mark.parametrize(
        "pack",
        [
            lambda logits, hidden: {"logits": logits, "hidden": hidden},
            lambda logits, hidden: (logits, hidden),
            lambda logits, hidden: [logits, {"inner": (hidden, "a word", 3)}],
            Pair,
        ],
        ids=["dict", "tuple", "nested", "named_tuple"],
    )
    def test_any_structure(self, pack):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

            def forward(self, x):
                hidden = self.first(x).tanh()
                return pack(self.second(hidden), hidden)

        def story(compiler):
            model = Model()
            fast = compiler(model)
            seen = []
            for x, _ in batches(8):
                model.zero_grad()
                out = fast(x)
                tensors = [
                    leaf for leaf in torch.utils._pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)
                ]
                (tensors[0].sum() + tensors[1].square().sum()).backward()
                seen += [out, gradients(model)]
            return seen

        assert_same_story(story, replays=4)

    def test_only_one_of_several_is_used_by_the_loss(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.left, self.right = nn.Linear(4, 3), nn.Linear(4, 3)

            def forward(self, x):
                return self.left(x), self.right(x)

        def story(compiler):
            model = Model()
            fast = compiler(model)
            seen = []
            for number, (x, _) in enumerate(batches(16)):
                model.zero_grad()
                fast(x)[number % 2].sum().backward()
                seen.append(gradients(model))
            return seen

        assert_same_story(story, replays=0)

    def test_one_that_needs_no_gradient(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 3)

            def forward(self, x):
                logits = self.linear(x)
                return logits, logits.argmax(1), logits.detach().exp()

        def story(compiler):
            model = Model()
            fast = compiler(model)
            seen = []
            for x, _ in batches(8):
                model.zero_grad()
                logits, guess, detached = fast(x)
                logits.sum().backward()
                seen += [
                    guess,
                    detached,
                    [t.requires_grad for t in (logits, guess, detached)],
                    gradients(model),
                ]
            return seen

        assert_same_story(story, replays=4)

    def test_of_which_there_are_now_more_and_now_fewer(self):
        class Changing(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.many = nn.Linear(4, 3), False

            def forward(self, x):
                y = self.layer(x)
                return [y, y.tanh(), y * 3] if self.many else [y, y.sin()]

        def story(compiler):
            model = Changing()
            fast = compiler(model)
            x, seen = torch.randn(5, 4), []
            for _ in range(3):
                model.many = False
                few = fast(x)
                model.many = True
                many = fast(x)
                # Back from the later one first, so that the earlier is no longer the last that ran.
                many[2].sum().backward()
                few[1].sum().backward()
                seen.append(gradients(model))
            return seen

        assert_same_story(story, replays=0)


class TestOtherWaysIn:
    @pytest.mark.parametrize(
        "make",
        [
            small_model,
            lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3)),
        ],
        ids=["plain", "batch_norm_and_dropout"],
    )
    def test_torch_compile_trains(self, make, made_for_dynamo):
        def story(compiler):
            model = make()
            return trained(model, model if compiler is plain else torch.compile(model, backend="nimble"))

        assert_same_story(story, replays=0)
        (graph,) = made_for_dynamo
        assert graph.stats["replays"] >= 6, graph.explain()
        assert "backward" in graph.explain()

    def test_the_form_of_the_paper(self):
        torch.manual_seed(7)
        model = small_model()
        expected = trained(model, model)
        torch.manual_seed(7)
        model = small_model()
        fast = nimble.Nimble(model)
        fast.prepare(torch.randn(5, 4), training=True)
        torch.manual_seed(7)
        model.load_state_dict(
            small_model().state_dict()
        )  # what the random input above took from the generator
        before = fast.stats["replays"]
        assert_same(trained(model, fast), expected)
        assert fast.stats["replays"] >= before + 10, fast.explain()

    def test_preparing_leaves_everything_as_it_was(self):
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
        x = torch.randn(5, 4)
        before, generators = weights(model), random_states()
        nimble.Nimble(model).prepare(x, training=True)
        assert_same(weights(model), before)
        assert_same(random_states(), generators)
        assert gradients(model) == [None] * 6
        assert x.grad is None


@pytest.fixture
def one_process(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
class TestSeveralProcesses:
    def test_a_module_in_distributed_data_parallel_runs_eagerly_and_says_why(self):
        def story(compiler):
            model = small_model()
            return trained(model, compiler(DistributedDataParallel(model)))

        with pytest.warns(
            nimble.FallbackWarning, match=r"DistributedDataParallel\(nimble.compile\(module\)\)"
        ):
            assert_same_story(story, replays=0)
        wrapped = nimble.compile(DistributedDataParallel(small_model()))
        with pytest.raises(nimble.RecordError, match="DistributedDataParallel"):
            wrapped.prepare(next(batches(1))[0], training=True)

    def test_a_compiled_module_in_distributed_data_parallel_is_replayed(self):
        def story(compiler):
            model = small_model()
            return trained(model, DistributedDataParallel(compiler(model)))

        assert_same_story(story, replays=2)

    def test_a_module_that_is_sharded_is_refused_with_advice(self):
        model = small_model()
        fully_shard(model)
        with pytest.raises(TypeError, match=r"fully_shard.*leave it as it is"):
            nimble.compile(model)


def test_a_module_that_checkpoints_dropout_runs_eagerly_and_says_why():
    """Its backward pass draws again what its forward pass drew, and the user may draw in between."""

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.4), nn.Linear(8, 3))

        def forward(self, x):
            return checkpoint(self.body, x, use_reentrant=False)

    def story(compiler):
        model = Checkpointed()
        return trained(model, compiler(model))

    with pytest.warns(nimble.FallbackWarning, match="set back"):
        assert_same_story(story, replays=0)
