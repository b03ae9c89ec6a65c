"""All operators of our own inside CUDA graphs, and what none of them has a kernel for."""

from __future__ import annotations

import pytest
import torch
from gpu.kernels.checks import SUM_RELU, ops, packed_filters, random
from torch import Tensor

pytestmark = pytest.mark.gpu

SUM_SOFTMAX = "%0 = add.Tensor(x0, x1, 1); %1 = _softmax(%0, -1, false); return %1"


def test_operators_run_inside_a_graph(dtype):
    x = random(1, 64, 14, 14, dtype=dtype, memory_format=torch.channels_last)
    depthwise, dense, bias = (
        random(64, 1, 3, 3, dtype=dtype),
        random(64, 64, 1, 1, dtype=dtype),
        random(64, dtype=dtype),
    )
    packed = packed_filters(64, 1, 3, 3, dtype=dtype)

    def run() -> Tensor:
        y = ops.depthwise_convolution(x, depthwise, bias, [1, 1], [1, 1], [1, 1], "none", "relu")
        y = ops.pointwise_convolution(y, dense, bias, y, "relu")
        y = ops.matrix_convolution(y, dense, bias, y, "relu", 0, packed, bias, 1, 1)
        y = ops.max_pool2d(y, [2, 2], [2, 2], [0, 0], [1, 1], False)
        y = ops.pointwise([y, bias.view(-1, 1, 1)], SUM_RELU)[0]
        y = ops.rows([y.permute(0, 2, 3, 1), bias], SUM_SOFTMAX)[0].permute(0, 3, 1, 2)
        return ops.adaptive_avg_pool2d(y, [1, 1])

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = run()
    x.normal_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result, run())


def test_a_chain_that_reuses_memory_gives_the_same_in_a_graph_as_one_by_one(dtype):
    """Kernels that begin before those they depend on have ended would show: what they read, or overwrite, is new."""
    x = random(1, 64, 14, 14, dtype=dtype, memory_format=torch.channels_last)
    dense, bias = random(64, 64, 1, 1, dtype=dtype) / 8, random(64, dtype=dtype) / 8
    packed = packed_filters(64, 1, 3, 3, dtype=dtype) / 3

    def run(between=lambda: None) -> Tensor:
        y = x
        for _ in range(8):
            before = y
            y = ops.depthwise_convolution(y, packed, bias, [1, 1], [1, 1], [1, 1], "relu", "none")
            between()
            y = ops.matrix_convolution(y, dense, bias, before, "relu6")
            between()
            y = ops.max_pool2d(y, [3, 3], [1, 1], [1, 1], [1, 1], False)
            between()
            y = ops.matrix_convolution(y, dense, bias, None, "none", 1, packed, bias, 1, 1)
            between()
            y = ops.pointwise([y, bias.view(-1, 1, 1)], SUM_RELU)[0]
            between()
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
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(result, run(torch.cuda.synchronize))


def test_empty_batches_and_unusual_types_go_to_aten():
    x = torch.randn(0, 8, 5, 5, device="cuda")
    assert ops.max_pool2d(x, [2, 2], [2, 2], [0, 0], [1, 1], False).shape == (0, 8, 2, 2)
    x = torch.randn(1, 8, 5, 5, device="cuda", dtype=torch.float64)
    weight = torch.randn(8, 1, 3, 3, device="cuda", dtype=torch.float64)
    result = ops.depthwise_convolution(x, weight, None, [1, 1], [1, 1], [1, 1])
    assert torch.allclose(result, torch.conv2d(x, weight, None, 1, 1, groups=8))
