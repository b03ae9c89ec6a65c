"""The results of a run: a row for every system and cell, from the beginning. Those that have not been reached say so,
so that a run that is interrupted leaves a whole report."""

from __future__ import annotations

import torch

from nimble.bench.settings import Cell, Settings
from nimble.bench.systems import System

NOT_REACHED = "not reached"

Key = tuple[str, int, str, str]


class Rows:
    def __init__(self, settings: Settings) -> None:
        self.by_key: dict[Key, dict] = {}
        device = torch.device(settings.device_name)
        for cell in settings.cells():
            for system in settings.systems:
                if system.fits(cell.workload, device) and (not system.own_process or settings.compiles(cell)):
                    self.by_key[key_of(cell, system.name)] = {
                        "workload": cell.workload.name,
                        "batch": cell.batch,
                        "dtype": cell.dtype_name,
                        "device": settings.device_name,
                        "system": system.name,
                        "title": system.title,
                        "failed": NOT_REACHED,
                    }

    def __iter__(self):
        return iter(self.by_key.values())

    def systems_of(self, cell: Cell, systems: list[System]) -> list[System]:
        return [system for system in systems if key_of(cell, system.name) in self.by_key]

    def add(self, cell: Cell, system_name: str, found: dict) -> None:
        row = self.by_key[key_of(cell, system_name)]
        row |= found
        if "timing" in found:
            row.pop("failed", None)

    def is_open(self, cell: Cell, system_name: str) -> bool:
        """Neither timed nor failed so far."""
        return self.by_key[key_of(cell, system_name)].get("failed") == NOT_REACHED

    def fail(self, cell: Cell, system_name: str, reason: str) -> None:
        """The first reason counts, and none once there are figures."""
        if self.is_open(cell, system_name):
            self.by_key[key_of(cell, system_name)]["failed"] = reason


def key_of(cell: Cell, system_name: str) -> Key:
    return (cell.workload.name, cell.batch, cell.dtype_name, system_name)
