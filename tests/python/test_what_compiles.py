"""What can be compiled: unusual modules, methods, several at once, one inside another. And what is refused."""

from __future__ import annotations

import pytest
import torch
from support import assert_same, picture, replay, small_model, warm_up
from torch import nn

import nimble


@pytest.fixture(autouse=True)
def without_grad():
    with torch.no_grad():
        yield


class TestUnusualModules:
    @pytest.mark.parametrize(
        "make",
        [
            lambda x: torch.fx.symbolic_trace(small_model()),
            lambda x: torch.export.export(small_model(), (x,)).module(),
        ],
        ids=["fx", "export"],
    )
    def test_a_class_that_makes_its_own_objects(self, make):
        x = picture()
        with torch.enable_grad():
            model = make(x)
        fast = nimble.compile(model, strict=True).prepare(x)
        assert_same(replay(fast, x), model(x))
        assert isinstance(fast, torch.fx.GraphModule)
        assert fast.graph is model.graph

    def test_a_class_that_looks_after_its_subclasses(self):
        known = {}

        class Registered(nn.Module):
            def __init_subclass__(cls, *, name, **kwargs):
                known[name] = cls

        class Doubling(Registered, name="doubling"):
            def forward(self, x):
                return x * 2

        fast = nimble.compile(Doubling(), strict=True).prepare(torch.ones(3))
        assert_same(replay(fast, torch.ones(3)), torch.full((3,), 2.0))
        assert known == {"doubling": Doubling}

    def test_what_no_other_object_can_share_is_refused_with_advice(self):
        class Slotted(nn.Module):
            __slots__ = ("factor",)

            def forward(self, x):
                return x * self.factor

        model = Slotted()
        model.factor = 2
        with pytest.raises(TypeError, match=r"Slotted .*nimble.compile\(lambda x: model\(x\)\)"):
            nimble.compile(model)
        fast = nimble.compile(lambda x: model(x), strict=True).prepare(torch.ones(3))
        assert_same(replay(fast, torch.ones(3)), torch.full((3,), 2.0))

    @pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(1, 2))])
    def test_torch_script_is_refused_with_advice(self, make):
        with pytest.raises(TypeError, match=r"torch\.jit.*the module that it was made from"):
            nimble.compile(make(nn.Linear(2, 2)))


class TestMethods:
    def test_a_method_is_compiled_in_its_class(self):
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.randn(3))
                self.layer = nn.Linear(3, 3)

            @nimble.compile
            def forward(self, x, *, twice=False):
                x = self.layer(x) * self.scale
                return x * 2 if twice else x

        models, x = [Scaled(), Scaled()], torch.randn(2, 3)
        for model in models:
            for _ in range(4):
                assert_same(model(x, twice=True), model.layer(x) * model.scale * 2)
        assert Scaled.forward.stats["replays"] == 4
        assert Scaled.forward.stats["cached"] == 2
        models[0].scale = nn.Parameter(torch.randn(3))
        assert_same(models[0](x), models[0].layer(x) * models[0].scale)
        assert_same(Scaled.forward(models[1], x), models[1].layer(x) * models[1].scale)

    def test_a_method_of_an_object_sees_what_is_replaced_in_it(self):
        class Trainer:
            def __init__(self):
                self.model = nn.Linear(3, 3)
                self.scale = torch.ones(3)

            @nimble.compile(streams=1)
            def answer(self, x):
                return self.model(x) * self.scale

        trainer, x = Trainer(), torch.randn(2, 3)
        for _ in range(4):
            trainer.answer(x)
        assert Trainer.answer.stats["replays"] == 2
        trainer.model = nn.Linear(3, 3)
        assert_same(trainer.answer(x), trainer.model(x))
        trainer.scale = torch.full((3,), 2.0)
        assert_same(trainer.answer(x), trainer.model(x) * 2)

    def test_what_does_not_bind_in_eager_does_not_bind(self):
        class Activation:
            function = nimble.compile(torch.tanh)
            plain = staticmethod(nimble.compile(lambda x: x * 2))

        x = torch.randn(3)
        for _ in range(3):
            assert_same(Activation().function(x), x.tanh())
            assert_same(Activation().plain(x), x * 2)


class TestSeveral:
    def test_two_compiled_models_share_weights(self):
        shared = nn.Linear(4, 4)
        first, second = nn.Sequential(shared, nn.ReLU()), nn.Sequential(shared, nn.Tanh())
        fast_first, fast_second = nimble.compile(first), nimble.compile(second)
        x = torch.randn(2, 4)
        warm_up(fast_first, x)
        warm_up(fast_second, x)
        shared.weight.mul_(3)
        assert_same(replay(fast_first, x), first(x))
        assert_same(replay(fast_second, x), second(x))

    def test_one_model_compiled_twice(self):
        model = small_model()
        first, second = nimble.compile(model), nimble.compile(model, streams=1)
        x = picture()
        for _ in range(3):
            assert_same(first(x), model(x))
            assert_same(second(x), model(x))

    def test_a_compiled_function_inside_another(self):
        inner = nimble.compile(lambda x: torch.relu(x) + 1)
        outer = nimble.compile(lambda x: inner(x) * inner(x * 2))
        for _ in range(5):
            x = torch.randn(4)
            assert_same(outer(x), (torch.relu(x) + 1) * (torch.relu(x * 2) + 1))
        assert outer.stats["replays"] == 3
        # The outer replay does not call the inner one.
        assert inner.stats["replays"] == 0
        assert_same(replay(warm_up(inner, torch.ones(4)), torch.ones(4)), torch.full((4,), 2.0))

    def test_a_ready_function_inside_another(self):
        inner = warm_up(nimble.compile(lambda x: torch.relu(x) + 1), torch.randn(4))
        outer = nimble.compile(lambda x: inner(x) * 3)
        for _ in range(4):
            x = torch.randn(4)
            assert_same(outer(x), (torch.relu(x) + 1) * 3)

    def test_a_function_that_calls_itself(self):
        @nimble.compile
        def power(x, n):
            return x if n == 1 else x * power(x, n - 1)

        x = torch.randn(3)
        for _ in range(4):
            assert_same(power(x, 3), x * (x * x))

    def test_compiling_what_is_compiled_is_refused(self):
        fast = nimble.compile(small_model())
        with pytest.raises(TypeError, match="compiled"):
            nimble.compile(fast)

    def test_what_torch_compile_made_is_refused(self):
        for made in (torch.compile(small_model()), torch.compile(torch.sin)):
            with pytest.raises(TypeError, match='backend="nimble"'):
                nimble.compile(made)

    def test_what_torch_compile_shall_leave_alone_is_not(self):
        fast = nimble.compile(torch.compiler.disable(lambda x: x * 2))
        x = torch.randn(3)
        warm_up(fast, x)
        assert_same(replay(fast, x), x * 2)

    def test_options_may_come_first(self):
        @nimble.compile(streams=1)
        def double(x):
            return x * 2

        x = torch.randn(3)
        warm_up(double, x)
        assert_same(replay(double, x), x * 2)
