"""Figures of the paper "Nimble: Lightweight and Parallel GPU Task Scheduling for Deep Learning" (Kwon, Yu, Jeong and
Chun, NeurIPS 2020), measured there on a V100. Only those that its text states as numbers: its bars are not guessed
from the pictures."""

IDLE_SHARE_AT_MOST = {"PyTorch": 0.91, "TensorFlow": 0.71}
INFERENCE_SPEED_UP_AT_MOST = 22.34  # over PyTorch, batch 1
TRAINING_SPEED_UP_AT_MOST = 3.61  # over PyTorch
DEGREE_OF_CONCURRENCY = {"nasnet_a_mobile": 15}
EIGHT_NETWORKS = (  # of its inference figure
    "resnet50",
    "resnet101",
    "mobilenet_v2",
    "efficientnet_b0",
    "efficientnet_b5",
    "inception_v3",
    "nasnet_a_mobile",
    "nasnet_a_large",
)
