"""What PyTorch computes otherwise while somebody watches.

A product of a batch with a single matrix becomes one `mm` then, where eager calls `bmm`, whose sums may round otherwise
(PyTorch asks whether a dispatch mode is active as it asks for subclasses of tensors). While recording, what eager calls
is called instead. Whoever kept the function itself (`from torch import matmul`) is left to the check against eager."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch


def _matmul_as_eager(original: Callable) -> Callable:
    @functools.wraps(original)
    def matmul(*args, **kwargs):
        if len(args) == 2 and not kwargs and all(isinstance(a, torch.Tensor) and a.dim() == 3 for a in args):
            batches = [a.shape[0] for a in args]
            single = [a for a in args if a.shape[0] == 1]
            # A matrix that requires grad makes eager take the other path, too.
            if len(single) == 1 and not single[0].requires_grad:
                return torch.bmm(*(a.expand(max(batches), -1, -1) for a in args))
        return original(*args, **kwargs)

    return matmul


# Functions to exchange while recording: whose they are, their names, and what makes the other of the one.
EXCHANGED = [
    (owner, name, _matmul_as_eager)
    for owner, name in ((torch, "matmul"), (torch.Tensor, "matmul"), (torch.Tensor, "__matmul__"))
]
