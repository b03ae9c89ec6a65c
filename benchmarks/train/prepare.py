"""The first steps of a system: how long they take, what memory it needs from then on, and the losses they give."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks.measure import wait_for_device
from benchmarks.train.programs import Program
from benchmarks.train.systems import Step

FIRST_STEPS = 6


@dataclass
class Prepared:
    program: Program
    step: Step
    losses: list[float]
    first_steps_seconds: float
    memory: dict[str, int]  # bytes; empty on the CPU

    def run(self) -> None:
        """One step on the next batch."""
        batches = self.program.batches
        batches.append(batches.pop(0))
        self.step(*batches[-1])


class MemoryWatch:
    """Bytes beyond those in use at the start. `steady`: the most that PyTorch reserved during a few steps after the
    preparation, which is what training needs. `preparing`: the most until then. `allocated`: the most that tensors took
    during those few steps. `device`: the driver's word, with what others than PyTorch's allocator took."""

    def __init__(self, device: str) -> None:
        self.on_gpu = device == "cuda"
        self.found: dict[str, int] = {}
        if self.on_gpu:
            self.settle()
            self.reserved = torch.cuda.memory_reserved()
            self.allocated = torch.cuda.memory_allocated()
            self.free = torch.cuda.mem_get_info()[0]

    def settle(self) -> None:
        gc.collect()
        torch.cuda.synchronize()
        # PyTorch keeps cuBLAS's workspaces for whoever comes next; everybody shall need their own.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def prepared(self) -> None:
        if self.on_gpu:
            self.found["preparing"] = torch.cuda.max_memory_reserved() - self.reserved
            self.settle()

    def steady(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()
            self.found |= {
                "steady": torch.cuda.max_memory_reserved() - self.reserved,
                "allocated": torch.cuda.max_memory_allocated() - self.allocated,
                "device": self.free - torch.cuda.mem_get_info()[0],
            }


def prepare(system: Callable[[Program], Step], name: str, batch: int, device: str) -> Prepared:
    watch = MemoryWatch(device)
    program = Program(name, batch, device)
    wait_for_device()
    start = time.perf_counter()
    step = system(program)
    losses = [step(*program.batches[number]) for number in range(FIRST_STEPS)]
    wait_for_device()
    seconds = time.perf_counter() - start
    watch.prepared()
    prepared = Prepared(program, step, [loss.item() for loss in losses], seconds, watch.found)
    for _ in range(3):
        prepared.run()
    watch.steady()
    return prepared


def use_settings(device: str, deterministic: bool) -> None:
    """The same for everybody: float32 with TF32 convolutions, the fastest kernels that cuDNN finds."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.deterministic = deterministic


def are_close(actual: list[float], expected: list[float], tolerance: float) -> bool:
    """Of the first steps only: small differences grow from step to step."""
    pairs = list(zip(actual, expected, strict=True))[:3]
    return all(math.isclose(a, e, rel_tol=tolerance) for a, e in pairs)
