"""What is trained: the paper's networks at 32 x 32, BERT, and a ResNet at full size.

A program has the same weights and data every time it is made. Everybody trains with SGD, momentum 0.9, as PyTorch
chooses to run it (foreach on CUDA).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.nasnet import MOBILE, NASNetA

CLASSES = 10
BATCHES = 8  # different ones, handed out in turn


@dataclass
class Kind:
    """How to make a model, and what it is fed with."""

    build: Callable[[], nn.Module]
    draw: Callable[[int], tuple[Tensor, Tensor]]
    batches: tuple[int, ...] = (32, 64, 128)
    # torch.compile draws other random numbers than eager, so that losses cannot be compared closely.
    draws_random_numbers: bool = False


class Program:
    """A model, its optimizer and the training step, as anybody would write it."""

    def __init__(self, name: str, batch: int, device: str) -> None:
        kind = KINDS[name]
        torch.manual_seed(0)
        self.device = device
        self.model = kind.build().to(device).train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.9)
        self.batches = [tuple(t.to(device) for t in kind.draw(batch)) for _ in range(BATCHES)]
        torch.manual_seed(1)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x), y)

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Enlarged(nn.Module):
    """Inception-v3 needs 75 x 75 pixels, so 32 x 32 become 96 x 96 first. (The paper changed the network instead.)"""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(F.interpolate(x, size=(96, 96), mode="bilinear"))


def inception_v3() -> nn.Module:
    # init_weights draws truncated normals, which takes longer than everything else together.
    return Enlarged(
        torchvision.models.inception_v3(num_classes=CLASSES, aux_logits=False, init_weights=False)
    )


def nasnet_a_mobile() -> nn.Module:
    return NASNetA(MOBILE)


class SentenceClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        self.bert = BertForSequenceClassification(BertConfig(num_labels=CLASSES))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.bert(tokens).logits


def pictures(size: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda batch: (torch.randn(batch, 3, size, size), torch.randint(CLASSES, (batch,)))


def sentences(batch: int) -> tuple[Tensor, Tensor]:
    return torch.randint(30_000, (batch, 128)), torch.randint(CLASSES, (batch,))


def torchvision_model(name: str) -> Callable[[], nn.Module]:
    return lambda: getattr(torchvision.models, name)(num_classes=CLASSES)


KINDS: dict[str, Kind] = {
    "mobilenet_v2": Kind(torchvision_model("mobilenet_v2"), pictures(32), draws_random_numbers=True),
    "efficientnet_b0": Kind(torchvision_model("efficientnet_b0"), pictures(32), draws_random_numbers=True),
    "resnet50": Kind(torchvision_model("resnet50"), pictures(32)),
    "nasnet_a_mobile": Kind(nasnet_a_mobile, pictures(32), draws_random_numbers=True),
    "inception_v3": Kind(inception_v3, pictures(32), draws_random_numbers=True),
    "bert_base": Kind(SentenceClassifier, sentences, batches=(32,), draws_random_numbers=True),
    "resnet50_224": Kind(torchvision_model("resnet50"), pictures(224), batches=(32,)),
}
