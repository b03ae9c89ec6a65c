"""EfficientNet-B0 and B5 (Tan and Le, 2019)."""

from nimble.bench.workloads.kinds import (
    CLASSES,
    Inference,
    Training,
    picture_network,
    pictures,
    torchvision_network,
)

WORKLOADS = [
    Inference("efficientnet_b0", picture_network(torchvision_network("efficientnet_b0"), 224)),
    Inference("efficientnet_b5", picture_network(torchvision_network("efficientnet_b5"), 456)),
    Training(
        "training/efficientnet_b0",
        torchvision_network("efficientnet_b0", num_classes=CLASSES),
        pictures(32),
        draws_random_numbers=True,
    ),
]
