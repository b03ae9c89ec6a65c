"""The models that Nimble is measured on, by name, with random weights.

    module, inputs = make("resnet50")

makes the same module and inputs every time. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torchvision
from torch import Tensor, nn

from . import nasnet

Example = tuple[nn.Module, tuple[Tensor, ...]]


def make(name: str, batch: int = 1) -> Example:
    """The module in eval mode and a tuple of example inputs."""
    if name not in MODELS:
        raise KeyError(f"no model named {name!r}; there are {', '.join(MODELS)}")
    # The caller's random numbers are none of our business.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MODELS[name](batch)


def picture_model(build: Callable[[], nn.Module], size: int) -> Callable[[int], Example]:
    def make_picture_model(batch: int) -> Example:
        model = build().eval()
        calibrate_batch_norms(model, size)
        return model, (torch.randn(batch, 3, size, size),)

    return make_picture_model


def calibrate_batch_norms(model: nn.Module, size: int) -> None:
    """Sets every batch norm's statistics from one batch of noise.

    With the statistics of construction (mean 0, variance 1) the activations of a deep network with random
    weights vanish or overflow on their way, and a comparison of zeros shows nothing.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    # Half the size is as good for this, at a quarter of the time.
    with torch.no_grad():
        model(torch.randn(2, 3, size // 2, size // 2))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def googlenet() -> nn.Module:
    # init_weights draws truncated normals, which takes longer than everything else together.
    return torchvision.models.googlenet(aux_logits=False, init_weights=False)


def inception_v3() -> nn.Module:
    return torchvision.models.inception_v3(aux_logits=False, init_weights=False)


def bert_base(batch: int) -> Example:
    from transformers import BertConfig, BertModel

    config = BertConfig()
    return BertModel(config).eval(), (torch.randint(config.vocab_size, (batch, 128)),)


def vit_b_16(batch: int) -> Example:
    model = torchvision.models.vit_b_16()
    # torchvision starts the classifier at zero: every output would be zero.
    nn.init.normal_(model.heads.head.weight, std=0.02)
    return model.eval(), (torch.randn(batch, 3, 224, 224),)


MODELS: dict[str, Callable[[int], Example]] = {
    "resnet50": picture_model(torchvision.models.resnet50, 224),
    "resnet101": picture_model(torchvision.models.resnet101, 224),
    "mobilenet_v2": picture_model(torchvision.models.mobilenet_v2, 224),
    "mobilenet_v3_small": picture_model(torchvision.models.mobilenet_v3_small, 224),
    "efficientnet_b0": picture_model(torchvision.models.efficientnet_b0, 224),
    "efficientnet_b5": picture_model(torchvision.models.efficientnet_b5, 456),
    "googlenet": picture_model(googlenet, 224),
    "inception_v3": picture_model(inception_v3, 299),
    "nasnet_a_mobile": picture_model(nasnet.nasnet_a_mobile, 224),
    "nasnet_a_large": picture_model(nasnet.nasnet_a_large, 331),
    "bert_base": bert_base,
    "vit_b_16": vit_b_16,
}
