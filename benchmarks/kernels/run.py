"""Nimble's own kernels beside ATen's, at the shapes of networks at batch 1, in channels_last.

    python -m benchmarks.kernels.run [--half]

Prints a table. Each call is captured many times into one CUDA graph on one stream, so that only the GPU's time counts.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

import nimble  # noqa: F401 (registers the operators)

ops = torch.ops.nimble
CALLS, ROUNDS = 50, 9


def microseconds(run: Callable[[], object], calls: int = CALLS) -> float:
    """Of one call, inside a graph of many."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            run()
    times = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times)


Case = tuple[str, Callable[[], Tensor], dict[str, Callable[[], Tensor]]]


def depthwise(image: Callable, weights: Callable, channels: int, side: int, size: int, stride: int) -> Case:
    x, weight, bias = image(channels, side), weights(channels, 1, size, size), weights(channels)
    packed = weight.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)
    pad = size // 2
    title = f"depthwise {size}x{size}/{stride} {channels}x{side}x{side} + relu"
    aten = lambda: torch.relu(torch.conv2d(x, weight, bias, stride, pad, groups=channels))  # noqa: E731
    ours = {
        f"nimble {n}": lambda n=n: ops.depthwise_convolution(
            x, packed, bias, [stride] * 2, [pad] * 2, [1, 1], "none", "relu", n
        )
        for n in range(2)
    }
    return title, aten, ours


def max_pool(image: Callable, channels: int, side: int, size: int, stride: int, pad: int, ceil: bool) -> Case:
    x = image(channels, side)
    title = f"max_pool {size}/{stride} {channels}x{side}x{side}"
    aten = lambda: functional.max_pool2d(x, size, stride, pad, 1, ceil)  # noqa: E731
    ours = lambda: ops.max_pool2d(x, [size] * 2, [stride] * 2, [pad] * 2, [1, 1], ceil)  # noqa: E731
    return title, aten, {"nimble": ours}


def avg_pool(image: Callable, channels: int, side: int, size: int, stride: int, pad: int) -> Case:
    x = image(channels, side)
    title = f"avg_pool {size}/{stride} {channels}x{side}x{side}"
    aten = lambda: functional.avg_pool2d(x, size, stride, pad)  # noqa: E731
    ours = lambda: ops.avg_pool2d(x, [size] * 2, [stride] * 2, [pad] * 2, False, True)  # noqa: E731
    return title, aten, {"nimble": ours}


def global_pool(image: Callable, channels: int, side: int) -> Case:
    x = image(channels, side)
    aten = lambda: functional.adaptive_avg_pool2d(x, 1)  # noqa: E731
    return (
        f"global average {channels}x{side}x{side}",
        aten,
        {"nimble": lambda: ops.adaptive_avg_pool2d(x, [1, 1])},
    )


def dense(
    image: Callable, weights: Callable, inner: int, out: int, side: int, residual: bool = False
) -> Case:
    x, weight, bias = image(inner, side), weights(out, inner, 1, 1), weights(out)
    added = image(out, side) if residual else None
    title = f"1x1 {inner}->{out} {side}x{side}" + (" + residual" if residual else "") + " + relu"

    def aten() -> Tensor:
        y = torch.conv2d(x, weight, bias)
        return torch.relu(y if added is None else y + added)

    def cudnn() -> Tensor:
        arguments = ([1, 1], [0, 0], [1, 1], 1)
        if added is None:
            return torch.cudnn_convolution_relu(x, weight, bias, *arguments)
        return torch.cudnn_convolution_add_relu(x, weight, added, 1.0, bias, *arguments)

    ours = {
        f"nimble {n}": lambda n=n: ops.pointwise_convolution(x, weight, bias, added, "relu", n)
        for n in range(4)
    }
    return title, aten, {"cudnn": cudnn, **ours}


def pointwise(image: Callable, weights: Callable, channels: int, side: int) -> Case:
    x, y, bias = image(channels, side), image(channels, side), weights(channels).view(-1, 1, 1)
    expression = "%0 = add.Tensor(x0, x2, 1); %1 = add.Tensor(%0, x1, 1); %2 = relu(%1); return %2"
    aten = lambda: torch.relu(x + bias + y)  # noqa: E731
    return (
        f"bias + add + relu {channels}x{side}x{side}",
        aten,
        {"nimble": lambda: ops.pointwise([x, y, bias], expression)[0]},
    )


def cases(dtype: torch.dtype) -> list[Callable[[], Case]]:
    def image(channels: int, side: int) -> Tensor:
        x = torch.randn(1, channels, side, side, device="cuda", dtype=dtype)
        return x.contiguous(memory_format=torch.channels_last)

    def weights(*shape: int) -> Tensor:
        return (
            torch.randn(*shape, device="cuda")
            .div_(8)
            .to(dtype)
            .contiguous(memory_format=torch.channels_last if len(shape) == 4 else torch.contiguous_format)
        )

    return [
        # NASNet-A mobile
        lambda: depthwise(image, weights, 11, 112, 5, 2),
        lambda: depthwise(image, weights, 44, 28, 3, 1),
        lambda: depthwise(image, weights, 44, 28, 5, 1),
        lambda: depthwise(image, weights, 88, 14, 5, 1),
        lambda: depthwise(image, weights, 88, 28, 7, 2),
        lambda: depthwise(image, weights, 176, 7, 5, 1),
        # MobileNetV2
        lambda: depthwise(image, weights, 32, 112, 3, 1),
        lambda: depthwise(image, weights, 96, 112, 3, 2),
        lambda: depthwise(image, weights, 144, 56, 3, 1),
        lambda: depthwise(image, weights, 384, 14, 3, 1),
        lambda: depthwise(image, weights, 960, 7, 3, 1),
        # GoogLeNet, Inception-v3, ResNet-50
        lambda: max_pool(image, 64, 112, 3, 2, 1, False),
        lambda: max_pool(image, 64, 112, 3, 2, 0, True),
        lambda: max_pool(image, 192, 28, 3, 1, 1, True),
        lambda: max_pool(image, 480, 14, 3, 1, 1, True),
        lambda: max_pool(image, 832, 7, 3, 1, 1, True),
        lambda: avg_pool(image, 192, 35, 3, 1, 1),
        lambda: avg_pool(image, 768, 17, 3, 1, 1),
        lambda: avg_pool(image, 44, 28, 3, 1, 1),
        lambda: global_pool(image, 2048, 7),
        lambda: global_pool(image, 1280, 7),
        lambda: dense(image, weights, 64, 256, 56, True),
        lambda: dense(image, weights, 256, 64, 56),
        lambda: dense(image, weights, 512, 128, 28),
        lambda: dense(image, weights, 1024, 256, 14),
        lambda: dense(image, weights, 256, 1024, 14, True),
        lambda: dense(image, weights, 2048, 512, 7),
        lambda: dense(image, weights, 512, 2048, 7, True),
        lambda: dense(image, weights, 480, 192, 14),
        lambda: dense(image, weights, 1056, 176, 7),
        lambda: dense(image, weights, 96, 24, 56),
        lambda: dense(image, weights, 320, 1280, 7),
        lambda: pointwise(image, weights, 256, 56),
        lambda: pointwise(image, weights, 44, 28),
        lambda: pointwise(image, weights, 2048, 7),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.kernels.run", description=__doc__.splitlines()[0])
    parser.add_argument("--half", action="store_true", help="float16 instead of float32 with TF32")
    half = parser.parse_args().half
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device: this benchmark needs one")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    print("| work | ATen µs | ours µs | × | all |\n|---|--:|--:|--:|---|")
    with torch.inference_mode():
        for make in cases(torch.float16 if half else torch.float32):
            title, aten, others = make()
            times = {}
            for name, run in others.items():
                try:
                    times[name] = microseconds(run)
                except RuntimeError as error:  # cuDNN or cuBLASLt has no such kernel
                    times[name] = float("nan")
                    torch.cuda.synchronize()
                    print(f"<!-- {title}, {name}: {str(error).splitlines()[0]} -->")
            baseline = microseconds(aten)
            best = min(t for t in times.values() if t == t)
            each = ", ".join(f"{name} {time:.1f}" for name, time in times.items())
            print(f"| {title} | {baseline:.1f} | {best:.1f} | {baseline / best:.1f} | {each} |", flush=True)


if __name__ == "__main__":
    main()
