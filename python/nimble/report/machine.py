"""What a report was made on."""

import os
import platform
from datetime import datetime
from importlib.metadata import version

import torch

from nimble.processor import processor_name


def device_name(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"{processor_name()}, {torch.get_num_threads()} of {os.cpu_count()} threads"


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
