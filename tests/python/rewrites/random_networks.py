"""Random networks of what the rewrites look for: convolutions, batch norms, activations, sums, concatenations, pooling,
linear layers, layer norms, attention, chains of pointwise functions."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import nn

ACTIVATIONS = [
    nn.ReLU,
    lambda: nn.ReLU(inplace=True),
    nn.ReLU6,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.SiLU,
    nn.GELU,
    nn.Sigmoid,
    lambda: nn.LeakyReLU(0.1),
]


class Branches(nn.Module):
    """Two ways for one input, added or concatenated; `shared` lets somebody else look at the first way's result."""

    def __init__(self, left: nn.Module, right: nn.Module, join: str, shared: bool):
        super().__init__()
        self.left, self.right, self.join, self.shared = left, right, join, shared

    def forward(self, x):
        left, right = self.left(x), self.right(x)
        joined = left + right if self.join == "add" else torch.cat([left, right], 1)
        return joined + left.mean() if self.shared else joined


@st.composite
def convolutions(draw, channels: int, outputs: int, transposed: bool = False) -> nn.Module:
    groups = draw(st.sampled_from([g for g in (1, 2, 4) if channels % g == 0 and outputs % g == 0]))
    kernel = draw(st.sampled_from([1, 3]))
    padding = kernel // 2
    bias = draw(st.booleans())
    if transposed:
        return nn.ConvTranspose2d(channels, outputs, kernel, padding=padding, groups=groups, bias=bias)
    if draw(st.integers(0, 4)) == 0:  # padded by a layer of its own
        alone = nn.Conv2d(channels, outputs, kernel, groups=groups, bias=bias)
        return nn.Sequential(nn.ZeroPad2d(padding), alone)
    return nn.Conv2d(channels, outputs, kernel, padding=padding, groups=groups, bias=bias)


@st.composite
def chains(draw, channels: int, outputs: int) -> nn.Module:
    layers = []
    if draw(st.booleans()):
        layers.append(nn.BatchNorm2d(channels))
        if draw(st.booleans()):
            layers.append(draw(st.sampled_from(ACTIVATIONS))())
    layers.append(draw(convolutions(channels, outputs, transposed=draw(st.integers(0, 4)) == 0)))
    if draw(st.integers(0, 3)) > 0:
        layers.append(nn.BatchNorm2d(outputs, affine=draw(st.booleans())))
    if draw(st.booleans()):
        layers.append(draw(st.sampled_from(ACTIVATIONS))())
    return nn.Sequential(*layers)


class Mean(nn.Module):
    """Over the pixels, as many networks pool at their end."""

    def __init__(self, keep: bool):
        super().__init__()
        self.keep = keep

    def forward(self, x):
        return x.mean((2, 3), keepdim=self.keep)


@st.composite
def pools(draw) -> nn.Module:
    """That leave at least a pixel of the smallest image."""
    kernel = draw(st.sampled_from([1, 2, 3]))
    options = {
        "stride": draw(st.sampled_from([1, 2])),
        "padding": kernel // 2,
        "ceil_mode": draw(st.booleans()),
    }
    kind = draw(st.sampled_from(["max", "average", "adaptive", "mean"]))
    if kind == "max":
        return nn.MaxPool2d(kernel, **options)
    if kind == "average":
        divisor = draw(st.sampled_from([None, 2]))
        return nn.AvgPool2d(
            kernel, count_include_pad=draw(st.booleans()), divisor_override=divisor, **options
        )
    if kind == "adaptive":
        return nn.AdaptiveAvgPool2d((draw(st.integers(1, 4)), draw(st.integers(1, 4))))
    return Mean(keep=True)


@st.composite
def pooling_networks(draw) -> nn.Module:
    """Pooling before, behind and beside convolutions, so that its images lie in memory in either way."""
    layers: list[nn.Module] = []
    for _ in range(draw(st.integers(1, 4))):
        pool, shared = draw(pools()), draw(st.booleans())
        kind = draw(st.sampled_from(["chain", "add", "convolved"]))
        if kind == "chain":
            layers.append(pool)
        elif kind == "add":
            layers.append(Branches(pool, nn.Sequential(nn.ReLU(), pool), "add", shared))
        else:
            layers += [draw(chains(4, 4)), pool]
    if draw(st.booleans()):
        layers += [Mean(keep=False), nn.Linear(4, 5)]
    return with_statistics(nn.Sequential(*layers), seed=draw(st.integers(0, 2**16)))


@st.composite
def linear_networks(draw) -> nn.Module:
    """Linear layers with every activation, alone and beside each other, for inputs of eight numbers."""
    activations = [*ACTIVATIONS, lambda: nn.GELU(approximate="tanh"), nn.Tanh, nn.Identity]

    def layer() -> nn.Module:
        activation = draw(st.sampled_from(activations))()
        return nn.Sequential(nn.Linear(8, 8, bias=draw(st.integers(0, 3)) > 0), activation)

    layers: list[nn.Module] = []
    for _ in range(draw(st.integers(1, 5))):
        beside = draw(st.booleans())
        layers.append(Branches(layer(), layer(), "add", draw(st.booleans())) if beside else layer())
    return nn.Sequential(*layers).eval()


class Attention(nn.Module):
    """Every number of a sequence looks at every other, by a softmax that is written out."""

    def __init__(self, width: int, masked: bool):
        super().__init__()
        self.projection, self.result = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.masked = masked

    def forward(self, x):
        query, key, value = self.projection(x).chunk(3, -1)
        scores = query @ key.transpose(-2, -1) / x.shape[-1] ** 0.5
        if self.masked:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        return self.result(scores.softmax(-1) @ value)


class RmsNorm(nn.RMSNorm):
    """Written out, as most language models have it."""

    def forward(self, x):
        scaled = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return scaled if self.weight is None else self.weight * scaled


class Residual(nn.Module):
    """A layer of a transformer, with its norm before it, behind it, or behind the sum."""

    def __init__(self, layer: nn.Module, norm: nn.Module, place: str):
        super().__init__()
        self.layer, self.norm, self.place = layer, norm, place

    def forward(self, x):
        if self.place == "behind the sum":
            return self.norm(x + self.layer(x))
        return x + (self.layer(self.norm(x)) if self.place == "first" else self.norm(self.layer(x)))


@st.composite
def transformers(draw, width: int = 8) -> nn.Module:
    """Attention and linear layers in residual connections with norms, for sequences of `width` numbers each."""

    def norm() -> nn.Module:
        kind = draw(st.sampled_from([nn.LayerNorm, nn.LayerNorm, nn.RMSNorm, RmsNorm]))
        norm = kind(width, eps=1e-5, elementwise_affine=draw(st.booleans()))
        activation = draw(st.sampled_from([nn.Identity, nn.Identity, *ACTIVATIONS]))()
        return norm if isinstance(activation, nn.Identity) else nn.Sequential(norm, activation)

    def layer() -> nn.Module:
        if draw(st.booleans()):
            return Attention(width, masked=draw(st.booleans()))
        return nn.Sequential(nn.Linear(width, 16), draw(st.sampled_from(ACTIVATIONS))(), nn.Linear(16, width))

    places = st.sampled_from(["first", "behind the layer", "behind the sum"])
    layers = [Residual(layer(), norm(), draw(places)) for _ in range(draw(st.integers(1, 4)))]
    return nn.Sequential(*layers, norm()).eval()


@st.composite
def blocks(draw, channels: int) -> tuple[nn.Module, int]:
    kind = draw(st.sampled_from(["chain", "add", "cat", "pool", "normed sum", "normed cat"]))
    outputs = draw(st.sampled_from([4, 8]))
    if kind == "pool":
        return nn.MaxPool2d(3, stride=1, padding=1), channels
    if kind == "chain":
        return draw(chains(channels, outputs)), outputs
    activation, shared = draw(st.sampled_from(ACTIVATIONS))(), draw(st.booleans())
    if kind == "normed sum":  # with a norm that has no convolution before it
        branches = Branches(nn.BatchNorm2d(channels), draw(chains(channels, channels)), "add", shared)
        return nn.Sequential(branches, activation), channels
    if kind == "normed cat":  # of convolutions that nothing else is behind
        ways = [draw(convolutions(channels, outputs)) for _ in range(2)]
        norm = nn.BatchNorm2d(2 * outputs, affine=draw(st.booleans()))
        return nn.Sequential(Branches(*ways, "cat", shared), norm, activation), 2 * outputs
    ways = [draw(chains(channels, outputs)) for _ in range(2)]
    if draw(st.booleans()):  # as cells of NASNet begin
        ways = [nn.Sequential(nn.ReLU(), way) for way in ways]
    return nn.Sequential(Branches(*ways, kind, shared), activation), outputs * (2 if kind == "cat" else 1)


@st.composite
def networks(draw) -> nn.Module:
    channels, layers = 4, []
    for _ in range(draw(st.integers(1, 4))):
        block, channels = draw(blocks(channels))
        layers.append(block)
    if draw(st.booleans()):
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 6, bias=draw(st.booleans()))]
        if draw(st.booleans()):
            layers += [nn.BatchNorm1d(6)]
    return with_statistics(nn.Sequential(*layers), seed=draw(st.integers(0, 2**16)))


def with_statistics(model: nn.Module, seed: int) -> nn.Module:
    """In inference, with batch norms that have seen something."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean.copy_(torch.randn(module.num_features, generator=generator))
            module.running_var.copy_(torch.rand(module.num_features, generator=generator) + 0.5)
            if module.affine:
                with torch.no_grad():
                    module.weight.copy_(torch.rand(module.num_features, generator=generator) + 0.5)
                    module.bias.copy_(torch.randn(module.num_features, generator=generator))
    return model.eval()


UNARY = [torch.relu, torch.sigmoid, torch.tanh, torch.exp, nn.functional.silu, nn.functional.hardswish]
BINARY = [torch.add, torch.sub, torch.mul, torch.maximum]


class Pointwise(nn.Module):
    """Each step makes one more value of the one before it and of another, or of a weight of some shape."""

    def __init__(self, steps: list[tuple], shared: bool):
        super().__init__()
        self.steps, self.shared = steps, shared
        shapes = [weight for _, weight in steps if isinstance(weight, tuple)]
        self.weights = nn.ParameterList(torch.randn(shape) for shape in shapes)

    def forward(self, x):
        weights = iter(self.weights)
        values = [x]
        for function, other in self.steps:
            if function in UNARY:
                values.append(function(values[-1].clamp(-4, 4)))
            elif isinstance(other, tuple):
                values.append(function(values[-1], next(weights)))
            elif isinstance(other, float):
                values.append(values[-1] * other + 1)
            else:
                values.append(function(values[-1], values[other % len(values)]))
        return values[-1] + values[len(values) // 2].mean() if self.shared else values[-1]


@st.composite
def pointwise_programs(draw) -> nn.Module:
    """Over images of six channels."""
    shapes = st.sampled_from([(6, 1, 1), (1, 6, 1, 1), (1,), (6, 7, 7)])
    others = st.one_of(shapes, st.floats(-2, 2, width=16), st.integers(0, 9))
    steps = draw(st.lists(st.tuples(st.sampled_from(UNARY + BINARY), others), min_size=2, max_size=9))
    return Pointwise(steps, draw(st.booleans())).eval()
