"""R3D-18 (Tran et al., 2018): a ResNet whose convolutions go over time as well, on sixteen frames."""

import torch

from nimble.bench.workloads.kinds import Example, Inference
from nimble.bench.workloads.random_weights import enliven
from nimble.packages import need


def clip(batch: int) -> Example:
    need("torchvision")
    from torchvision.models.video import r3d_18

    model = r3d_18().eval()
    enliven(model, torch.randn(1, 3, 8, 56, 56))
    return model, (torch.randn(batch, 3, 16, 112, 112),)


WORKLOADS = [Inference("r3d_18", clip)]
