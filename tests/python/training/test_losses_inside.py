"""A compiled module that computes the loss itself and returns what it computed it from as well, as models of Hugging
Face do when they are given labels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support import assert_same
from torch import Tensor, nn
from torch.nn import functional as F
from training.steps import assert_same_story, plain
from training.workbench import batches, gradients, momentum, weights

import nimble


class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        hidden = self.body(x).tanh()
        logits = self.head(hidden)
        return {"loss": F.cross_entropy(logits, y), "logits": logits, "hidden": hidden}


def of_the_loss(out: dict[str, Tensor]) -> Tensor:
    return out["loss"]


def scaled(out: dict[str, Tensor]) -> Tensor:
    return out["loss"] / 3


def of_both(out: dict[str, Tensor]) -> Tensor:
    return out["loss"] + 0.1 * out["logits"].square().mean()


def of_the_logits(out: dict[str, Tensor]) -> Tensor:
    return out["logits"].square().mean()


def trained(model: nn.Module, fast: nn.Module, loss_of: Callable[[int], Callable], steps: int = 9) -> list:
    optimizer = momentum(model)
    seen = []
    for step, (x, y) in enumerate(batches(steps)):
        optimizer.zero_grad()
        out = fast(x, y)
        loss = loss_of(step)(out)
        loss.backward()
        optimizer.step()
        seen += [loss.detach(), out["logits"].detach(), gradients(model), weights(model)]
    return seen


LOSSES = [of_the_loss, scaled, of_both, of_the_logits]


@pytest.mark.parametrize("loss", LOSSES)
def test_in_an_ordinary_loop(loss):
    def story(compiler):
        model = WithLoss()
        return trained(model, compiler(model), lambda _: loss)

    assert_same_story(story, replays=5)


@pytest.mark.parametrize("loss", [of_the_loss, scaled, of_both])
def test_prepared(loss):
    def story(compiler):
        model = WithLoss()
        fast = compiler(model)
        if compiler is not plain:
            fast.prepare(*next(batches(1)), training=True)
        return trained(model, fast, lambda _: loss)

    assert_same_story(story, replays=9)


def test_a_result_that_the_loss_leaves_out_for_a_while():
    def story(compiler):
        model = WithLoss()
        return trained(model, compiler(model), lambda step: of_both if step % 3 else of_the_loss)

    assert_same_story(story, replays=4)


def test_a_result_that_the_loss_adds_while_all_is_still_eager():
    def story(compiler):
        model = WithLoss()
        return trained(model, compiler(model), lambda step: of_both if step else of_the_loss)

    assert_same_story(story, replays=4)


def test_a_result_that_the_loss_adds_later_on_is_said_once():
    model = WithLoss()
    fast = nimble.compile(model)
    trained(model, fast, lambda _: of_the_loss)
    (x, y) = next(batches(1))
    with pytest.raises(RuntimeError, match="the loss uses other results"):
        of_both(fast(x, y)).backward()
    seen = []
    for call in (fast, model):
        model.zero_grad()
        of_both(call(x, y)).backward()
        seen.append(gradients(model))
    assert_same(*seen)


def test_as_a_backend_of_torch_compile():
    def story(compiler):
        model = WithLoss()
        fast = model if compiler is plain else torch.compile(model, backend="nimble")
        seen = trained(model, fast, lambda _: of_the_loss)
        torch.compiler.reset()
        return seen

    assert_same_story(story, replays=0)


@pytest.mark.parametrize("prepared", [False, True])
def test_a_model_of_hugging_face_with_labels(prepared):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2, use_cache=False
    )

    def story(compiler):
        model = transformers.GPT2LMHeadModel(config)
        optimizer = momentum(model, lr=0.01)
        fast = compiler(model)
        source = torch.Generator().manual_seed(3)
        tokens = torch.randint(50, (8, 2, 12), generator=source)
        if prepared and compiler is not plain:
            fast.prepare(input_ids=tokens[0], labels=tokens[0], training=True)
        seen = []
        for batch in tokens:
            out = fast(input_ids=batch, labels=batch)
            out.loss.backward()
            seen += [out.loss.detach(), out.logits.detach(), gradients(model)]
            optimizer.step()
            optimizer.zero_grad()
        return seen

    assert_same_story(story, replays=8 if prepared else 4)
