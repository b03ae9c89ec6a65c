"""Random networks on CUDA with every rewrite: at most twice eager's distance from the network in float64.

Without measuring, so that whatever can fire does, single precision is computed as such: of small networks like these
eager computes one part with TF32, another not. As users have it, with TF32 and measured, eager's distance is its usual
one, over several inputs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nearness import assert_as_near_as_eager, assert_usually_as_near_as_eager, in_double
from rewrites.random_networks import linear_networks, networks, pooling_networks, transformers
from support import replay

import nimble

pytestmark = pytest.mark.gpu

MANY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
SOME = settings(MANY, max_examples=8)  # each is measured
DTYPES = st.sampled_from([torch.float32, torch.float16])


@pytest.fixture(autouse=True)
def without_tf32(repeatable_kernels):
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        yield


def check(model: torch.nn.Module, x: torch.Tensor) -> str:
    """Rewritten without measuring, so that whatever can fire does. Returns what `explain` says."""
    fast = nimble.compile(model, rewrites="default", strict=True, tune=0).prepare(x)
    fresh = torch.randn_like(x)
    exact = in_double(model)(fresh.double())
    # Half precision is coarse, and of a few numbers eager's may all be lucky.
    least = 4e-3 if x.dtype == torch.float16 else 1e-5
    assert_as_near_as_eager(replay(fast, fresh), model(fresh), exact, least=least)
    assert "dropped" not in fast.explain(), fast.explain()
    return fast.explain()


def image(batch: int, size: int, dtype: torch.dtype, channels_last: bool) -> torch.Tensor:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return torch.randn(batch, 4, size, size, device="cuda", dtype=dtype).contiguous(memory_format=layout)


@MANY
@given(model=networks(), batch=st.sampled_from([1, 3]), dtype=DTYPES, channels_last=st.booleans())
def test_convolutions_norms_activations_and_concatenations(model, batch, dtype, channels_last):
    check(model.cuda().to(dtype), image(batch, 8, dtype, channels_last))


@MANY
@given(model=pooling_networks(), dtype=DTYPES, channels_last=st.booleans())
def test_pooling(model, dtype, channels_last):
    check(model.cuda().to(dtype), image(2, 9, dtype, channels_last))


@MANY
@given(model=linear_networks(), shape=st.sampled_from([(1, 8), (5, 8), (2, 3, 8)]), dtype=DTYPES)
def test_linear_layers(model, shape, dtype):
    check(model.cuda().to(dtype), torch.randn(shape, device="cuda", dtype=dtype))


@MANY
@given(model=transformers(width=40), shape=st.sampled_from([(1, 5, 40), (3, 33, 40)]), dtype=DTYPES)
def test_transformers(model, shape, dtype):
    check(model.cuda().to(dtype), torch.randn(shape, device="cuda", dtype=dtype))


def test_pooling_and_linear_layers_do_fire():
    pool = torch.nn.Sequential(torch.nn.MaxPool2d(3), torch.nn.AvgPool2d(2), torch.nn.AdaptiveAvgPool2d(1))
    assert "pooling: 3 times" in check(pool, image(2, 18, torch.float32, channels_last=True))
    linear = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).cuda()
    assert "linear_activation: 1 times" in check(linear, torch.randn(4, 8, device="cuda"))


@pytest.fixture(params=[False, True], ids=["convolutions", "products too"])
def with_tf32(without_tf32, request):
    """As PyTorch has it by default, and for matrix products as well."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = request.param
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=True):
        yield
    torch.backends.cuda.matmul.allow_tf32 = before


def may_be_dropped(model: torch.nn.Module) -> bool:
    """Where products may round to TF32, cuBLAS does for some shapes and not for others. A rewrite that changes a
    product's shape, or adds its bias in the same call, may so lose digits that eager keeps; once more without TF32 does
    not help, since that leaves cuBLAS to PyTorch's settings."""
    has_products = any(isinstance(module, torch.nn.Linear) for module in model.modules())
    return has_products and torch.backends.cuda.matmul.allow_tf32


def check_tuned(model: torch.nn.Module, x: torch.Tensor) -> None:
    fast = nimble.compile(model, rewrites="default", strict=True).prepare(x)
    assert may_be_dropped(model) or "dropped: result" not in fast.explain(), fast.explain()
    wide, fresh = in_double(model), [torch.randn_like(x) for _ in range(4)]
    runs = [(replay(fast, each), model(each), wide(each.double())) for each in fresh]
    assert_usually_as_near_as_eager(runs, least=1e-5)


@pytest.mark.usefixtures("with_tf32")
class TestWithTf32AndTuned:
    @SOME
    @given(model=networks(), batch=st.sampled_from([1, 3]), channels_last=st.booleans())
    def test_convolutions_norms_activations_and_concatenations(self, model, batch, channels_last):
        check_tuned(model.cuda(), image(batch, 8, torch.float32, channels_last))

    @SOME
    @given(model=linear_networks(), shape=st.sampled_from([(1, 8), (5, 8), (2, 3, 8)]))
    def test_linear_layers(self, model, shape):
        check_tuned(model.cuda(), torch.randn(shape, device="cuda"))

    @SOME
    @given(model=transformers(width=40), shape=st.sampled_from([(1, 5, 40), (3, 33, 40)]))
    def test_transformers(self, model, shape):
        check_tuned(model.cuda(), torch.randn(shape, device="cuda"))
