"""Inference on a GPU, batch 1: eager, a one-stream CUDA graph and Nimble in one run.

    make bench-cuda            (python -m benchmarks.cuda.run [--quick] [--half] [--out FOLDER] [MODEL ...])

Writes cuda.json and cuda.md to the folder (build/benchmarks). Everybody gets the same weights, inputs and settings:
float32 with TF32 convolutions (or --half), cudnn.benchmark on. Results are compared with eager's, bit by bit, before
anything is timed. Memory is what each would need in a process of its own: PyTorch's cuBLAS workspaces, which it keeps
from one graph to the next, are let go of before each graph is captured, as is everything of the model before.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.progress import track
from torch.utils import _pytree as pytree

import nimble
from benchmarks.measure import as_json, machine, time_in_turn
from benchmarks.models import MODELS, make

DEFAULT = [
    "resnet50",
    "resnet101",
    "mobilenet_v2",
    "efficientnet_b0",
    "efficientnet_b5",
    "googlenet",
    "inception_v3",
    "nasnet_a_mobile",
    "nasnet_a_large",
    "bert_base",
    "vit_b_16",
]


def on_gpu(name: str, half: bool) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    model, inputs = make(name)
    dtype = torch.float16 if half else torch.float32
    cast = lambda t: t.cuda().to(dtype) if t.is_floating_point() else t.cuda()  # noqa: E731
    return model.cuda().to(dtype), tuple(cast(tensor) for tensor in inputs)


def same(a: object, b: object) -> bool:
    pairs = zip(pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True)
    return all(torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in pairs)


class OneStreamGraph:
    """What torch.cuda.graph gives: the same kernels, captured on one stream."""

    def __init__(self, model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]):
        torch.cuda.synchronize()
        # PyTorch keeps a cuBLAS workspace for the stream of captures, so only the first graph's pool would hold one.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        start = time.perf_counter()
        self.inputs = tuple(tensor.clone() for tensor in inputs)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = model(*self.inputs)
        torch.cuda.synchronize()
        self.prepare_seconds = time.perf_counter() - start
        self.pool_bytes = torch.cuda.memory_reserved() - before

    def call(self, inputs: tuple[torch.Tensor, ...]) -> object:
        """As safe as eager: inputs copied in, outputs the caller's own."""
        for mine, given in zip(self.inputs, inputs, strict=True):
            mine.copy_(given)
        self.graph.replay()
        return pytree.tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, self.outputs)


def host_microseconds(run: Callable[[], object], calls: int = 50) -> float:
    """How long the host is busy with one call, while the GPU has nothing to do but keep up."""
    times = []
    for _ in range(calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e6)
    return sorted(times)[calls // 2]


def host_time_from_cpp() -> dict[str, float]:
    """Of benchmarks/cuda/host_time.cpp, where it was built: what a call costs without Python."""
    program = Path("build/benchmarks/cuda/bench_cuda_host_time")
    if not program.exists():
        return {}
    result = subprocess.run([program], capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{program}: {result.stderr}")
    return json.loads(result.stdout)


def active_share(run: Callable[[], object], runs: int = 20) -> float:
    """The share of wall time in which at least one kernel runs, from the profiler's kernel records."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(runs):
            run()
        torch.cuda.synchronize()
    spans = sorted(
        (e.time_range.start, e.time_range.end) for e in profiler.events() if e.device_type.name == "CUDA"
    )
    busy, end = 0.0, spans[0][0]
    for start, stop in spans:
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return busy / (end - spans[0][0])


def active_shares(names: list[str], half: bool) -> dict[str, dict[str, float]]:
    """In a process of its own: after profiling, the same graph measures slower."""
    command = [sys.executable, "-m", "benchmarks.cuda.run", "--active", *names] + (["--half"] if half else [])
    result = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    return {share.pop("model"): share for share in map(json.loads, lines)}


def print_active_shares(names: list[str], half: bool) -> None:
    for name in names:
        model, inputs = on_gpu(name, half)
        with torch.inference_mode():
            for _ in range(2):
                model(*inputs)
            fast = nimble.compile(model, strict=True, tune=0.1).prepare(*inputs)
            eager, replay = (
                active_share(lambda m=model, x=inputs: m(*x)),
                active_share(lambda f=fast, x=inputs: f(*x)),
            )
        print(json.dumps({"model": name, "eager": eager, "nimble": replay}), flush=True)


def measure(name: str, half: bool, seconds: float) -> dict:
    model, inputs = on_gpu(name, half)
    with torch.inference_mode():
        start = time.perf_counter()
        model(*inputs)
        torch.cuda.synchronize()
        search_seconds = time.perf_counter() - start  # cuDNN's search, which everybody needs once
        expected = model(*inputs)
        graph = OneStreamGraph(model, inputs)
        prepared = {}
        compiled = {}
        for title, options in {"nimble": {}, "nimble, one stream": {"streams": 1}}.items():
            start = time.perf_counter()
            compiled[title] = nimble.compile(model, strict=True, **options).prepare(*inputs)
            torch.cuda.synchronize()
            prepared[title] = time.perf_counter() - start
            if not same(compiled[title](*inputs), expected):
                raise SystemExit(f"{name}: {title} differs from eager")
        timings = time_in_turn(
            {
                "eager": lambda: model(*inputs),
                "graph": graph.graph.replay,
                "graph with copies": lambda: graph.call(inputs),
                **{title: (lambda f=f: f(*inputs)) for title, f in compiled.items()},
            },
            seconds,
            fewest=200,
            most=2000,
        )
        fast = compiled["nimble"]
        stats = fast.stats
        return {
            "model": name,
            "dtype": "float16" if half else "float32",
            "timings": as_json(timings),
            "over_eager": timings["eager"].median / timings["nimble"].median,
            "over_graph": timings["graph"].median / timings["nimble"].median,
            "over_graph_with_copies": timings["graph with copies"].median / timings["nimble"].median,
            "cudnn_search_seconds": search_seconds,
            "prepare_seconds": prepared,
            "graph_prepare_seconds": graph.prepare_seconds,
            "graph_pool_bytes": graph.pool_bytes,
            "host_microseconds": {
                "eager": host_microseconds(lambda: model(*inputs)),
                "graph": host_microseconds(graph.graph.replay),
                "nimble": host_microseconds(lambda: fast(*inputs)),
            },
            "stats": stats,
            "explain": fast.explain(),
        }


def table(report: dict) -> str:
    head = [
        "model",
        "eager ms",
        "graph ms",
        "+copies ms",
        "Nimble, one stream ms",
        "Nimble ms (p5–p95)",
        "× eager",
        "× graph",
        "× graph+copies",
        "tasks",
        "streams",
        "syncs",
        "memory MiB",
        "graph's pool MiB",
        "prepared s",
        "host µs",
        "graph host µs",
        "active: eager",
        "Nimble",
    ]
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    for row in report["rows"]:
        t, stats, active = row["timings"], row["stats"], row.get("active", {})
        memory = stats["arena_bytes"] + stats["static_bytes"] + stats["workspace_bytes"]
        cells = [
            row["model"],
            f"{t['eager']['median']:.2f}",
            f"{t['graph']['median']:.3f}",
            f"{t['graph with copies']['median']:.3f}",
            f"{t['nimble, one stream']['median']:.3f}",
            f"**{t['nimble']['median']:.3f}** ({t['nimble']['p5']:.3f}–{t['nimble']['p95']:.3f})",
            f"{row['over_eager']:.1f}",
            f"{row['over_graph']:.2f}",
            f"{row['over_graph_with_copies']:.2f}",
            *(str(stats[key]) for key in ("tasks", "streams", "syncs")),
            f"{memory / 2**20:.1f}",
            f"{row['graph_pool_bytes'] / 2**20:.1f}",
            f"{row['prepare_seconds']['nimble']:.2f}",
            f"{row['host_microseconds']['nimble']:.0f}",
            f"{row['host_microseconds']['graph']:.0f}",
            *(f"{active[key]:.0%}" if key in active else "–" for key in ("eager", "nimble")),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    if host := report["host_time_from_cpp"]:
        lines += [
            "",
            f"From C++ one call of {host['kernels']} small kernels keeps the host busy for "
            f"{host['call_microseconds']:.1f} µs ({host['call_with_shared_results_microseconds']:.1f} µs if results "
            f"may be overwritten by the next call), a bare cudaGraphLaunch of them for "
            f"{host['graph_launch_microseconds']:.1f} µs.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.cuda.run", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--quick", action="store_true", help="half the time, no profiler")
    parser.add_argument("--half", action="store_true", help="float16 instead of float32")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), metavar="FOLDER")
    parser.add_argument("--active", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not nimble.cuda_available():
        raise SystemExit("no CUDA device: this benchmark needs one (make bench-cpu does not)")
    unknown = [name for name in arguments.models if name not in MODELS]
    if unknown:
        parser.error(f"no model named {unknown[0]!r}; there are {', '.join(MODELS)}")
    names = arguments.models or DEFAULT
    if arguments.active:
        return print_active_shares(names, arguments.half)
    arguments.out.mkdir(parents=True, exist_ok=True)
    suffix = "_half" if arguments.half else ""
    report: dict = {
        "machine": machine(),
        "command": "make bench-cuda",
        "rows": [],
        "host_time_from_cpp": host_time_from_cpp(),
    }

    def write() -> None:  # after every model, so that nothing measured is lost
        (arguments.out / f"cuda{suffix}.json").write_text(json.dumps(report, indent=1))
        (arguments.out / f"cuda{suffix}.md").write_text(table(report))

    for name in track(names, description="timing"):
        report["rows"].append(measure(name, arguments.half, 0.5 if arguments.quick else 1.0))
        gc.collect()  # modules and compiled functions refer to each other
        torch.cuda.empty_cache()
        write()
    if not arguments.quick:
        shares = active_shares(names, arguments.half)
        for row in report["rows"]:
            row["active"] = shares.get(row["model"], {})
        write()
    print(table(report))


if __name__ == "__main__":
    main()
