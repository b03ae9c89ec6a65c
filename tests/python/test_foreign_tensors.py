"""Tensors that are not what they seem: of classes with rules of their own, and those other processes take part in."""

from __future__ import annotations

import pytest
import torch
import torch.distributed
from torch import nn
from torch.utils._pytree import tree_map

import nimble


class Scaled(torch.Tensor):
    """A weight kept as int8 with a scale, as quantization libraries do: it has no memory of its own."""

    @staticmethod
    def __new__(cls, whole, scale):
        return torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=torch.float32)

    def __init__(self, whole, scale):
        self.whole, self.scale = whole, scale

    @classmethod
    def __torch_dispatch__(cls, function, types, args, kwargs=None):
        if function is torch.ops.aten.detach.default:
            return Scaled(args[0].whole, args[0].scale)
        args, kwargs = tree_map(
            lambda leaf: leaf.whole.float() * leaf.scale if isinstance(leaf, Scaled) else leaf,
            (args, kwargs or {}),
        )
        return function(*args, **kwargs)


class ScaledLayer(nn.Module):
    def __init__(self):
        super().__init__()
        weight = Scaled(torch.randint(-9, 9, (4, 8), dtype=torch.int8), torch.tensor(0.5))
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x):
        return x * self.weight + 1


@pytest.mark.parametrize("rewrites", ["none", "default"])
def test_weights_that_compute_by_rules_of_their_own_are_eagers_or_refused_by_name(rewrites):
    layer, x = ScaledLayer(), torch.randn(4, 8)
    fast = nimble.compile(layer, rewrites=rewrites)
    with torch.no_grad():
        with pytest.warns(nimble.FallbackWarning, match="__torch_dispatch__"):
            for _ in range(3):
                assert torch.equal(fast(x), layer(x))
        with pytest.raises(nimble.RecordError, match=r"aten::mul.*__torch_dispatch__"):
            nimble.compile(layer, strict=True)(x)


@pytest.fixture
def a_group_of_one(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield torch.distributed.group.WORLD.group_name
    torch.distributed.destroy_process_group()


def test_what_other_processes_take_part_in_is_refused_by_name(a_group_of_one):
    def summed(x):
        functional = torch.ops._c10d_functional
        return functional.wait_tensor(functional.all_reduce(x * 1.0, "sum", a_group_of_one)) * 2

    x = torch.randn(3)
    with torch.no_grad():
        with pytest.raises(nimble.RecordError, match=r"_c10d_functional::all_reduce.*other processes"):
            nimble.compile(summed, strict=True)(x)
        fast = nimble.compile(summed)
        with pytest.warns(nimble.FallbackWarning, match="other processes"):
            for _ in range(3):
                assert torch.equal(fast(x), x * 2)
