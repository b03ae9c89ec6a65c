"""The workloads by name, one file for each family.

    model, inputs = WORKLOADS["resnet50"].make(batch=1)

A file lists its own; a new one has only to be named here.
"""

from __future__ import annotations

from nimble.bench.paper import EIGHT_NETWORKS
from nimble.bench.workloads import (
    convnext,
    dcgan,
    densenet,
    efficientnet,
    inception,
    mobilenet,
    nasnet,
    resnet,
    tiny,
    transformer,
    video,
)
from nimble.bench.workloads.kinds import Example, Inference, Program, Training, Workload
from nimble.nearest import find

__all__ = ["GROUPS", "WORKLOADS", "Example", "Inference", "Program", "Training", "Workload", "chosen", "make"]

_FILES = (
    resnet,
    mobilenet,
    efficientnet,
    inception,
    nasnet,
    densenet,
    convnext,
    dcgan,
    video,
    transformer,
    tiny,
)
WORKLOADS: dict[str, Workload] = {workload.name: workload for file in _FILES for workload in file.WORKLOADS}

# Names for several at once.
GROUPS: dict[str, tuple[str, ...]] = {
    "paper": EIGHT_NETWORKS,
    "inference": (
        "resnet50",
        "resnet101",
        "mobilenet_v2",
        "efficientnet_b0",
        "efficientnet_b5",
        "googlenet",
        "inception_v3",
        "nasnet_a_mobile",
        "nasnet_a_large",
        "bert_base",
        "vit_b_16",
    ),
    "cpu": ("resnet50", "mobilenet_v2", "googlenet", "inception_v3", "nasnet_a_mobile", "add_one"),
    "quick": ("mobilenet_v2", "googlenet"),
    "training": (
        "training/mobilenet_v2",
        "training/efficientnet_b0",
        "training/resnet50",
        "training/nasnet_a_mobile",
        "training/inception_v3",
        "training/bert_base",
        "training/resnet50_224",
    ),
}


def chosen(names: list[str]) -> list[Workload]:
    """The workloads of these names and groups, each once."""
    known = [*GROUPS, *WORKLOADS]
    found = [member for name in names for member in GROUPS.get(name) or (find(name, known, "workload"),)]
    return [WORKLOADS[name] for name in dict.fromkeys(found)]


def make(name: str, batch: int = 1) -> Example:
    """The network in eval mode and a tuple of example inputs."""
    networks = [name for name, workload in WORKLOADS.items() if isinstance(workload, Inference)]
    return WORKLOADS[find(name, networks, "network")].make(batch)
