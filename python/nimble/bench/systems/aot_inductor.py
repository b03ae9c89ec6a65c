"""AOTInductor: exported, compiled to a library, loaded again."""

import tempfile
from pathlib import Path

import torch
from torch import nn

from nimble.bench.systems.kinds import Inputs, Ready, System


def infer(model: nn.Module, inputs: Inputs) -> Ready:
    exported = torch.export.export(model, inputs)
    with tempfile.TemporaryDirectory(prefix="nimble-bench-") as folder:
        package = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(Path(folder) / "model.pt2")
        )
        fast = torch._inductor.aoti_load_package(package)
    fast(*inputs)
    return Ready(lambda: fast(*inputs))


SYSTEMS = [System("aot-inductor", "AOTInductor", infer, own_process=True)]
