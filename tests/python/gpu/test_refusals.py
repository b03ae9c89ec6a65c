"""What cannot be replayed on the GPU is refused by name, and a failed capture breaks nothing."""

from __future__ import annotations

import pytest
import torch
from support import assert_same, replay
from torch import Tensor

import nimble

pytestmark = pytest.mark.gpu


# Each does what is refused on the line after its signature, which the refusal must name.


def reads_an_item(x: Tensor) -> Tensor:
    factor = x.sum().item()
    return x * factor


def goes_to_the_host(x: Tensor) -> Tensor:
    host = x.cpu()
    return x * host.sum()


def computes_on_the_host(x: Tensor) -> Tensor:
    factor = torch.rand(3, device="cpu").sum()
    return x * factor


def returns_a_random_state_that_nobody_fills(x: Tensor) -> tuple[Tensor, ...]:
    results = torch.ops.aten._scaled_dot_product_flash_attention(*[x[:1].half().repeat(1, 2, 4, 8)] * 3)
    return results[0], results[6]


add_one = torch.cuda.jiterator._create_jit_fn("template <typename T> T add_one(T x) { return x + T(1); }")


def reads_what_a_kernel_beside_the_dispatcher_filled(x: Tensor) -> Tensor:
    y = add_one(x).relu()
    return y * 2


CASES = [
    (reads_an_item, "aten::_local_scalar_dense"),
    (goes_to_the_host, "aten::_to_copy"),
    (computes_on_the_host, "aten::rand"),
    (returns_a_random_state_that_nobody_fills, "aten::_scaled_dot_product_flash_attention"),
    (reads_what_a_kernel_beside_the_dispatcher_filled, "aten::relu"),
]


@pytest.mark.parametrize(("function", "operator"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_refusal_names_operator_and_line(function, operator):
    with pytest.raises(nimble.RecordError) as refusal:
        nimble.compile(function).prepare(torch.randn(5, device="cuda"))
    code = function.__code__
    assert operator in str(refusal.value)
    assert f"{code.co_filename}:{code.co_firstlineno + 1}" in str(refusal.value)


@pytest.mark.parametrize("function", [reads_an_item, goes_to_the_host])
def test_a_plain_call_warns_and_answers_as_eager(function):
    x = torch.randn(5, device="cuda")
    with pytest.warns(nimble.FallbackWarning):
        assert_same(nimble.compile(function)(x), function(x))


def test_host_and_device_tensors_mixed_are_refused_by_name():
    x, indices, host = torch.randn(5, device="cuda"), torch.tensor([0, 3]), torch.randn(4)
    with pytest.raises(nimble.RecordError, match="aten::index"):
        nimble.compile(lambda x, indices: x[indices]).prepare(x, indices)
    with pytest.raises(nimble.RecordError, match="aten::sum"):
        nimble.compile(lambda x, host: x + host.sum()).prepare(x, host)


def test_waiting_for_the_device_is_no_part_of_a_replay():
    def function(x):
        y = x * 2
        torch.cuda.synchronize()
        return y + 1

    x = torch.randn(5, device="cuda")
    fast = nimble.compile(function, strict=True).prepare(x)
    assert_same(replay(fast, x), function(x))


@torch.library.custom_op("nimble_tests::scaled_by_its_sum", mutates_args=())
def scaled_by_its_sum(x: Tensor) -> Tensor:
    """One operator to whoever records, which waits for the GPU inside."""
    return x * x.sum().item()


def test_an_operator_that_waits_inside_is_named_and_the_next_compile_works():
    x = torch.randn(5, device="cuda")
    for _ in range(3):
        with pytest.raises(nimble.RecordError, match="scaled_by_its_sum"):
            nimble.compile(lambda x: scaled_by_its_sum(x + 1)).prepare(x)
        fast = nimble.compile(lambda x: torch.relu(x) * 2, strict=True).prepare(x)
        assert_same(replay(fast, x), torch.relu(x) * 2)


def decomposes(x: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(x)
    return vectors * values


def test_what_a_graph_cannot_hold_is_refused_by_name_and_breaks_nothing():
    x = torch.randn(8, 8, device="cuda")
    x = x + x.t()
    expected = decomposes(x)
    for _ in range(3):
        with pytest.raises(nimble.RecordError, match="CUDA graph cannot hold") as refusal:
            nimble.compile(decomposes).prepare(x)
        assert "aten::_linalg_eigh" in str(refusal.value)
        code = decomposes.__code__
        assert f"{code.co_filename}:{code.co_firstlineno + 1}" in str(refusal.value)
        # The library that failed in the capture works at once, and so does the next compile.
        assert_same(decomposes(x), expected)
        assert torch.linalg.cholesky(x @ x + torch.eye(8, device="cuda")).isfinite().all()
        fast = nimble.compile(lambda x: torch.relu(x) @ x, strict=True).prepare(x)
        assert_same(replay(fast, x), torch.relu(x) @ x)


def test_a_plain_call_that_cannot_be_captured_answers_as_eager():
    x = torch.randn(8, 8, device="cuda")
    x = x + x.t()
    fast = nimble.compile(decomposes)
    fast(x)
    with pytest.warns(nimble.FallbackWarning, match="aten::_linalg_eigh"):
        assert_same(fast(x), decomposes(x))
    assert_same(fast(x), decomposes(x))


def test_an_exception_while_recording_leaves_nothing_broken():
    def function(x):
        torch.relu(x)
        raise KeyError("from the model")

    x = torch.randn(5, device="cuda")
    with pytest.raises(KeyError, match="from the model"):
        nimble.compile(function).prepare(x)
    fast = nimble.compile(torch.relu, strict=True).prepare(x)
    assert_same(replay(fast, x), torch.relu(x))


def test_a_replay_inside_another_capture_is_refused():
    x = torch.randn(5, device="cuda")
    fast = nimble.compile(torch.relu, strict=True).prepare(x)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(nimble.Error, match="captured"), torch.cuda.graph(graph):
        fast(x)
    assert_same(replay(fast, x), torch.relu(x))
