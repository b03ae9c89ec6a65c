"""One job: a workload, and the systems that run it in one process. Jobs cross a pipe as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import torch

from nimble.bench.measure import Amount
from nimble.bench.systems import SYSTEMS, System
from nimble.bench.workloads import WORKLOADS, Workload

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Job:
    workload_name: str
    batch: int
    dtype_name: str
    device_name: str
    system_names: tuple[str, ...]  # eager is one of them
    amount: Amount
    profile: bool
    tasks_alone: bool = True
    deterministic: bool = False

    @property
    def workload(self) -> Workload:
        return WORKLOADS[self.workload_name]

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.dtype_name]

    @property
    def device(self) -> torch.device:
        return torch.device(self.device_name)

    @property
    def systems(self) -> list[System]:
        return [SYSTEMS[name] for name in self.system_names]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        fields = json.loads(text)
        amount = Amount(**fields.pop("amount"))
        return Job(system_names=tuple(fields.pop("system_names")), amount=amount, **fields)
