"""The benchmark of training measures what it says: equal programs, and rows that say why where there are no figures."""

from __future__ import annotations

import math

import pytest
from support import assert_same

from benchmarks.train.prepare import are_close, prepare
from benchmarks.train.programs import KINDS, Program
from benchmarks.train.run import table
from benchmarks.train.systems import eager


def test_a_program_is_the_same_every_time():
    def train():
        program = Program("mobilenet_v2", 3, "cpu")
        losses = [program.step(*program.batches[number]) for number in range(2)]
        return program.batches, losses, dict(program.model.state_dict())

    assert_same(train(), train())


@pytest.mark.full
@pytest.mark.parametrize("name", KINDS)
def test_every_program_trains(name):
    losses = prepare(eager, name, 4, "cpu").losses
    assert all(map(math.isfinite, losses))
    assert len(set(losses)) == len(losses)


def test_losses_are_compared_before_their_differences_grow():
    assert are_close([1.0, 2.0, 3.0, 9.0], [1.001, 2.0, 3.0, 4.0], 0.01)
    assert not are_close([1.0, 2.5, 3.0], [1.0, 2.0, 3.0], 0.01)
    assert not are_close([math.nan], [1.0], 0.5)


def test_the_table_has_figures_or_the_reason_why_not():
    timing = {"median": 2.0, "p5": 1.5, "p95": 3.0, "runs": 100}
    common = {"model": "resnet50", "batch": 32, "first_steps_seconds": 1.25, "losses": "same bits"}
    memory = {"steady": 2**30, "preparing": 2**31}
    half = {"steady": 2**29, "preparing": 2**31}
    rows = [
        common | {"system": "eager", "timing": timing, "over_eager": 1.0, "memory": memory},
        common | {"system": "Nimble", "timing": timing, "over_eager": 4.0, "memory": half},
        {"model": "resnet50", "batch": 32, "system": "torch.compile", "failed": "not ready in time (120 s)"},
    ]
    lines = table({"rows": rows}).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    nimble_cells = [cell.strip() for cell in lines[3].split("|")[1:-1]]
    assert nimble_cells[3:8] == ["**2.00** (1.50–3.00, 100)", "4.00", "512", "0.50", "2048"]
    assert "not ready in time" in lines[4]
