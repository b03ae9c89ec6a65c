"""ResNet-50 and ResNet-101 (He et al., 2016). At 224 x 224 and batch 32 a training step keeps a GPU busy by itself:
little is to gain, and nothing may be lost."""

from nimble.bench.workloads.kinds import (
    CLASSES,
    Inference,
    Training,
    picture_network,
    pictures,
    torchvision_network,
)

WORKLOADS = [
    Inference("resnet50", picture_network(torchvision_network("resnet50"), 224)),
    Inference("resnet101", picture_network(torchvision_network("resnet101"), 224)),
    Training("training/resnet50", torchvision_network("resnet50", num_classes=CLASSES), pictures(32)),
    Training(
        "training/resnet50_224",
        torchvision_network("resnet50", num_classes=CLASSES),
        pictures(224),
        batches=(32,),
    ),
]
