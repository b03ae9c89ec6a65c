"""What a system is: somebody who runs a network or a training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from nimble.bench.workloads.kinds import Inference, Program, Workload
from nimble.packages import need

Inputs = tuple[Tensor, ...]


@dataclass
class Ready:
    """A prepared system. `call` takes nothing and answers (inference), or takes a batch and gives its loss (training).
    `facts` is what the system knows about itself, for its row; `measured`, asked after the timing, what it has to
    measure for that."""

    call: Callable[..., object]
    facts: Callable[[], dict] = dict
    measured: Callable[[], dict] | None = None


@dataclass(frozen=True)
class System:
    """`infer` prepares a network for its inputs. `train` gives a function that trains from its first call on: what
    it needs for preparation happens in its first calls, so that everybody's losses can be compared step by step."""

    name: str  # on the command line
    title: str  # in tables and pictures
    infer: Callable[[nn.Module, Inputs], Ready] | None = None
    train: Callable[[Program], Ready] | None = None
    # The same kernels as eager, in eager's process: the answer must have eager's bits, wherever eager repeats its own.
    exact: bool = False
    # Compilers, which may fail, take minutes or never end: each in a process that can be ended, with an eager of its
    # own to be compared with.
    own_process: bool = False
    prepare_limit: float = 120.0  # seconds, unless the user says otherwise
    devices: tuple[str, ...] = ("cpu", "cuda")
    packages: tuple[str, ...] = field(default=())
    by_default: bool = True

    def fits(self, workload: Workload, device: torch.device) -> bool:
        """Whether it makes sense at all to ask for a row."""
        does = self.infer if isinstance(workload, Inference) else self.train
        return does is not None and device.type in self.devices

    def need_packages(self) -> None:
        for package in self.packages:
            need(package)
