"""DenseNet-121 (Huang et al., 2017): norms and activations come before the convolutions, so norms cannot fold."""

from nimble.bench.workloads.kinds import Inference, picture_network, torchvision_network

WORKLOADS = [Inference("densenet121", picture_network(torchvision_network("densenet121"), 224))]
