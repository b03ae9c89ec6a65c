"""ConvNeXt tiny (Liu et al., 2022): blocks that end in a scale and a sum over all of an image."""

from nimble.bench.workloads.kinds import Inference, picture_network, torchvision_network

WORKLOADS = [Inference("convnext_tiny", picture_network(torchvision_network("convnext_tiny"), 224))]
