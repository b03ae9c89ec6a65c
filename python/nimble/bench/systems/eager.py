"""PyTorch as it is. Everybody is compared with it."""

from torch import nn

from nimble.bench.systems.kinds import Inputs, Ready, System
from nimble.bench.workloads.kinds import Program


def infer(model: nn.Module, inputs: Inputs) -> Ready:
    return Ready(lambda: model(*inputs))


def train(program: Program) -> Ready:
    return Ready(program.step)


SYSTEMS = [System("eager", "eager", infer, train, exact=True)]
