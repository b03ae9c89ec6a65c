"""NASNet-A (Zoph et al., "Learning Transferable Architectures for Scalable Image Recognition", CVPR 2018).

A network is a stem and three stacks of N normal cells with a reduction cell before the second and third.
Every cell looks at the outputs of the two cells before it, `current` and `previous`, and joins five small
blocks, each the sum of two branches. Many branches are independent of each other, which makes this the
network with the most parallelism among the common ones: the paper on Nimble measures a degree of concurrency
of 15 on the mobile variant.

    NASNet-A (4 @ 1056), "mobile":  224 x 224,  5.3 M parameters
    NASNet-A (6 @ 4032), "large":   331 x 331, 88.9 M parameters
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nimble.bench.workloads.kinds import Inference, Training, picture_network, pictures


@dataclass(frozen=True)
class NASNetConfig:
    """The free choices of the architecture; `penultimate_filters` is the second number of N @ filters."""

    cells_per_stack: int
    penultimate_filters: int
    stem_filters: int
    num_classes: int = 1000
    # ImageNet's stem halves the picture three times before the first stack; CIFAR's keeps 32 x 32.
    imagenet_stem: bool = True
    # In the large variant the first cell after a reduction takes as `previous` what the reduction took.
    skip_reduction_input: bool = False

    @property
    def filters(self) -> int:
        # The last stack's cells have four times the first stack's filters and join six branches.
        return self.penultimate_filters // 24


MOBILE = NASNetConfig(cells_per_stack=4, penultimate_filters=1056, stem_filters=32)
LARGE = NASNetConfig(cells_per_stack=6, penultimate_filters=4032, stem_filters=96, skip_reduction_input=True)


def batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


def max_pool(stride: int) -> nn.Module:
    return nn.MaxPool2d(3, stride=stride, padding=1)


def average_pool(stride: int) -> nn.Module:
    return nn.AvgPool2d(3, stride=stride, padding=1, count_include_pad=False)


class SeparableConv(nn.Sequential):
    """A depthwise convolution and a 1x1 one, twice, each after a ReLU and before a batch norm."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__(
            *self.half(in_channels, out_channels, kernel, stride),
            *self.half(out_channels, out_channels, kernel, 1),
        )

    @staticmethod
    def half(in_channels: int, out_channels: int, kernel: int, stride: int) -> list[nn.Module]:
        return [
            nn.ReLU(),
            nn.Conv2d(
                in_channels, in_channels, kernel, stride, padding=kernel // 2, groups=in_channels, bias=False
            ),
            nn.Conv2d(in_channels, out_channels, 1, bias=False),
            batch_norm(out_channels),
        ]


class Project(nn.Sequential):
    """Brings a cell's input to the cell's number of filters."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(
            nn.ReLU(), nn.Conv2d(in_channels, out_channels, 1, bias=False), batch_norm(out_channels)
        )


class HalveAndProject(nn.Module):
    """As Project, and halves the picture: half of the filters see even pixels, the others odd ones."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(in_channels, out_channels // 2, 1, stride=2, bias=False)
        self.odd = nn.Conv2d(in_channels, out_channels - out_channels // 2, 1, stride=2, bias=False)
        self.norm = batch_norm(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x)
        shifted = nn.functional.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        return self.norm(torch.cat([self.even(x), self.odd(shifted)], dim=1))


class Cell(nn.Module):
    """What both kinds of cells share: inputs brought to the same filters and size.

    `adapt_previous` makes the layer for the older input: Project, HalveAndProject where that input is twice
    as large, nn.Identity to leave it as it is.
    """

    def __init__(
        self, previous_channels: int, channels: int, filters: int, adapt_previous: type[nn.Module]
    ) -> None:
        super().__init__()
        self.adapt_previous = adapt_previous(previous_channels, filters)
        self.adapt_current = Project(channels, filters)


class NormalCell(Cell):
    """Keeps the size; 6 x filters channels come out."""

    def __init__(
        self, previous_channels: int, channels: int, filters: int, adapt_previous: type[nn.Module] = Project
    ) -> None:
        super().__init__(previous_channels, channels, filters, adapt_previous)
        self.current_5x5 = SeparableConv(filters, filters, 5)
        self.previous_3x3 = SeparableConv(filters, filters, 3)
        self.previous_5x5 = SeparableConv(filters, filters, 5)
        self.previous_3x3_again = SeparableConv(filters, filters, 3)
        self.current_3x3 = SeparableConv(filters, filters, 3)
        self.pool = average_pool(stride=1)

    def forward(self, current: Tensor, previous: Tensor) -> Tensor:
        current, previous = self.adapt_current(current), self.adapt_previous(previous)
        return torch.cat(
            [
                previous,
                self.current_5x5(current) + self.previous_3x3(previous),
                self.previous_5x5(previous) + self.previous_3x3_again(previous),
                self.pool(current) + previous,
                self.pool(previous) + self.pool(previous),
                self.current_3x3(current) + current,
            ],
            dim=1,
        )


class ReductionCell(Cell):
    """Halves the size; 4 x filters channels come out."""

    def __init__(
        self, previous_channels: int, channels: int, filters: int, adapt_previous: type[nn.Module] = Project
    ) -> None:
        super().__init__(previous_channels, channels, filters, adapt_previous)
        adapted = previous_channels if adapt_previous is nn.Identity else filters
        self.current_5x5 = SeparableConv(filters, filters, 5, stride=2)
        self.previous_7x7 = SeparableConv(adapted, filters, 7, stride=2)
        self.previous_7x7_again = SeparableConv(adapted, filters, 7, stride=2)
        self.previous_5x5 = SeparableConv(adapted, filters, 5, stride=2)
        self.first_3x3 = SeparableConv(filters, filters, 3)
        self.max_pool = max_pool(stride=2)
        self.halving_pool = average_pool(stride=2)
        self.pool = average_pool(stride=1)

    def forward(self, current: Tensor, previous: Tensor) -> Tensor:
        current, previous = self.adapt_current(current), self.adapt_previous(previous)
        first = self.current_5x5(current) + self.previous_7x7(previous)
        second = self.max_pool(current) + self.previous_7x7_again(previous)
        return torch.cat(
            [
                second,
                self.halving_pool(current) + self.previous_5x5(previous),
                self.pool(first) + second,
                self.first_3x3(first) + self.max_pool(current),
            ],
            dim=1,
        )


class NASNetA(nn.Module):
    """The whole network. Pictures (n, 3, h, w) in, logits (n, num_classes) out."""

    def __init__(self, config: NASNetConfig = MOBILE) -> None:
        super().__init__()
        self.config = config
        filters = config.filters
        self.stem = nn.Sequential(
            # Without padding, as the paper's ImageNet models: 224 becomes 111.
            nn.Conv2d(3, config.stem_filters, 3, stride=2, bias=False)
            if config.imagenet_stem
            else nn.Conv2d(3, config.stem_filters, 3, padding=1, bias=False),
            batch_norm(config.stem_filters),
        )
        # Two halvings by cells, at a quarter and a half of the filters; the first sees the stem alone.
        self.stem_cells = nn.ModuleList()
        channels = [config.stem_filters, config.stem_filters]
        if config.imagenet_stem:
            self.stem_cells.append(ReductionCell(*channels, filters // 4, adapt_previous=nn.Identity))
            channels = [config.stem_filters, filters]
            self.stem_cells.append(ReductionCell(*channels, filters // 2, adapt_previous=HalveAndProject))
            channels = [filters, 2 * filters]

        self.reductions = nn.ModuleList()
        self.stacks = nn.ModuleList()
        for stack in range(3):
            if stack > 0:
                filters *= 2
                self.reductions.append(ReductionCell(*channels, filters))
                channels = [channels[0] if config.skip_reduction_input else channels[1], 4 * filters]
            cells = nn.ModuleList()
            for index in range(config.cells_per_stack):
                after_halving = index == 0 and (stack > 0 or config.imagenet_stem)
                cells.append(NormalCell(*channels, filters, HalveAndProject if after_halving else Project))
                channels = [channels[1], 6 * filters]
            self.stacks.append(cells)
        self.dropout = nn.Dropout(0.5)
        self.classifier = nn.Linear(6 * filters, config.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        previous = current = self.stem(x)
        for cell in self.stem_cells:
            previous, current = current, cell(current, previous)
        for stack, cells in enumerate(self.stacks):
            if stack > 0:
                reduced = self.reductions[stack - 1](current, previous)
                previous = previous if self.config.skip_reduction_input else current
                current = reduced
            for cell in cells:
                previous, current = current, cell(current, previous)
        features = torch.relu(current).mean(dim=(2, 3))
        return self.classifier(self.dropout(features))


def nasnet_a_mobile() -> NASNetA:
    return NASNetA(MOBILE)


def nasnet_a_large() -> NASNetA:
    return NASNetA(LARGE)


WORKLOADS = [
    Inference("nasnet_a_mobile", picture_network(nasnet_a_mobile, 224)),
    Inference("nasnet_a_large", picture_network(nasnet_a_large, 331)),
    Training("training/nasnet_a_mobile", nasnet_a_mobile, pictures(32), draws_random_numbers=True),
]
