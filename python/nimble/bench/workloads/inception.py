"""GoogLeNet (Szegedy et al., 2015) and Inception-v3 (2016): blocks of four and more branches."""

from torch import Tensor, nn
from torch.nn import functional as F

from nimble.bench.workloads.kinds import (
    CLASSES,
    Inference,
    Training,
    picture_network,
    pictures,
    torchvision_network,
)

# init_weights draws truncated normals, which takes longer than everything else together.
PLAIN = {"aux_logits": False, "init_weights": False}


class Enlarged(nn.Module):
    """Inception-v3 needs 75 x 75 pixels, so 32 x 32 become 96 x 96 first. (The paper changed the network instead.)"""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(F.interpolate(x, size=(96, 96), mode="bilinear"))


WORKLOADS = [
    Inference("googlenet", picture_network(torchvision_network("googlenet", **PLAIN), 224)),
    Inference("inception_v3", picture_network(torchvision_network("inception_v3", **PLAIN), 299)),
    Training(
        "training/inception_v3",
        lambda: Enlarged(torchvision_network("inception_v3", num_classes=CLASSES, **PLAIN)()),
        pictures(32),
        draws_random_numbers=True,
    ),
]
