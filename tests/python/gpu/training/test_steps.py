"""What is different about training on a GPU: scalers, capturable optimizers, data that is still on the host."""

from __future__ import annotations

import pytest
import torch
from support import replay
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, Adam
from training.steps import assert_same_story, plain
from training.workbench import (
    batches,
    gradients,
    momentum,
    ordinary_loop,
    small_model,
    step_of,
    step_without_labels,
    weights,
)

import nimble

pytestmark = pytest.mark.gpu


def on_gpu(count: int):
    return batches(count, device="cuda")


def scaled_step(model, optimizer, scaler, clip: bool):
    def step(x, y):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


class TestScaler:
    @pytest.mark.parametrize("clip", [False, True], ids=["unclipped", "clipped"])
    @pytest.mark.parametrize("cls", [SGD, Adam])
    def test_steps_that_overflow_are_left_out_without_asking_the_host(self, cls, clip):
        def story(compiler):
            model = small_model().cuda()
            optimizer = cls(model.parameters(), lr=0.01, fused=True)
            # So large a scale overflows at first, and grows back soon.
            scaler = torch.amp.GradScaler("cuda", init_scale=2.0**24, growth_interval=3)
            step = compiler(scaled_step(model, optimizer, scaler, clip))
            seen = []
            for batch in on_gpu(30):
                seen += [step(*batch), weights(model), scaler.get_scale()]
            return seen, optimizer.state_dict()

        assert_same_story(story, replays=20)

    def test_without_a_fused_optimizer_it_is_refused_and_told_of_fused(self):
        def story(compiler):
            model = small_model().cuda()
            optimizer = SGD(model.parameters(), lr=0.01)
            scaler = torch.amp.GradScaler("cuda", init_scale=2.0**24, growth_interval=3)
            step = compiler(scaled_step(model, optimizer, scaler, clip=False))
            return [step(*batch) for batch in on_gpu(10)], weights(model), scaler.state_dict()

        with pytest.warns(nimble.FallbackWarning, match="fused=True"):
            assert_same_story(story, replays=0)


class TestOptimizers:
    @pytest.mark.parametrize("options", [{"capturable": True}, {"fused": True}], ids=["capturable", "fused"])
    def test_a_rate_on_the_device_is_read_at_every_replay(self, options):
        def story(compiler):
            model = small_model().cuda()
            rate = torch.tensor(0.01, device="cuda")
            step = compiler(step_of(model, Adam(model.parameters(), lr=rate, **options)))
            seen = []
            for batch in on_gpu(20):
                step(*batch)
                rate.mul_(0.9)
                seen.append(weights(model))
            return seen

        assert_same_story(story, replays=14)

    def test_one_that_counts_on_the_host_runs_after_the_replay(self):
        def story(compiler):
            model = small_model().cuda()
            optimizer = Adam(model.parameters(), lr=0.01)
            step = compiler(step_of(model, optimizer))
            seen = []
            for batch in on_gpu(20):
                seen += [step(*batch), gradients(model), weights(model)]
            return seen, optimizer.state_dict()

        assert_same_story(story, replays=14)


class TestStreams:
    @pytest.mark.parametrize("kind", ["convolutions", "layer_norms"])
    def test_gradients_of_weights_run_beside_the_way_back(self, kind):
        """Each layer's waits for nobody, and nobody but the optimizer waits for it: four layers make four chains."""
        layer = {
            "convolutions": lambda: nn.Conv2d(8, 8, 3, padding=1),
            "layer_norms": lambda: nn.LayerNorm(16),
        }[kind]
        data = [torch.randn(4, 8, 16, 16, device="cuda") for _ in range(10)]

        def story(compiler):
            torch.manual_seed(1)
            model = nn.Sequential(*(layer() for _ in range(4))).cuda()
            step = compiler(step_without_labels(model, momentum(model)))
            return [step(x) for x in data], gradients(model), weights(model)

        (compiled,) = assert_same_story(story, replays=5).made
        assert compiled.stats["degree_of_concurrency"] >= 4

    @pytest.mark.parametrize(
        ("optimizer_of", "update"),
        [
            (lambda weights: SGD(weights, lr=0.01, momentum=0.9), "_foreach_add_"),
            (lambda weights: SGD(weights, lr=0.01, momentum=0.9, weight_decay=0.1), "_foreach_add"),
            (lambda weights: SGD(weights, lr=0.01, momentum=0.9, fused=True), "_fused_sgd_"),
            (lambda weights: Adam(weights, lr=0.01, capturable=True), "_foreach_addcdiv_"),
            (
                lambda weights: Adam(weights, lr=0.01, capturable=True, amsgrad=True, fused=True),
                "_fused_adam_",
            ),
        ],
        ids=["SGD", "SGD with decay", "fused SGD", "Adam", "fused Adam"],
    )
    def test_weights_are_updated_as_soon_as_their_gradients_are_there(self, optimizer_of, update):
        """Three layers of 64 MiB: the optimizer's lists are cut into stretches, the last layer's first to be done."""
        data = [torch.randn(8, 4096, device="cuda") for _ in range(10)]

        def story(compiler):
            torch.manual_seed(1)
            model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(3))).cuda()
            optimizer = optimizer_of(model.parameters())
            step = compiler(step_without_labels(model, optimizer))
            return [step(x) for x in data], gradients(model), weights(model), optimizer.state_dict()

        (compiled,) = assert_same_story(story, replays=5).made
        (part,) = compiled._document((), {}, eager=False)["parts"]
        operators = [task["operator"].removeprefix("aten::").split(".")[0] for task in part["tasks"]]
        assert operators.count(update) >= 3

    def test_kernels_that_add_in_any_order_may_run_side_by_side(self):
        torch.use_deterministic_algorithms(False)
        bins = torch.randint(64, (1 << 18,), device="cuda")
        values = [torch.randn(1 << 18, device="cuda") for _ in range(6)]

        def histograms(x):
            return [torch.zeros(64, device="cuda").index_add(0, bins, x * value) for value in values]

        x = torch.randn(1 << 18, device="cuda")
        compiled = nimble.compile(histograms, strict=True).prepare(x)
        assert "rejected" not in compiled.explain()
        for ours, theirs in zip(compiled(x), histograms(x), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-2)

    def test_a_step_on_a_stream_of_the_users(self):
        def story(compiler):
            model = small_model().cuda()
            step = compiler(step_of(model, SGD(model.parameters(), lr=0.1, momentum=0.9)))
            stream = torch.cuda.Stream()
            seen = []
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for batch in on_gpu(12):
                    seen += [step(*batch), gradients(model)]
            torch.cuda.current_stream().wait_stream(stream)
            return seen, weights(model)

        assert_same_story(story, replays=6)

    def test_many_steps_without_waiting_for_the_gpu(self):
        def story(compiler):
            model = nn.Sequential(nn.Linear(4, 256), nn.Dropout(0.2), nn.ReLU(), nn.Linear(256, 3)).cuda()
            step = compiler(step_of(model, SGD(model.parameters(), lr=0.1, momentum=0.9)))
            losses = [step(*batch) for batch in list(on_gpu(20)) * 10]
            return torch.stack(losses), weights(model)

        assert_same_story(story, replays=190)


def test_version_counters_know_of_a_replayed_step():
    model = small_model().cuda()
    step = nimble.compile(step_of(model, SGD(model.parameters(), lr=0.1, momentum=0.9)))
    for batch in on_gpu(5):
        step(*batch)
    saves_the_weight = model[0].weight.square().sum()
    replay(step, *next(on_gpu(1)))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saves_the_weight.backward()


def test_a_compiled_module_in_an_ordinary_loop():
    def story(compiler):
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3)).cuda()
        fast = compiler(model)
        optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
        return ordinary_loop(model, fast, optimizer, on_gpu(10)), weights(model)

    assert_same_story(story, replays=6)


def test_torch_compile_trains(made_for_dynamo):
    def story(compiler):
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3)).cuda()
        fast = model if compiler is plain else torch.compile(model, backend="nimble")
        return ordinary_loop(model, fast, momentum(model), on_gpu(10)), weights(model)

    assert_same_story(story, replays=0)
    (graph,) = made_for_dynamo
    assert graph.stats["replays"] >= 6, graph.explain()
    assert "backward" in graph.explain()


class TestModules:
    def test_one_whose_attention_drops_is_refused_and_trains_as_eager_does(self):
        # The way back would read a random state in host memory.
        class Attending(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = nn.MultiheadAttention(32, 2, dropout=0.2, batch_first=True)

            def forward(self, x):
                return self.attention(x, x, x, need_weights=False)[0]

        def story(compiler):
            model = Attending().cuda()
            fast = compiler(model)
            optimizer = momentum(model)
            seen = []
            for number in range(6):
                torch.manual_seed(number)
                optimizer.zero_grad()
                fast(torch.randn(4, 16, 32, device="cuda")).square().mean().backward()
                optimizer.step()
                seen.append(gradients(model))
            return seen, weights(model)

        (compiled,) = assert_same_story(story, replays=0).made
        assert "Compile the whole training step" in compiled.explain()
