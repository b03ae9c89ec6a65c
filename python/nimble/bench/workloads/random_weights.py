"""Random weights that let values through.

As constructed, a deep network's activations vanish or overflow on their way, and parts that start at zero
(last layers, layer scales) hide what comes before them: two wrong answers would compare equal.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@torch.no_grad()
def enliven(model: nn.Module, *args: Any, **kwargs: Any) -> None:
    """Draws parameters that start near zero; sets batch norms' statistics from a run on these inputs."""
    for parameter in model.parameters():
        if parameter.is_floating_point() and parameter.abs().max() < 1e-3:
            nn.init.normal_(parameter, std=0.05)

    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    hooks = [norm.register_forward_pre_hook(set_statistics) for norm in norms]
    if norms:
        model(*args, **kwargs)
    for hook in hooks:
        hook.remove()


def set_statistics(norm: _BatchNorm, inputs: tuple[Tensor, ...]) -> None:
    channels = inputs[0].transpose(0, 1).flatten(1)
    norm.running_mean.copy_(channels.mean(1))
    # A picture of one pixel has no variance.
    norm.running_var.copy_(channels.var(1, correction=0).clamp(min=1e-2))
