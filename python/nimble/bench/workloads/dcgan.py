"""DCGAN's generator (Radford et al., 2016): a chain of transposed convolutions, from a random vector to a picture."""

import torch
from torch import nn

from nimble.bench.workloads.kinds import Example, Inference
from nimble.bench.workloads.random_weights import enliven

NOISE = 100


def upscaling(inputs: int, outputs: int, stride: int = 2, padding: int = 1) -> list[nn.Module]:
    transposed = nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False)
    return [transposed, nn.BatchNorm2d(outputs), nn.ReLU()]


def generator() -> nn.Module:
    return nn.Sequential(
        *upscaling(NOISE, 1024, stride=1, padding=0),
        *upscaling(1024, 512),
        *upscaling(512, 256),
        *upscaling(256, 128),
        nn.ConvTranspose2d(128, 3, 4, 2, 1),
        nn.Tanh(),
    )


def noise_to_picture(batch: int) -> Example:
    model = generator().eval()
    enliven(model, torch.randn(2, NOISE, 1, 1))
    return model, (torch.randn(batch, NOISE, 1, 1),)


WORKLOADS = [Inference("dcgan", noise_to_picture)]
