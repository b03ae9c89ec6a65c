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
from .random_weights import enliven

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
        # Half the size serves as well, at a quarter of the time.
        enliven(model, torch.randn(2, 3, size // 2, size // 2))
        return model, (torch.randn(batch, 3, size, size),)

    return make_picture_model


def googlenet() -> nn.Module:
    # init_weights draws truncated normals, which takes longer than everything else together.
    return torchvision.models.googlenet(aux_logits=False, init_weights=False)


def inception_v3() -> nn.Module:
    return torchvision.models.inception_v3(aux_logits=False, init_weights=False)


def vit_b_16(batch: int) -> Example:
    model = torchvision.models.vit_b_16().eval()
    enliven(model)
    return model, (torch.randn(batch, 3, 224, 224),)


def bert_base(batch: int) -> Example:
    from transformers import BertConfig, BertModel

    config = BertConfig()
    return BertModel(config).eval(), (torch.randint(config.vocab_size, (batch, 128)),)


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
