"""PyTorch's own operator samples, in a form that a recording can be tried on.

PyTorch describes every operator by an OpInfo that can draw sample inputs. Drawing twice with different seeds
gives the same shapes with fresh values, within the operator's domain; drawing twice with the same seed gives
copies that share no memory. So a sample comes as three `Call`s: one to record, one to replay, and that one's
twin for eager.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

# Whatever imports this file is skipped where PyTorch's samples cannot be imported.
pytest.importorskip("expecttest", reason="PyTorch's operator samples need the package expecttest")
from torch.testing._internal import common_methods_invocations

# That forbids every other test of this process to set a flag of PyTorch's.
torch.backends.__allow_nonbracketed_mutation_flag = True

# PyTorch reseeds the generator inside every random sample; here it is the caller's seed that must matter.
common_methods_invocations.wrapper_set_seed = lambda function, *args, **kwargs: function(*args, **kwargs)

FEWEST_SAMPLES = 3
# Some operators list thousands of samples; beyond this they only repeat themselves.
MOST_SAMPLES_DRAWN = 200


@dataclass(frozen=True)
class Call:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Sample:
    recorded: Call
    replayed: Call
    twin: Call


@dataclass(frozen=True)
class Operator:
    name: str
    function: Callable[..., Any]
    info: Any
    device: str = "cpu"
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        return self.name if self.device == "cpu" else f"{self.name}[{str(self.dtype).removeprefix('torch.')}]"

    def samples(self, count: int) -> list[Sample]:
        """At least 3 where there is any and at most `count`, spread evenly over those that PyTorch lists."""
        samples = self._samples(first_seed=1)
        for seed in (3, 5):
            if 0 < len(samples) < FEWEST_SAMPLES:
                samples += self._samples(seed)
        return spread(samples, count)

    def calls(self, count: int) -> list[Call]:
        """At most `count` calls, one for each sample."""
        return spread(self._draw(seed=1), count)

    def _samples(self, first_seed: int) -> list[Sample]:
        seeds = (first_seed, first_seed + 1, first_seed + 1)
        drawn = zip(*(self._draw(seed) for seed in seeds), strict=False)  # a draw may have fewer samples
        return [
            # The recorded one too, because flattening turns a torch.Size into a tuple.
            Sample(*(with_constants_of(recorded, call) for call in (recorded, replayed, twin)))
            for recorded, replayed, twin in drawn
            if same_form(recorded, replayed)
        ]

    def _draw(self, seed: int) -> list[Call]:
        random.seed(seed)
        numpy.random.seed(seed)
        torch.manual_seed(seed)
        samples = self.info.sample_inputs(self.device, self.dtype, requires_grad=False, set_seed=False)
        return [
            Call((sample.input, *sample.args), sample.kwargs)
            for sample in islice(samples, MOST_SAMPLES_DRAWN)
        ]


def spread(items: list[Any], count: int) -> list[Any]:
    """At most `count` of the items, evenly spaced, with the first and the last."""
    if len(items) <= count:
        return items
    step = (len(items) - 1) / (count - 1)
    return [items[round(index * step)] for index in range(count)]


def operators(device: str = "cpu", dtype: torch.dtype = torch.float32) -> Iterator[Operator]:
    """Every operator with samples of this type on this device, in PyTorch's order."""
    for info in common_methods_invocations.op_db:
        if dtype in info.supported_dtypes(device):
            name = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
            yield Operator(name, by_name(info), info, device, dtype)


def by_name(info: Any) -> Callable[..., Any]:
    """The operator as people call it, `torch.matmul(a, b)`: found anew at every call, since a recording exchanges what
    PyTorch would compute otherwise while it is watched."""
    if getattr(torch, info.name, None) is not info.op:
        return info.op
    return lambda *args, **kwargs: getattr(torch, info.name)(*args, **kwargs)


def same_form(a: Call, b: Call) -> bool:
    """Whether two calls take tensors of the same shapes in the same places."""
    a_leaves, a_spec = tree_flatten((a.args, a.kwargs))
    b_leaves, b_spec = tree_flatten((b.args, b.kwargs))
    return a_spec == b_spec and list(map(tensor_form, a_leaves)) == list(map(tensor_form, b_leaves))


def tensor_form(leaf: Any) -> tuple | type:
    if not isinstance(leaf, Tensor):
        return type(leaf)
    strides = leaf.stride() if leaf.layout == torch.strided else None
    return leaf.layout, leaf.shape, strides, leaf.dtype


def with_constants_of(recorded: Call, fresh: Call) -> Call:
    """`fresh` with all that is no tensor taken from `recorded`: a replay holds for the same constants."""
    constants, spec = tree_flatten((recorded.args, recorded.kwargs))
    tensors, _ = tree_flatten((fresh.args, fresh.kwargs))
    leaves = [b if isinstance(b, Tensor) else a for a, b in zip(constants, tensors, strict=True)]
    return Call(*tree_unflatten(leaves, spec))
