"""Batch norms in training with a relu behind them, forward and back, by our kernels beside cuDNN's and PyTorch's.

    python -m benchmarks.kernels.batch_norm

The batch norms of ResNet-50 at batch 32, in float32. Prints a table. Each call is captured many times into one CUDA
graph on one stream, one after the other.
"""

from __future__ import annotations

import torch

import nimble  # noqa: F401 (registers the operators)
from benchmarks.kernels.run import microseconds

aten, ops = torch.ops.aten, torch.ops.nimble

IMAGES, MOMENTUM, EPSILON = 32, 0.1, 1e-5
# Channels, side of the image.
NORMS = [
    (64, 112),
    (64, 56),
    (256, 56),
    (128, 28),
    (512, 28),
    (256, 14),
    (1024, 14),
    (512, 7),
    (2048, 7),
    (64, 8),
]


def times_of(channels: int, side: int) -> list[float]:
    x, gradient = (torch.randn(IMAGES, channels, side, side, device="cuda") for _ in range(2))
    weight, bias, mean = (torch.randn(channels, device="cuda") for _ in range(3))
    variance = torch.rand(channels, device="cuda") + 0.5
    layer = (x, weight, bias, mean, variance)
    y, batch_mean, inverse, room = aten.cudnn_batch_norm(*layer, True, MOMENTUM, EPSILON)
    activated = torch.relu(y)

    def theirs():
        return torch.relu(aten.cudnn_batch_norm(*layer, True, MOMENTUM, EPSILON)[0])

    def their_way_back():
        arriving = aten.threshold_backward(gradient, activated, 0)
        return aten.cudnn_batch_norm_backward(
            x, arriving, weight, mean, variance, batch_mean, inverse, EPSILON, room
        )

    def ours():
        return ops.batch_norm_training(*layer, MOMENTUM, EPSILON, None, "relu")

    def our_way_back():
        return ops.batch_norm_training_backward(gradient, x, weight, bias, batch_mean, inverse, "relu")

    return [microseconds(call) for call in (theirs, ours, their_way_back, our_way_back)]


def main() -> None:
    print("| channels, pixels | forward | ours | back | ours |\n|---|--:|--:|--:|--:|")
    for channels, side in NORMS:
        times = " | ".join(f"{time:.3g}" for time in times_of(channels, side))
        print(f"| {channels}, {side}×{side} | {times} |", flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
