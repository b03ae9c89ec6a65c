"""The systems by name, one file for each. The order is that of tables, and of preparation: a peer's graph is captured
before Nimble comes to the same process."""

from __future__ import annotations

from nimble.bench.systems import (
    aot_inductor,
    cuda_graph,
    eager,
    nimble,
    onnx_runtime,
    openvino,
    torch_compile,
    torchscript,
)
from nimble.bench.systems.kinds import Ready, System
from nimble.nearest import find

__all__ = ["GROUPS", "SYSTEMS", "Ready", "System", "chosen"]

_FILES = (eager, torchscript, cuda_graph, torch_compile, aot_inductor, onnx_runtime, openvino, nimble)
SYSTEMS: dict[str, System] = {system.name: system for file in _FILES for system in file.SYSTEMS}

# Names for several at once.
GROUPS: dict[str, list[str]] = {
    "all": list(SYSTEMS),
    "default": [name for name, system in SYSTEMS.items() if system.by_default],
    # Seconds instead of minutes.
    "no-compilers": [
        name for name, system in SYSTEMS.items() if system.by_default and not system.own_process
    ],
    # Of those the ones that the summary shows.
    "quick": [name for name in SYSTEMS if name in ("eager", "cuda-graph", "nimble", "nimble-rewrites")],
    "compilers": [name for name, system in SYSTEMS.items() if system.own_process],
    "ablations": [name for name in SYSTEMS if name.startswith("nimble")],
}


def chosen(names: list[str]) -> list[System]:
    """The systems of these names and groups, in their order; eager, whom all are compared with, in any case."""
    known = [*GROUPS, *SYSTEMS]
    found = {member for name in names for member in GROUPS.get(name) or (find(name, known, "system"),)}
    return [system for name, system in SYSTEMS.items() if name in found | {"eager"}]
