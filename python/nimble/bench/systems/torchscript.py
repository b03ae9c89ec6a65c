"""TorchScript: traced, frozen, optimized for inference."""

import torch
from torch import nn

from nimble.bench.systems.kinds import Inputs, Ready, System


class Plain(nn.Module):
    """Results as a tuple of tensors: a trace knows nothing of the classes that transformers returns."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor):
        result = self.model(*inputs)
        return result if isinstance(result, torch.Tensor) else tuple(result.values())


def infer(model: nn.Module, inputs: Inputs) -> Ready:
    traced = torch.jit.trace(Plain(model).eval(), inputs, check_trace=False)
    fast = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    for _ in range(3):  # its profiling executor specialises during the first calls
        fast(*inputs)
    return Ready(lambda: fast(*inputs))


SYSTEMS = [System("torchscript", "TorchScript", infer, own_process=True)]
