"""Preparing systems for a network: the same weights and inputs for all of them, answers compared with eager's."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable

from nimble.bench.check import compare, same_bits, tensors_of
from nimble.bench.entrant import Entrant
from nimble.bench.job import Job
from nimble.bench.measure import wait_for_device
from nimble.bench.memory import MemoryWatch
from nimble.bench.systems import System
from nimble.bench.workloads import Example

MEMORY_RUNS = 3


def make(job: Job) -> Example:
    return job.workload.make(job.batch)


def on_device(example: Example, job: Job) -> Example:
    model, inputs = example
    inputs = tuple(
        tensor.to(job.device, job.dtype) if tensor.is_floating_point() else tensor.to(job.device)
        for tensor in inputs
    )
    return model.to(job.device, job.dtype), inputs


def preparer(job: Job, example: Example) -> Callable[[System], Entrant]:
    """A function that prepares one system after the other. cuDNN's search comes first: everybody needs it once, so it
    is nobody's preparation."""
    model, inputs = on_device(example, job)
    start = time.perf_counter()
    model(*inputs)
    wait_for_device()
    search_seconds = time.perf_counter() - start
    expected = tensors_of(model(*inputs))
    repeatable = same_bits(model(*inputs), expected)

    def reference() -> object:
        wide = [tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs]
        return copy.deepcopy(model).double()(*wide)

    def prepare(system: System) -> Entrant:
        watch = MemoryWatch(job.device)
        wait_for_device()
        start = time.perf_counter()
        ready = system.infer(model, inputs)
        wait_for_device()
        seconds = time.perf_counter() - start
        watch.prepared()
        answer = compare(ready.call(), expected, job.dtype, system.exact and repeatable, reference)
        if watch.on_gpu:
            for _ in range(MEMORY_RUNS):
                ready.call()
            watch.steady()
        row = {"prepare_seconds": seconds, "memory": watch.found, "answer": answer, **ready.facts()}
        if system.name == "eager":
            row |= {"prepare_seconds": 0.0, "first_run_seconds": search_seconds, "answer": "itself"}
        return Entrant(system, ready.call, row, ready.measured)

    return prepare
