"""What is trained, by name: a network, its loss and its data, which is drawn by the number of the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torchvision
from nimble.bench.workloads.nasnet import NASNetA, NASNetConfig
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from training import networks

VOCABULARY, LENGTH = 40, 12


@dataclass
class Player:
    """Who is updated by one optimizer, and by which loss of the batch."""

    module: nn.Module
    loss: Callable[..., Tensor]


@dataclass
class Task:
    """Ordinary training has one player, a GAN two. A step updates them one after the other."""

    players: list[Player]
    draw: Callable[[Generator], tuple[Tensor, ...]]


def classification(model: nn.Module, shape: tuple[int, ...], classes: int, batch: int) -> Task:
    def draw(source: Generator) -> tuple[Tensor, ...]:
        return (
            torch.randn(batch, *shape, generator=source),
            torch.randint(classes, (batch,), generator=source),
        )

    return Task([Player(model, lambda x, y: F.cross_entropy(model(x), y))], draw)


def pictures(build: Callable[[], nn.Module]) -> Callable[[], Task]:
    # Three pictures: with two, the batch norms over 1x1 pixels would answer ±1 whatever they are given.
    return lambda: classification(build(), (3, 32, 32), 10, batch=3)


def vectors(build: Callable[[], nn.Module]) -> Callable[[], Task]:
    return lambda: classification(build(), (12,), 5, batch=4)


def language(build: Callable[[], nn.Module]) -> Callable[[], Task]:
    """Guess the next token."""

    def make() -> Task:
        model = build()

        def draw(source: Generator) -> tuple[Tensor, ...]:
            return (torch.randint(VOCABULARY, (2, LENGTH + 1), generator=source),)

        def loss(tokens: Tensor) -> Tensor:
            return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

        return Task([Player(model, loss)], draw)

    return make


def bert() -> Task:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
    )
    model = BertForMaskedLM(config).train()

    def draw(source: Generator) -> tuple[Tensor, ...]:
        tokens = torch.randint(1, VOCABULARY, (2, LENGTH), generator=source)
        hidden = torch.rand(2, LENGTH, generator=source) < 0.3
        hidden[:, 0] = True  # never none at all, whose mean loss would be NaN
        return tokens.masked_fill(hidden, 0), tokens.masked_fill(~hidden, -100)

    return Task([Player(model, lambda tokens, labels: model(tokens, labels=labels).loss)], draw)


def unet() -> Task:
    model = networks.UNet(classes=4)

    def draw(source: Generator) -> tuple[Tensor, ...]:
        return torch.randn(2, 3, 16, 16, generator=source), torch.randint(4, (2, 16, 16), generator=source)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        # Pixel by pixel in rows: the loss over pictures has no deterministic form on CUDA.
        return F.cross_entropy(model(x).permute(0, 2, 3, 1).reshape(-1, 4), y.flatten())

    return Task([Player(model, loss)], draw)


def gan() -> Task:
    generator, discriminator = networks.generator(), networks.discriminator()

    def fake_like(real: Tensor) -> Tensor:
        return generator(torch.randn(len(real), 8, device=real.device))

    def judged(pictures: Tensor, as_real: bool) -> Tensor:
        verdict = discriminator(pictures)
        truth = torch.ones_like(verdict) if as_real else torch.zeros_like(verdict)
        return F.binary_cross_entropy_with_logits(verdict, truth)

    def tell_apart(real: Tensor) -> Tensor:
        return judged(real, True) + judged(fake_like(real).detach(), False)

    def deceive(real: Tensor) -> Tensor:
        return judged(fake_like(real), True)

    def draw(source: Generator) -> tuple[Tensor, ...]:
        return (torch.randn(4, 20, generator=source).tanh(),)

    return Task([Player(discriminator, tell_apart), Player(generator, deceive)], draw)


def tiny_nasnet() -> nn.Module:
    return NASNetA(
        NASNetConfig(
            cells_per_stack=1, penultimate_filters=96, stem_filters=8, num_classes=10, imagenet_stem=False
        )
    )


MODELS: dict[str, Callable[[], Task]] = {
    "mlp": vectors(networks.mlp),
    "mlp_shared": vectors(lambda: networks.mlp(shared=True)),
    "mlp_own_function": vectors(lambda: networks.mlp(activation=networks.OwnActivation)),
    "resnet18": pictures(lambda: torchvision.models.resnet18(num_classes=10)),
    "mobilenet_v2": pictures(lambda: torchvision.models.mobilenet_v2(num_classes=10)),
    "efficientnet_b0": pictures(lambda: torchvision.models.efficientnet_b0(num_classes=10)),
    "nasnet_a": pictures(tiny_nasnet),
    "gpt": language(lambda: networks.GPT(VOCABULARY, LENGTH)),
    "gpt_checkpointed": language(lambda: networks.GPT(VOCABULARY, LENGTH, checkpointed=True)),
    "bert": bert,
    "unet": unet,
    "lstm": language(lambda: networks.LanguageLSTM(VOCABULARY)),
    "gan": gan,
}
