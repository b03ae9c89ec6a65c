"""Training on a GPU: with gradients, and with kernels that give the same bits at every run."""

import os

# cuBLAS reads this when it starts, so it must be set before any test touches the GPU.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import pytest
import torch


@pytest.fixture
def device() -> str:
    """For the stories of the CPU tests that take place here too."""
    return "cuda"


@pytest.fixture(autouse=True)
def without_grad():
    """In place of the fixture of this name for the other GPU tests, which are about inference."""
    with torch.enable_grad():
        yield


@pytest.fixture(autouse=True)
def deterministic_algorithms():
    """Most backward passes add with atomics otherwise, and eager's own bits change from run to run."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)
