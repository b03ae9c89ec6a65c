"""Preparing systems for a training step: the first steps of each, their losses compared with eager's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from nimble.bench.check import compare_losses
from nimble.bench.entrant import Entrant
from nimble.bench.job import Job
from nimble.bench.measure import wait_for_device
from nimble.bench.memory import MemoryWatch
from nimble.bench.systems import SYSTEMS, Ready, System
from nimble.bench.workloads import Program

FIRST_STEPS = 6  # in which every system prepares itself
MEMORY_STEPS = 3


@dataclass
class FirstSteps:
    program: Program
    ready: Ready
    losses: list[float]
    seconds: float
    memory: dict[str, int]

    def run(self) -> None:
        """One step on the next batch."""
        batches = self.program.batches
        batches.append(batches.pop(0))
        self.ready.call(*batches[-1])


def make(_: Job) -> None:
    """Nothing yet: every system trains a network of its own."""


def first_steps(system: System, job: Job) -> FirstSteps:
    watch = MemoryWatch(job.device)
    program = Program(job.workload, job.batch, job.device_name, job.dtype)
    wait_for_device()
    start = time.perf_counter()
    ready = system.train(program)
    losses = [ready.call(*program.batches[number]) for number in range(FIRST_STEPS)]
    wait_for_device()
    seconds = time.perf_counter() - start
    watch.prepared()
    steps = FirstSteps(program, ready, [loss.item() for loss in losses], seconds, watch.found)
    for _ in range(MEMORY_STEPS):
        steps.run()
    watch.steady()
    return steps


def preparer(job: Job, _: None) -> Callable[[System], Entrant]:
    """A function that prepares one system after the other. The first eager run is cuDNN's search, which everybody would
    need once; the second tells whether eager repeats its bits."""
    eager = [first_steps(SYSTEMS["eager"], job) for _ in range(2)]
    losses = [steps.losses for steps in eager]
    search_seconds = eager[0].seconds
    repeatable = repr(losses[0]) == repr(losses[1])
    del eager

    def prepare(system: System) -> Entrant:
        steps = first_steps(system, job)
        draws_other_numbers = system.own_process and job.workload.draws_random_numbers
        # On a GPU bits are demanded of deterministic kernels only: two runs of others may agree by chance.
        exact = system.exact and (job.deterministic or job.device.type == "cpu")
        answer = compare_losses(steps.losses, losses, exact, tolerance=0.3 if draws_other_numbers else 0.02)
        row = {
            "prepare_seconds": steps.seconds,
            "memory": steps.memory,
            "answer": answer,
            "losses": steps.losses,
            "eager_repeats_its_bits": repeatable,
            **steps.ready.facts(),
        }
        if system.name == "eager":
            row |= {"first_run_seconds": search_seconds, "answer": "itself"}
        return Entrant(system, steps.run, row, steps.ready.measured)

    return prepare
