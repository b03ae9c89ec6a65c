"""Shared by the tests that need a GPU: no autograd, kernels that are the same at every run, and a stop at
errors that a process cannot recover from."""

import gc

import pytest
import torch


@pytest.fixture(autouse=True)
def without_grad():
    with torch.no_grad():
        yield


@pytest.fixture(autouse=True)
def repeatable_kernels():
    """Eager's choice of kernels must not change between two runs that are compared."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=True):
        yield


@pytest.fixture(autouse=True)
def working_device(request):
    """After an error like an illegal address every later test would fail: stop where it happened."""
    yield
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        pytest.exit(f"{request.node.nodeid} left the GPU in error: {error}", returncode=3)


@pytest.fixture
def settled_memory():
    """A function that tells how much device memory is in use once nothing waits to be freed."""

    def allocated() -> int:
        gc.collect()
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    return allocated
