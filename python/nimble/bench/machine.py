"""What the figures were measured on: hardware, clocks, versions."""

from __future__ import annotations

import datetime
import platform
import shutil
import subprocess

import torch

import nimble
from nimble.packages import version_of
from nimble.processor import processor_name

PACKAGES = ("torch", "torchvision", "timm", "transformers", "triton", "onnxruntime", "openvino", "numpy")
GPU_STATE = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.draw", "temperature.gpu")


def machine() -> dict[str, object]:
    facts: dict[str, object] = {
        "date": datetime.date.today().isoformat(),
        "nimble": nimble.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "versions": {name: found for name in PACKAGES if (found := version_of(name))},
        "processor": processor_name(),
        "threads": torch.get_num_threads(),
    }
    if torch.cuda.is_available():
        facts |= {
            "gpu": torch.cuda.get_device_name(),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "driver": ask_nvidia_smi("driver_version").get("driver_version"),
        }
    return facts


def clocks() -> dict[str, str]:
    """The GPU's clocks, power and temperature now; empty without a GPU or nvidia-smi."""
    return ask_nvidia_smi(*GPU_STATE) if torch.cuda.is_available() else {}


def ask_nvidia_smi(*what: str) -> dict[str, str]:
    program = shutil.which("nvidia-smi")
    if not program:
        return {}
    query = [program, f"--query-gpu={','.join(what)}", "--format=csv,noheader", "--id=0"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in answer.strip().split(",")]
    return dict(zip(what, values, strict=True)) if len(values) == len(what) else {}
