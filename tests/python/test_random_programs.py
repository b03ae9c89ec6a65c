"""Random programs of views, in-place writes, random numbers and shared memory, replayed on many streams.

Each seed is a straight-line program over a pool of tensors: its inputs, two outside tensors that it may
write, and what it made so far, views included. Whatever eager does to results, inputs, outside tensors, the
random generator and the sharing of memory among them, four calls of the compiled function must do too.
"""

from __future__ import annotations

import random

import pytest
import torch
from support import assert_same, bits
from torch import Tensor

import nimble

STEPS = 25


class RandomProgram:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        draw = torch.Generator().manual_seed(seed)
        self.outside = [torch.randn(4, 6, generator=draw), torch.randn(6, generator=draw)]

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        # The same choices at every call: a recording is one path through the program, and there is only one.
        choose = random.Random(self.seed)
        pool = [*inputs, *self.outside]
        for _ in range(STEPS):
            choose.choice(MOVES)(choose, pool)
        return choose.sample(pool, choose.randint(1, 4))


def make_new(choose: random.Random, pool: list[Tensor]) -> None:
    x = choose.choice(pool)
    pool.append(choose.choice([torch.tanh, torch.relu, torch.neg, torch.clone, torch.sin])(x))


def combine(choose: random.Random, pool: list[Tensor]) -> None:
    x, y = choose.choice(pool), choose.choice(pool)
    if x.shape == y.shape or y.shape == x.shape[-1:]:
        pool.append(choose.choice([torch.add, torch.sub, torch.maximum])(x, y))


def multiply(choose: random.Random, pool: list[Tensor]) -> None:
    x = choose.choice(pool)
    if x.dim() == 2:
        pool.append(torch.tanh(x @ x.t()))


def view(choose: random.Random, pool: list[Tensor]) -> None:
    x = choose.choice(pool)
    ways = [lambda: x[..., 1:], lambda: x[..., ::2], lambda: x.unsqueeze(0).squeeze(0)]
    if x.dim() == 2:
        ways += [lambda: x.t(), lambda: x[0], lambda: x[1:], lambda: x.reshape(-1)[:6]]
    viewed = choose.choice(ways)()
    if viewed.numel():
        pool.append(viewed)


def write(choose: random.Random, pool: list[Tensor]) -> None:
    target = choose.choice(pool)
    sources = [x for x in pool if x.shape == target.shape]
    # PyTorch refuses to read and write overlapping memory in one call, so the source is a copy.
    source = choose.choice(sources).clone()
    choose.choice([target.add_, target.copy_, target.sub_])(source)


def write_constant(choose: random.Random, pool: list[Tensor]) -> None:
    choose.choice(pool).mul_(0.5)


def fill(choose: random.Random, pool: list[Tensor]) -> None:
    choose.choice(pool)[..., 0].fill_(choose.random())


def draw(choose: random.Random, pool: list[Tensor]) -> None:
    x = choose.choice(pool)
    pool.append(choose.choice([torch.rand_like, torch.randn_like])(x) + x)


def draw_in_place(choose: random.Random, pool: list[Tensor]) -> None:
    choose.choice(pool).uniform_()


def reduce(choose: random.Random, pool: list[Tensor]) -> None:
    x = choose.choice(pool)
    if x.dim() == 2:
        pool.append(choose.choice([x.sum, x.mean])(0))


def concatenate(choose: random.Random, pool: list[Tensor]) -> None:
    x = choose.choice(pool)
    pool.append(torch.cat([x, torch.relu(x)], dim=0)[: len(x)])


def make_a_constant(choose: random.Random, pool: list[Tensor]) -> None:
    pool.append(torch.arange(6.0) * choose.randint(1, 3))


MOVES = [
    make_new,
    make_new,
    combine,
    combine,
    multiply,
    view,
    view,
    view,
    write,
    write,
    write_constant,
    fill,
    draw,
    draw_in_place,
    reduce,
    concatenate,
    make_a_constant,
]


def sharing(tensors: list[Tensor]) -> list[int]:
    """For each tensor the first one that it shares memory with."""
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    return [storages.index(storage) for storage in storages]


def observe(function, program: RandomProgram, inputs: list[Tensor]) -> tuple:
    results = function(*inputs)
    everything = [*results, *inputs, *program.outside]
    places = [(t.shape, t.stride(), t.storage_offset()) for t in inputs + program.outside]
    return [bits(t) for t in everything], sharing(everything), places, torch.get_rng_state()


def check(seed: int, streams: int | str) -> None:
    ours, eagers = RandomProgram(seed), RandomProgram(seed)
    fast = nimble.compile(ours, streams=streams, tune=0)
    with torch.no_grad():
        for call in range(4):
            torch.manual_seed(call)
            inputs = [torch.randn(4, 6), torch.randn(6), torch.randn(3, 6)]
            twins = [x.clone() for x in inputs]
            torch.manual_seed(100 + call)
            expected = observe(eagers, eagers, twins)
            torch.manual_seed(100 + call)
            assert_same(observe(fast, ours, inputs), expected)
    assert fast.stats["replays"] == 2, fast.explain()


@pytest.mark.filterwarnings("error::nimble.FallbackWarning")
@pytest.mark.parametrize("seed", range(100))
def test_a_random_program_does_what_eager_does(seed):
    check(seed, "max")


@pytest.mark.full
@pytest.mark.filterwarnings("error::nimble.FallbackWarning")
@pytest.mark.parametrize("streams", [1, 2, "max"])
@pytest.mark.parametrize("block", range(20))
def test_many_random_programs_do_what_eager_does(block, streams):
    for seed in range(1000 + 100 * block, 1000 + 100 * (block + 1)):
        check(seed, streams)
