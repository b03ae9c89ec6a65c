"""MobileNetV2 (Sandler et al., 2018) and MobileNetV3 small (Howard et al., 2019): long chains of small tasks."""

from nimble.bench.workloads.kinds import (
    CLASSES,
    Inference,
    Training,
    picture_network,
    pictures,
    torchvision_network,
)

WORKLOADS = [
    Inference("mobilenet_v2", picture_network(torchvision_network("mobilenet_v2"), 224)),
    Inference("mobilenet_v3_small", picture_network(torchvision_network("mobilenet_v3_small"), 224)),
    Training(
        "training/mobilenet_v2",
        torchvision_network("mobilenet_v2", num_classes=CLASSES),
        pictures(32),
        draws_random_numbers=True,
    ),
]
