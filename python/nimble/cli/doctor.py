"""`nimble doctor`: what is installed, which GPU, what would not work and why."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import nimble
from nimble.bench.machine import ask_nvidia_smi
from nimble.cli import plan
from nimble.cli.outputs import Page
from nimble.exit_codes import BROKEN, FINE, WrongInput
from nimble.packages import PINNED, version_of
from nimble.processor import processor_name
from nimble.progress import progress_bar
from nimble.settings import compile_options

SUMMARY = "what is installed, which GPU, what would not work and why"
EXAMPLES = """\
examples:
  nimble doctor
  nimble doctor --json

exit status: 0 Nimble works here (what is marked 'limited' is missing); 1 something is broken
"""

OK, LIMITED, BROKEN_HERE = "ok", "limited", "broken"

# What is lost without a package that only parts of Nimble use.
OPTIONAL = {
    "torchvision": "`nimble run` knows none of its models, and most of `nimble bench` fails",
    "timm": "`nimble run` knows none of its models",
    "transformers": "`nimble run` knows none of its models; no BERT in `nimble bench`",
    "matplotlib": "`nimble bench` draws no pictures",
    "triton": "torch.compile cannot be measured on a GPU",
    "onnx": "`nimble bench` leaves ONNX Runtime out",
    "onnxruntime": "`nimble bench` leaves ONNX Runtime out",
    "openvino": "`nimble bench` leaves OpenVINO out",
}


@dataclass
class Finding:
    name: str
    status: str
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--json", action="store_true", help="only JSON on standard output")


def run(arguments: argparse.Namespace) -> int:
    findings = []
    with progress_bar("doctor", len(CHECKS)) as bar:
        for check in CHECKS:
            bar.say(check.__doc__)
            findings += check()
            bar.step()
    broken = any(finding.status == BROKEN_HERE for finding in findings)
    if arguments.json:
        print(
            json.dumps({"works": not broken, "findings": [asdict(finding) for finding in findings]}, indent=1)
        )
    else:
        show(findings)
    return BROKEN if broken else FINE


def show(findings: list[Finding]) -> None:
    console = Page(highlight=False)
    colours = {OK: "green", LIMITED: "yellow", BROKEN_HERE: "bold red"}
    for finding in findings:
        colour = colours[finding.status]
        console.print(f"[{colour}]{finding.status:<8}[/] {finding.name:<14} ", end="")
        console.print(finding.text, markup=False, soft_wrap=True)


def versions() -> Iterator[Finding]:
    """Python, torch and Nimble"""
    yield Finding("python", OK, f"{platform.python_version()} ({sys.executable})")
    built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    yield Finding("torch", OK, f"{torch.__version__}, built for {built_for}")
    yield Finding("nimble", OK, f"{nimble.__version__} ({Path(nimble.__file__).parent})")
    yield Finding("processor", OK, f"{processor_name()}, {torch.get_num_threads()} threads")


def options() -> Iterator[Finding]:
    """options in the environment"""
    try:
        compile_options()
    except ValueError as error:
        yield Finding("options", BROKEN_HERE, f"every nimble.compile fails: {error}")
    else:
        yield Finding("options", OK, "those in the environment can be read")


def replays_on(device: str) -> Finding:
    """Records a small function with two branches and compares a replay with eager."""
    name = f"replay on {device}"

    def two_branches(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + (x + 1).cos()

    try:
        x = torch.linspace(0, 1, 64, device=device)
        with torch.inference_mode():
            fast = nimble.compile(two_branches, strict=True).prepare(x)
            same = torch.equal(fast(x), two_branches(x))
    except Exception as error:  # whatever it is, it is what the doctor was asked for
        return Finding(name, BROKEN_HERE, f"{type(error).__name__}: {' '.join(str(error).split())}")
    if not same:
        return Finding(name, BROKEN_HERE, "a small function gives another result than eager")
    return Finding(name, OK, f"{fast.stats['tasks']} tasks on {fast.stats['streams']} streams, eager's bits")


def on_cpu() -> Iterator[Finding]:
    """a replay on the CPU"""
    yield replays_on("cpu")


def on_gpu() -> Iterator[Finding]:
    """the GPU"""
    if not nimble.cuda_available():
        yield Finding("GPU", LIMITED, f"everything runs on the CPU: {nimble.why_no_cuda()}")
        return
    driver = ask_nvidia_smi("driver_version").get("driver_version", "unknown (nvidia-smi is not there)")
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        memory = f"{facts.total_memory / 2**30:.0f} GiB"
        yield Finding(
            f"GPU {index}", OK, f"{facts.name}, {memory}, compute capability {facts.major}.{facts.minor}"
        )
    yield Finding("driver", OK, f"{driver}; cuDNN {torch.backends.cudnn.version()}")
    yield replays_on("cuda")


def packages() -> Iterator[Finding]:
    """other packages"""
    for name, lost in OPTIONAL.items():
        version = version_of(name)
        if version:
            yield Finding(name, OK, version)
        else:
            yield Finding(name, LIMITED, f"{lost}: pip install {PINNED.get(name, name)}")


def tools() -> Iterator[Finding]:
    """programs"""
    try:
        yield Finding("nimble plan", OK, str(plan.find_program()))
    except WrongInput as error:
        yield Finding("nimble plan", LIMITED, str(error))
    compiler = shutil.which("g++") or shutil.which("clang++")
    lost = "torch.compile and AOTInductor cannot be measured on the CPU: install g++"
    yield Finding("C++ compiler", OK, compiler) if compiler else Finding("C++ compiler", LIMITED, lost)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (versions, options, on_cpu, on_gpu, packages, tools)
