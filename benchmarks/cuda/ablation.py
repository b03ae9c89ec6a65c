"""What each rewrite gains on a GPU, batch 1: one more of them from row to row.

    python -m benchmarks.cuda.ablation [--half] [MODEL ...]

Prints a table: median milliseconds of a replay, tasks, and seconds of preparation (kernels compiled before come from
the cache on disk). Results are compared with a run in float64: beside each error stands the one of eager.
"""

from __future__ import annotations

import argparse
import gc
import time

import torch
from benchmarks.cuda.run import on_gpu
from benchmarks.measure import time_in_turn

import nimble

MODELS = ["resnet50", "inception_v3", "googlenet", "nasnet_a_mobile", "mobilenet_v2"]


def error(result: torch.Tensor, exact: torch.Tensor) -> float:
    return ((result.double() - exact).abs().max() / exact.abs().max()).item()


def measure(name: str, half: bool) -> None:
    model, (x,) = on_gpu(name, half)
    dtype = x.dtype
    with torch.inference_mode():
        eager = model(x)
        exact = model.double()(x.double())
        model.to(dtype)
        compiled, prepared, chosen = {}, {}, []
        for rewrite in ["none", *nimble.rewrites()]:
            chosen = [*chosen, rewrite] if rewrite != "none" else []
            title = f"+ {rewrite}" if chosen else "none"
            start = time.perf_counter()
            compiled[title] = nimble.compile(model, strict=True, rewrites=chosen or "none").prepare(x)
            torch.cuda.synchronize()
            prepared[title] = time.perf_counter() - start
        timings = time_in_turn(
            {t: (lambda f=f: f(x)) for t, f in compiled.items()}, 0.5, fewest=200, most=2000
        )
        for title, fast in compiled.items():
            cells = [
                name,
                title,
                f"{timings[title].median:.3f}",
                str(fast.stats["tasks"]),
                f"{prepared[title]:.1f}",
                f"{error(fast(x), exact):.1e} ({error(eager, exact):.1e})",
            ]
            print("| " + " | ".join(cells) + " |", flush=True)
        print(f"\n{compiled[title].explain()}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.cuda.ablation", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", default=MODELS)
    parser.add_argument("--half", action="store_true", help="float16 instead of float32 with TF32")
    arguments = parser.parse_args()
    if not nimble.cuda_available():
        raise SystemExit("no CUDA device: this benchmark needs one")
    print("| model | rewrites | ms | tasks | prepared s | error (eager's) |\n|---|---|--:|--:|--:|---|")
    for name in arguments.models:
        measure(name, arguments.half)
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
