"""Nimble, and Nimble without each of its parts: one stream instead of many, every buffer in memory of its own, and each
rewrite of the program left out."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

import nimble
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


def infer(**options) -> Callable[[nn.Module, Inputs], Ready]:
    def prepare(model: nn.Module, inputs: Inputs) -> Ready:
        fast = nimble.compile(model, strict=True, **options).prepare(*inputs)
        return Ready(lambda: fast(*inputs), lambda: facts_of(fast))

    return prepare


def train(**options) -> Callable[[Program], Ready]:
    def prepare(program: Program) -> Ready:
        step = nimble.compile(program.step, **options)
        return Ready(step, lambda: facts_of(step))

    return prepare


def system(name: str, title: str, exact: bool, by_default: bool = True, **options) -> System:
    return System(name, title, infer(**options), train(**options), exact=exact, by_default=by_default)


def rewrite_names() -> list[str]:
    """None where this build rewrites nothing."""
    return list(nimble.rewrites()) if hasattr(nimble, "rewrites") else []


def without_rewrites(names: list[str]) -> list[System]:
    """Without any, whose answers have eager's bits, and without each."""
    if not names:
        return []
    found = [system("nimble-no-rewrites", "Nimble, no rewrites", exact=True, rewrites="none")]
    for name in names:
        others = [other for other in names if other != name]
        title = f"Nimble without {name}"
        found.append(system(f"nimble-no-{name}", title, exact=False, by_default=False, rewrites=others))
    return found


SYSTEMS = [
    system("nimble-one-stream", "Nimble, one stream", exact=not rewrite_names(), streams=1),
    system("nimble", "Nimble", exact=not rewrite_names()),
    system(
        "nimble-unshared-memory",
        "Nimble, no memory shared",
        exact=not rewrite_names(),
        by_default=False,
        memory="apart",
    ),
    *without_rewrites(rewrite_names()),
]
