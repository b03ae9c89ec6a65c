"""Products by our own kernel, alone and with the depthwise convolution before them, beside cuBLASLt and two kernels.

    python -m benchmarks.kernels.products [--half] [--candidates N]

The convolutions of MobileNetV2 and NASNet-A mobile at batch 1, in channels_last. Prints a table. Each call is captured
twenty times into one CUDA graph on one stream, one after the other, as in a network. Kernels are compiled on all cores
beforehand. `NIMBLE_DEPENDENT_LAUNCH=0` shows what launching kernels ahead of their turn is worth.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

import nimble  # noqa: F401 (registers the operators)
from benchmarks.kernels.run import microseconds

ops = torch.ops.nimble
PROPOSALS = 3  # of cuBLASLt's

# Inner channels, channels, side of the image, whether something is added, the activation.
PRODUCTS = [
    (32, 16, 112, False, "none"),
    (16, 96, 112, False, "relu6"),
    (24, 144, 56, False, "relu6"),
    (144, 24, 56, True, "none"),
    (32, 192, 28, False, "relu6"),
    (192, 32, 28, True, "none"),
    (64, 384, 14, False, "relu6"),
    (384, 64, 14, True, "none"),
    (96, 576, 14, False, "relu6"),
    (160, 960, 7, False, "relu6"),
    (960, 160, 7, True, "none"),
    (320, 1280, 7, False, "relu6"),
    (11, 11, 56, False, "relu"),
    (44, 44, 28, False, "relu"),
    (264, 44, 28, False, "relu"),
    (88, 88, 14, False, "relu"),
    (528, 88, 14, False, "relu"),
    (176, 176, 7, False, "relu"),
    (1056, 176, 7, False, "relu"),
]
# Channels, channels behind them, side, size of the filter, stride, activations before, between and behind.
SEPARABLE = [
    (32, 16, 112, 3, 1, "none", "relu6", "none"),
    (96, 24, 112, 3, 2, "none", "relu6", "none"),
    (144, 24, 56, 3, 1, "none", "relu6", "none"),
    (192, 32, 28, 3, 1, "none", "relu6", "none"),
    (384, 64, 14, 3, 1, "none", "relu6", "none"),
    (576, 96, 14, 3, 1, "none", "relu6", "none"),
    (576, 160, 14, 3, 2, "none", "relu6", "none"),
    (960, 160, 7, 3, 1, "none", "relu6", "none"),
    (960, 320, 7, 3, 1, "none", "relu6", "none"),
    (32, 11, 111, 7, 2, "relu", "none", "relu"),
    (11, 11, 56, 7, 1, "none", "none", "none"),
    (22, 22, 56, 5, 2, "relu", "none", "relu"),
    (44, 44, 28, 3, 1, "relu", "none", "relu"),
    (44, 44, 28, 5, 1, "none", "none", "none"),
    (88, 88, 28, 7, 2, "relu", "none", "relu"),
    (88, 88, 14, 3, 1, "relu", "none", "relu"),
    (88, 88, 14, 5, 1, "none", "none", "none"),
    (176, 176, 7, 3, 1, "relu", "none", "relu"),
    (176, 176, 7, 5, 1, "none", "none", "none"),
]

Way = Callable[[], Tensor]
Case = tuple[str, dict[str, Way], dict[str, Way]]  # a title, others, ours


def image(channels: int, side: int, dtype: torch.dtype) -> Tensor:
    x = torch.randn(1, channels, side, side, device="cuda", dtype=dtype)
    return x.contiguous(memory_format=torch.channels_last)


def weights(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, device="cuda").div_(8).to(dtype)


def product(dtype: torch.dtype, candidates: int, inner, out, side, with_residual, activation) -> Case:
    x, weight, bias = (
        image(inner, side, dtype),
        weights(out, inner, 1, 1, dtype=dtype),
        weights(out, dtype=dtype),
    )
    residual = image(out, side, dtype) if with_residual else None
    arguments = (x, weight, bias, residual, activation)
    lt = {f"lt {n}": lambda n=n: ops.pointwise_convolution(*arguments, n) for n in range(PROPOSALS)}
    ours = {f"{n}": lambda n=n: ops.matrix_convolution(*arguments, n) for n in range(candidates)}
    added = " + residual" if with_residual else ""
    return f"1x1 {inner}->{out} {side}x{side}{added} {activation}", lt, ours


def separable(
    dtype: torch.dtype, candidates: int, channels, out, side, size, stride, before, between, after
) -> Case:
    x, weight, bias = (
        image(channels, side, dtype),
        weights(out, channels, 1, 1, dtype=dtype),
        weights(out, dtype=dtype),
    )
    filters = weights(size, size, 1, channels, dtype=dtype).permute(3, 2, 0, 1)
    shift = weights(channels, dtype=dtype)
    steps = ([stride] * 2, [size // 2] * 2, [1, 1], before, between)

    def apart(dense: Callable, n: int) -> Tensor:
        y = ops.depthwise_convolution(x, filters, shift, *steps)
        return dense(y, weight, bias, None, after, n)

    two = {f"lt {n}": lambda n=n: apart(ops.pointwise_convolution, n) for n in range(PROPOSALS)}
    two |= {f"ours {n}": lambda n=n: apart(ops.matrix_convolution, n) for n in range(2)}
    ours = {
        f"{n}": lambda n=n: ops.matrix_convolution(x, weight, bias, None, after, n, filters, shift, *steps)
        for n in range(candidates)
    }
    return f"depthwise {size}x{size}/{stride} {channels} + 1x1 ->{out} {side}x{side}", two, ours


def compile_all(ways: list[Way]) -> None:
    def once(way: Way) -> None:
        with contextlib.suppress(RuntimeError):  # no such candidate: left out below
            way()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(once, ways))
    torch.cuda.synchronize()


def timed(ways: dict[str, Way]) -> dict[str, float]:
    times = {}
    for name, way in ways.items():
        try:
            times[name] = microseconds(way, calls=20)
        except RuntimeError as error:
            if "there is no number" not in str(error):
                raise
    return times


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.kernels.products", description=__doc__.splitlines()[0])
    parser.add_argument("--half", action="store_true", help="float16 instead of float32 with TF32")
    parser.add_argument("--candidates", type=int, default=6, help="how many of ours are tried")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device: this benchmark needs one")
    torch.backends.cudnn.allow_tf32 = True
    dtype = torch.float16 if options.half else torch.float32
    cases = [product(dtype, options.candidates, *case) for case in PRODUCTS]
    cases += [separable(dtype, options.candidates, *case) for case in SEPARABLE]
    compile_all(list(itertools.chain.from_iterable([*a.values(), *b.values()] for _, a, b in cases)))
    print("| work | cuBLASLt or two µs | ours µs | × | all |\n|---|--:|--:|--:|---|")
    with torch.inference_mode():
        for title, others, ours in cases:
            other_times, our_times = timed(others), timed(ours)
            other, our = min(other_times.values()), min(our_times.values())
            each = ", ".join(f"{name}: {time:.2f}" for name, time in {**other_times, **our_times}.items())
            print(f"| {title} | {other:.2f} | {our:.2f} | {other / our:.2f} | {each} |", flush=True)


if __name__ == "__main__":
    main()
