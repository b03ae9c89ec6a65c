"""What a run of the suite measures, and for how long."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from nimble.bench.measure import Amount
from nimble.bench.systems import System
from nimble.bench.workloads import Inference, Workload


@dataclass(frozen=True)
class Cell:
    """One workload at one batch size in one precision: what all systems are asked to run."""

    workload: Workload
    batch: int
    dtype_name: str

    def __str__(self) -> str:
        return f"{self.workload.name}, batch {self.batch}, {self.dtype_name}"


@dataclass(frozen=True)
class Settings:
    workloads: list[Workload]
    systems: list[System]
    device_name: str
    batches: list[int] | None = None  # None: each workload's own
    dtype_names: tuple[str, ...] = ("fp32",)
    amount: Amount = field(default_factory=Amount)
    prepare_limit: float | None = None  # seconds for a compiler; None: each one's own
    # How many compilers prepare at the same time, since that is work for the processor.
    side_by_side: int = field(default_factory=lambda: max(1, (os.cpu_count() or 1) // 2))
    time_limit: float | None = None  # seconds for everything
    profile: bool = True
    tasks_alone: bool = True  # for the critical path
    deterministic: bool = False
    first_batch_only: bool = False

    def patience_with(self, system: System) -> float:
        return self.prepare_limit or system.prepare_limit

    def cells(self) -> list[Cell]:
        found = []
        for workload in self.workloads:
            batches = self.batches or list(workload.batches)
            for batch in batches[:1] if self.first_batch_only else batches:
                found += [Cell(workload, batch, dtype_name) for dtype_name in self.dtype_names]
        return found

    def compiles(self, cell: Cell) -> bool:
        """Compilers take minutes: they train each workload at its first batch and precision only."""
        if isinstance(cell.workload, Inference):
            return True
        return cell == next(other for other in self.cells() if other.workload is cell.workload)
