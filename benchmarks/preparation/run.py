"""How long it takes to prepare a rewritten network on a GPU, with an empty cache and with what that left behind.

    PYTHONPATH=build/python python benchmarks/preparation/run.py [--networks NAME...] [--dtype fp32] [--explain]

Each preparation has a process of its own, as services have that start. PyTorch runs the network first, so that what
cuDNN searches for eager is nobody's preparation, and afterwards it is timed, because all of this goes as fast as the
host does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
from nimble.bench.job import DTYPES
from nimble.bench.workloads import WORKLOADS

import nimble

NETWORKS = ["mobilenet_v2", "resnet50", "googlenet", "inception_v3", "nasnet_a_mobile"]
EAGER_RUNS, REPLAYS = 3, 100


def seconds_of(work) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


@torch.no_grad()
def prepare(network: str, dtype: torch.dtype) -> dict:
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    model, inputs = WORKLOADS[network].make(1)
    model = model.to("cuda", dtype)
    inputs = [x.to("cuda", dtype) if x.is_floating_point() else x.cuda() for x in inputs]
    for _ in range(EAGER_RUNS):
        model(*inputs)
    eager = seconds_of(lambda: model(*inputs))
    fast = nimble.compile(model, rewrites="default", strict=True)
    prepared = seconds_of(lambda: fast.prepare(*inputs))
    fast(*inputs)
    replay = seconds_of(lambda: [fast(*inputs) for _ in range(REPLAYS)]) / REPLAYS
    return {"prepared": prepared, "eager": eager, "replay": replay, "explain": fast.explain()}


def in_a_process(network: str, dtype: str, cache: str) -> dict:
    command = [sys.executable, __file__, "--networks", network, "--dtype", dtype, "--here"]
    result = subprocess.run(
        command, env=os.environ | {"NIMBLE_CACHE_DIR": cache}, stdout=subprocess.PIPE, check=True
    )
    return json.loads(result.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", choices=WORKLOADS, default=NETWORKS, metavar="NAME")
    parser.add_argument("--dtype", choices=DTYPES, default="fp32")
    parser.add_argument("--explain", action="store_true", help="also what each preparation did")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(prepare(arguments.networks[0], DTYPES[arguments.dtype])))
        return
    if not nimble.cuda_available():
        sys.exit(f"needs a GPU: {nimble.why_no_cuda()}")
    print("| network | eager ms | prepared s, empty cache | warm | replay ms |")
    print("|---|--:|--:|--:|--:|")
    for network in arguments.networks:
        with tempfile.TemporaryDirectory(prefix="nimble-preparation-") as cache:
            cold, warm = (in_a_process(network, arguments.dtype, cache) for _ in range(2))
        print(
            f"| {network} | {1e3 * warm['eager']:.1f} | {cold['prepared']:.2f} | {warm['prepared']:.2f} |"
            f" {1e3 * warm['replay']:.3f} |",
            flush=True,
        )
        if arguments.explain:
            print(cold["explain"], warm["explain"], sep="\n", flush=True)


if __name__ == "__main__":
    main()
