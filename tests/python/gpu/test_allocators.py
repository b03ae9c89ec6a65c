"""PyTorch's allocator is chosen when a process starts: what each choice means for planned memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = """
import torch
import nimble

torch.backends.cudnn.deterministic = True
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(5)
).eval().cuda()
x = torch.randn(2, 3, 16, 16, device="cuda")
with torch.no_grad():
    expected = model(x)
    fast = nimble.compile(model).prepare(x)
    for size in range(1, 40):
        torch.randn(size << 18, device="cuda").sum()  # memory comes and goes meanwhile
        assert torch.equal(fast(x), expected)
    assert fast.stats["unplanned_allocations"] == 0, fast.stats
del fast
torch.cuda.empty_cache()
with torch.no_grad():
    assert torch.equal(model(x), expected)
assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated() > 0
print("as eager")
"""


def run_with(settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings, "PYTORCH_ALLOC_CONF": settings}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    "settings",
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:32,garbage_collection_threshold:0.6",
        "roundup_power2_divisions:4",
    ],
)
def test_a_setting_of_pytorchs_allocator_goes_on_working(settings):
    result = run_with(settings)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "as eager"


def test_cuda_malloc_async_is_refused_by_name_with_what_to_do():
    result = run_with("backend:cudaMallocAsync")
    assert result.returncode != 0
    assert "cudaMallocAsync" in result.stderr.splitlines()[-1], result.stderr
    assert "PYTORCH_CUDA_ALLOC_CONF" in result.stderr.splitlines()[-1], result.stderr
