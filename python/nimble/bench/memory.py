"""How much device memory a system takes."""

from __future__ import annotations

import gc

import torch


class MemoryWatch:
    """Bytes beyond those in use at the start. `steady`: the most that PyTorch reserved during a few runs after the
    preparation, which is what the system needs. `preparing`: the most until then. `allocated`: the most that tensors
    took during those few runs. `device`: the driver's word, with what others than PyTorch's allocator took."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"
        self.found: dict[str, int] = {}
        if self.on_gpu:
            self.settle()
            self.reserved = torch.cuda.memory_reserved()
            self.allocated = torch.cuda.memory_allocated()
            self.free = torch.cuda.mem_get_info()[0]

    def settle(self) -> None:
        gc.collect()
        torch.cuda.synchronize()
        # PyTorch keeps cuBLAS's workspaces for whoever comes next; everybody shall need their own.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def prepared(self) -> None:
        if self.on_gpu:
            self.found["preparing"] = torch.cuda.max_memory_reserved() - self.reserved
            self.settle()

    def steady(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()
            self.found |= {
                "steady": torch.cuda.max_memory_reserved() - self.reserved,
                "allocated": torch.cuda.max_memory_allocated() - self.allocated,
                "device": self.free - torch.cuda.mem_get_info()[0],
            }
