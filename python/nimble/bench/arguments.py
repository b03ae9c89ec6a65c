"""The command line of the suite, `nimble bench` and `python -m nimble.bench` alike."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import nimble
from nimble.bench import systems, workloads
from nimble.bench.job import DTYPES
from nimble.bench.measure import QUICK, Amount
from nimble.bench.settings import Settings
from nimble.bench.workloads import Workload
from nimble.exit_codes import WrongInput

EXAMPLES = """\
examples:
  nimble bench --quick                                        a minute's look
  nimble bench --workloads inference --systems no-compilers   minutes instead of hours
  nimble bench --workloads googlenet --batch 1 8 64 --dtype fp32 bf16
  nimble bench --workloads training --systems default --prepare-limit 120 --time-limit 1800
  nimble bench --exhibits                                     the paper's exhibits, its figures beside ours
  nimble bench --fill docs/benchmarks.md README.md            the tables of pages again from their reports
  nimble bench --draw docs/benchmarks/cuda.json               tables and pictures again from a report

exit status: 0 no row of eager or of Nimble failed (what --time-limit leaves out has not); 1 one of them did; 2 a wrong
command line
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--workloads",
        nargs="+",
        metavar="NAME",
        help=f"groups ({', '.join(workloads.GROUPS)}) or names: {', '.join(workloads.WORKLOADS)}",
    )
    parser.add_argument(
        "--systems",
        nargs="+",
        metavar="NAME",
        help=f"groups ({', '.join(systems.GROUPS)}) or names: {', '.join(systems.SYSTEMS)}",
    )
    parser.add_argument(
        "--batch", nargs="+", type=positive, metavar="N", help="batch sizes, instead of each workload's own"
    )
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=["fp32"], help="precisions (fp32)")
    parser.add_argument("--device", help="cpu, cuda or cuda:N (a GPU where there is one)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a minute's look: two networks, few runs, no compilers, no critical paths",
    )
    parser.add_argument(
        "--exhibits", action="store_true", help="the paper's exhibits, its figures beside ours"
    )
    parser.add_argument(
        "--time-limit",
        type=positive_seconds,
        metavar="S",
        help="for everything; what is not reached gets a row that says so",
    )
    parser.add_argument(
        "--prepare-limit",
        type=positive_seconds,
        metavar="S",
        help="for a compiler's preparation (120, max-autotune 600)",
    )
    parser.add_argument(
        "--side-by-side",
        type=positive,
        metavar="N",
        help="how many compilers prepare at the same time (half as many as there are cores)",
    )
    parser.add_argument(
        "--seconds",
        type=positive_seconds,
        metavar="S",
        help="each system is timed for 200 runs or this long (2)",
    )
    parser.add_argument("--no-profile", action="store_true", help="no GPU active ratio")
    parser.add_argument(
        "--deterministic", action="store_true", help="cuDNN's deterministic kernels, for everybody"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("nimble-bench"),
        metavar="DIR",
        help="where the files go (nimble-bench)",
    )
    parser.add_argument("--name", default="results", help="how they begin (results)")
    parser.add_argument(
        "--draw", type=Path, metavar="FILE", help="measure nothing: tables and pictures of this report"
    )
    parser.add_argument(
        "--fill",
        type=Path,
        nargs="+",
        metavar="PAGE",
        help="measure nothing: make the tables of these pages anew",
    )
    parser.add_argument("--list", action="store_true", help="show workloads and systems")
    parser.add_argument(
        "--json",
        action="store_true",
        help="the report, or with --list and --fill what they say, as JSON on "
        "standard output, and nothing else",
    )


def positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def positive_seconds(text: str) -> float:
    if not (value := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text} is no time")
    return value


def default_device() -> str:
    return "cuda" if nimble.cuda_available() else "cpu"


def checked_device(name: str) -> str:
    """WrongInput where there is no such device, or none that Nimble runs on."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise WrongInput(f"no device is named {name!r}; there are cpu, cuda and cuda:N") from None
    if device.type == "cuda" and not nimble.cuda_available():
        raise WrongInput(f"{name}: {nimble.why_no_cuda()}")
    if device.type not in ("cpu", "cuda") or (device.index or 0) >= max(1, torch.cuda.device_count()):
        raise WrongInput(f"there is no device {name!r} here")
    return name


def default_workloads(arguments: argparse.Namespace, device: str) -> list[str]:
    if arguments.exhibits:
        return ["paper", "training"]
    if arguments.quick:
        return ["quick"]
    return ["cpu"] if device == "cpu" else ["inference"]


def default_systems(arguments: argparse.Namespace) -> list[str]:
    if arguments.exhibits:
        return ["no-compilers"]
    return ["quick"] if arguments.quick else ["default"]


def check_systems(names: list[str], networks: list[Workload], device: torch.device) -> None:
    """WrongInput for one that is asked for by its own name and would get no row. Of a group those that can run do."""
    for system in (systems.SYSTEMS[name] for name in names if name in systems.SYSTEMS):
        if device.type not in system.devices:
            raise WrongInput(f"{system.name} runs on {' and '.join(system.devices)}, not on {device}")
        if not any(system.fits(network, device) for network in networks):
            raise WrongInput(f"{system.name} runs none of {', '.join(network.name for network in networks)}")


def amount_of(arguments: argparse.Namespace) -> Amount:
    if arguments.seconds:
        return Amount(seconds=min(0.5, arguments.seconds), most_seconds=arguments.seconds)
    return QUICK if arguments.quick else Amount()


def settings_of(arguments: argparse.Namespace) -> Settings:
    """WrongInput for names and devices that are not there."""
    device = checked_device(arguments.device or default_device())
    networks = workloads.chosen(arguments.workloads or default_workloads(arguments, device))
    check_systems(arguments.systems or [], networks, torch.device(device))
    at_once = {"side_by_side": arguments.side_by_side} if arguments.side_by_side else {}
    return Settings(
        workloads=networks,
        systems=systems.chosen(arguments.systems or default_systems(arguments)),
        device_name=device,
        batches=arguments.batch,
        dtype_names=tuple(arguments.dtype),
        amount=amount_of(arguments),
        prepare_limit=arguments.prepare_limit,
        time_limit=arguments.time_limit,
        profile=not (arguments.quick or arguments.no_profile),
        tasks_alone=not arguments.quick,
        deterministic=arguments.deterministic,
        first_batch_only=arguments.quick,
        **at_once,
    )
