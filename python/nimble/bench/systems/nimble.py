"""Nimble, and Nimble without each of its parts: one stream instead of many, every buffer in memory of its own, and each
rewrite of the program left out; in training also with kernels that round otherwise than eager's."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

import nimble
from nimble import _C
from nimble.bench.systems.kinds import Inputs, Ready, System
from nimble.bench.workloads.kinds import Program


class RunsEagerly(RuntimeError):
    """What was to be measured is not a replay."""


def facts_of(compiled) -> dict:
    stats = compiled.stats
    if not stats["replays"]:
        raise RunsEagerly("runs eagerly: " + " ".join(compiled.explain().split())[:300])
    owned = sum(stats[part] for part in ("arena_bytes", "static_bytes", "workspace_bytes"))
    return {"owned_bytes": owned, "stats": stats, "explain": compiled.explain()}


def measured_alone(compiled) -> dict:
    """How long the longest way through the task graph takes, each task timed alone, and what the bare launch takes of
    the host (docs/report.md)."""
    function = getattr(compiled, "_nimble", compiled)  # a compiled module is one, around a function
    parts = function._document((), {}, eager=False)["parts"]
    found = {"critical_path_milliseconds": sum(part["critical_path_length"] for part in parts) / 1e6}
    if launch := sum(part["launch"] for part in parts):
        found["launch_microseconds"] = launch / 1e3
    return found


def infer(**options) -> Callable[[nn.Module, Inputs], Ready]:
    def prepare(model: nn.Module, inputs: Inputs) -> Ready:
        fast = nimble.compile(model, strict=True, **options).prepare(*inputs)
        return Ready(lambda: fast(*inputs), lambda: facts_of(fast), lambda: measured_alone(fast))

    return prepare


def train(**options) -> Callable[[Program], Ready]:
    def prepare(program: Program) -> Ready:
        step = nimble.compile(program.step, **options)
        return Ready(step, lambda: facts_of(step), lambda: measured_alone(step))

    return prepare


def system(name: str, title: str, rewritten: bool = False, by_default: bool = True, **options) -> System:
    """Rewritten programs compute otherwise than eager, so that their bits may differ."""
    return System(name, title, infer(**options), train(**options), exact=not rewritten, by_default=by_default)


def rewrite_variants(names: list[str], by_default: bool) -> list[System]:
    """With all rewrites, without any, whichever is not the default; and without each."""
    found = [
        system("nimble-no-rewrites", "Nimble, no rewrites", rewrites="none")
        if by_default
        else system("nimble-rewrites", "Nimble, rewritten", rewritten=True, rewrites="default")
    ]
    for name in names:
        others = [other for other in names if other != name]
        title = f"Nimble, rewritten but for {name}"
        found.append(system(f"nimble-no-{name}", title, rewritten=True, by_default=False, rewrites=others))
    return found


def tolerant(name: str, title: str, rewrites: str | list[str]) -> System:
    """Steps of training whose kernels may round otherwise than eager's."""
    prepare = train(rewrites=rewrites, tolerance=TOLERANCE)
    return System(name, title, train=prepare, devices=("cuda",), by_default=False)


def tolerant_variants(names: list[str]) -> list[System]:
    found = [tolerant("nimble-tolerant", "Nimble, rewritten with a tolerance", "default")]
    for name in names:
        title = f"Nimble, rewritten with a tolerance but for {name}"
        found.append(
            tolerant(f"nimble-tolerant-no-{name}", title, [other for other in names if other != name])
        )
    return found


# Those that nobody can be without, if there is any other, are no variants.
REWRITES = [name for name in nimble.rewrites() if name not in _C.REWRITES_THAT_COME_WITH_OTHERS]
IN_TRAINING = [name for name in REWRITES if name in _C.REWRITES_FOR_TRAINING]
REWRITTEN = _C.DEFAULT_REWRITES != "none"

# Of the largest value of each gradient. In a deep network that is not trained yet, TF32 itself moves some by a quarter.
TOLERANCE = 1.0

SYSTEMS = [
    system("nimble-one-stream", "Nimble, one stream", rewritten=REWRITTEN, streams=1),
    system("nimble", "Nimble", rewritten=REWRITTEN),
    system(
        "nimble-unshared-memory",
        "Nimble, no memory shared",
        rewritten=REWRITTEN,
        by_default=False,
        memory="apart",
    ),
    *rewrite_variants(REWRITES, REWRITTEN),
    *tolerant_variants(IN_TRAINING),
]
