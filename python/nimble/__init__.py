"""Nimble: runs PyTorch programs from a schedule made ahead of time.

import nimble

fast = nimble.compile(model)          # any callable: a module or a function
with torch.inference_mode():
    y = fast(x)                       # recorded on first use; fast.prepare(x) does it ahead of time
print(fast.explain())
"""

from importlib.metadata import version

import torch

REQUIRED_TORCH = "2.11"

if not torch.__version__.startswith(REQUIRED_TORCH + "."):
    raise ImportError(
        f"nimble needs torch {REQUIRED_TORCH} and found {torch.__version__}: it reads PyTorch's internals, which "
        f"change from version to version. Install torch=={REQUIRED_TORCH}.0"
    )

from nimble._C import Error, GuardError, RecordError, ValidationError  # noqa: E402
from nimble.compile import Nimble, compile, cuda_available, is_recording, rewrites, why_no_cuda  # noqa: E402
from nimble.messages import FallbackWarning  # noqa: E402

__version__ = version("nimble")
__all__ = [
    "Error",
    "FallbackWarning",
    "GuardError",
    "Nimble",
    "RecordError",
    "ValidationError",
    "compile",
    "cuda_available",
    "is_recording",
    "rewrites",
    "why_no_cuda",
]
