"""An exception in a training step reaches the user, leaves what eager leaves, and later steps go on."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from training.steps import assert_same_story
from training.workbench import batches, gradients, momentum, small_model, weights


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("failing_run", [1, 2, 3])
@pytest.mark.parametrize("place", ["before_backward", "before_update", "after_update"])
def test_of_the_users_code_before_the_first_replay(failing_run, place):
    """The first step runs ahead, the second is recorded, the third is run both ways."""

    def story(compiler):
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.2), nn.Linear(6, 3))
        optimizer = momentum(model)
        runs = []

        def fail_at(here):
            if here == place and len(runs) == failing_run:
                raise Interrupted(place)

        def step(x, y):
            runs.append(None)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            fail_at("before_backward")
            loss.backward()
            fail_at("before_update")
            optimizer.step()
            fail_at("after_update")
            return loss.detach()

        step = compiler(step)
        seen = []
        for number, batch in enumerate(batches(16), 1):
            if number == failing_run:
                with pytest.raises(Interrupted, match=place):
                    step(*batch)
            else:
                seen.append(step(*batch))
            seen += [weights(model), gradients(model), torch.get_rng_state()]
        return seen

    assert_same_story(story, replays=6)


def test_of_a_kernel_in_a_replay():
    """An index out of range, in the forward pass: nothing is updated."""

    def story(compiler):
        table = nn.Embedding(6, 4)
        model = small_model()
        optimizer = torch.optim.SGD([*table.parameters(), *model.parameters()], lr=0.1, momentum=0.9)

        def step(tokens, y):
            loss = F.cross_entropy(model(table(tokens)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = compiler(step)
        seen = []
        for number, (_, y) in enumerate(batches(16)):
            tokens = torch.arange(number, number + 5) % 6
            if number in (8, 12):
                with pytest.raises(IndexError):
                    step(tokens + 100, y)
            else:
                seen.append(step(tokens, y))
            seen += [weights(model), weights(table), gradients(model), gradients(table)]
        return seen

    assert_same_story(story, replays=8)
