"""Several convolutions of the same tensor in one launch of our kernel for tensor cores, against ATen in float64."""

from __future__ import annotations

import pytest
import torch
from gpu.kernels.checks import SLICES, UNTOUCHED, activated, assert_no_worse_than_eager, error_of, ops, random
from torch import Tensor

pytestmark = pytest.mark.gpu

# Inner channels, filters of each, side of the image: Inception-v3, GoogLeNet, and odd ones.
GROUPS = [
    (192, (64, 48, 64), 35),
    (768, (192, 128, 128), 17),
    (768, (192, 192, 192, 192), 17),
    (1280, (320, 384, 448), 8),
    (192, (64, 96, 16), 28),
    (832, (384, 192, 48), 7),
    (11, (7, 5), 9),
    (1, (1, 3), 1),
]


def group_of(dtype: torch.dtype, inner: int, filters: tuple[int, ...], bias: bool = True):
    weights = [random(out, inner, 1, 1, dtype=dtype) / inner**0.5 for out in filters]
    return weights, [random(out, dtype=dtype) for out in filters] if bias else []


def check_group(
    dtype: torch.dtype,
    x: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    activation: str,
    candidate: int = 0,
) -> None:
    results = ops.matrix_convolutions(x, weights, biases, activation, candidate)
    assert len(results) == len(weights)
    for n, (result, weight) in enumerate(zip(results, weights, strict=True)):
        bias = biases[n] if biases else None
        exact = torch.conv2d(x.double(), weight.double(), None if bias is None else bias.double())
        exact = activated(exact, activation)
        assert result.is_contiguous(memory_format=torch.channels_last)
        if dtype == torch.float32:  # with TF32 allowed eager's error differs from shape to shape
            assert error_of(result, exact) <= 1e-5, (n, candidate)
        else:
            eager = activated(torch.conv2d(x, weight, bias), activation)
            assert_no_worse_than_eager(result, eager, exact, dtype)


@pytest.mark.parametrize("inner,filters,side", GROUPS, ids=str)
def test_each_product_of_a_group_is_right(dtype, inner, filters, side):
    x = random(1, inner, side, side, dtype=dtype, memory_format=torch.channels_last)
    for candidate in (0, 1):
        check_group(dtype, x, *group_of(dtype, inner, filters), "relu", candidate)
    check_group(dtype, x, *group_of(dtype, inner, filters, bias=False), "none")


def test_every_way_to_divide_a_group_is_right(dtype):
    x = random(1, 360, 13, 11, dtype=dtype, memory_format=torch.channels_last)
    weights, biases = group_of(dtype, 360, (72, 16, 40))
    tried = 0
    for candidate in range(100):
        try:
            check_group(dtype, x, weights, biases, "silu", candidate)
        except RuntimeError as error:
            assert "there is no number" in str(error)
            break
        tried += 1
    assert tried > 4


def test_several_images_and_a_slice_of_channels(dtype):
    whole = random(3, 96, 13, 9, dtype=dtype, memory_format=torch.channels_last)
    weights, biases = group_of(dtype, 32, (24, 40))
    for first in (0, 8, 13):
        check_group(dtype, whole[:, first : first + 32], weights, biases, "relu6")


def test_rounded_to_tf32_where_that_is_asked():
    x = random(1, 768, 17, 17, dtype=torch.float32, memory_format=torch.channels_last)
    weights, biases = group_of(torch.float32, 768, (192, 128))
    results = ops.matrix_convolutions(x, weights, biases, "none", 0, True)
    for result, weight, bias in zip(results, weights, biases, strict=True):
        exact = torch.conv2d(x.double(), weight.double(), bias.double())
        assert 1e-6 < error_of(result, exact) < 1e-3


@pytest.mark.parametrize("before,behind", SLICES)
def test_results_go_into_slices(dtype, before, behind):
    """What `out` gets is what the operator returns, and nothing around it changes."""
    x = random(2, 64, 9, 10, dtype=dtype, memory_format=torch.channels_last)
    weights, biases = group_of(dtype, 64, (16, 40, 24))
    dense = ops.matrix_convolutions(x, weights, biases, "relu")
    wholes = [
        torch.full(
            (2, before + y.shape[1] + behind, 9, 10), UNTOUCHED, device="cuda", dtype=dtype
        ).contiguous(memory_format=torch.channels_last)
        for y in dense[:2]
    ]
    alone = torch.empty_like(dense[2])
    places = [w[:, before : before + y.shape[1]] for w, y in zip(wholes, dense[:2], strict=True)]
    ops.matrix_convolutions.out(x, weights, biases, "relu", out=[*places, alone])
    for place, whole, y in zip(places, wholes, dense[:2], strict=True):
        assert torch.equal(place, y)
        assert (whole[:, :before] == UNTOUCHED).all() and (whole[:, before + y.shape[1] :] == UNTOUCHED).all()
    assert torch.equal(alone, dense[2])


def test_other_layouts_go_to_aten(dtype):
    x = random(1, 16, 5, 5, dtype=dtype)
    weights, _ = group_of(dtype, 16, (8, 4))
    for result, weight in zip(ops.matrix_convolutions(x, weights, []), weights, strict=True):
        assert torch.equal(result, torch.conv2d(x, weight))
    places = [torch.empty(1, out, 5, 5, device="cuda", dtype=dtype) for out in (8, 4)]
    ops.matrix_convolutions.out(x, weights, [], out=places)
    for place, weight in zip(places, weights, strict=True):
        assert torch.equal(place, torch.conv2d(x, weight))


def test_lists_that_do_not_fit_are_refused():
    x = random(1, 16, 5, 5, dtype=torch.float32, memory_format=torch.channels_last)
    weights, biases = group_of(torch.float32, 16, (8, 4))
    with pytest.raises(RuntimeError, match="give one for each"):
        ops.matrix_convolutions(x, weights, biases[:1])
    with pytest.raises(RuntimeError, match="give one for each"):
        ops.matrix_convolutions.out(x, weights, biases, out=[torch.empty(1, 8, 5, 5, device="cuda")])


def test_a_chain_of_groups_gives_the_same_in_a_graph_as_one_by_one(dtype):
    """Kernels that begin before those they depend on have ended would show."""
    x = random(1, 64, 14, 14, dtype=dtype, memory_format=torch.channels_last)
    weights, biases = group_of(dtype, 64, (32, 16, 16))

    def run(between=lambda: None) -> Tensor:
        y = x
        for _ in range(8):
            whole = torch.empty_like(y)
            places = list(whole.split([32, 16, 16], dim=1))
            ops.matrix_convolutions.out(y, weights, biases, "relu6", out=places)
            between()
            y = whole
        return y

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = run()
    for _ in range(20):
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(result, run(torch.cuda.synchronize))
