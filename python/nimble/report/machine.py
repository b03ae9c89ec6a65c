"""What a report was made on."""

import os
import platform
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import torch


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def device_name(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {torch.get_num_threads()} of {os.cpu_count()} threads"


def versions(device: str) -> dict[str, str]:
    found = {
        "nimble": version("nimble"),
        "torch": torch.__version__,
        "Python": platform.python_version(),
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    }
    if device.startswith("cuda"):
        found["CUDA"] = torch.version.cuda
        found["cuDNN"] = str(torch.backends.cudnn.version())
    return found
