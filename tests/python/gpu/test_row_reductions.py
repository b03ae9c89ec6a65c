"""Networks with reductions of rows on the GPU: one kernel each, with what is around it, as near float64 as eager."""

from __future__ import annotations

import pytest
import torch
from nearness import assert_as_near_as_eager, in_double
from support import replay
from torch import Tensor, nn
from torch.nn import functional

import nimble

pytestmark = pytest.mark.gpu

REDUCTIONS = {
    "aten::mean",
    "aten::sum",
    "aten::amax",
    "aten::linalg_vector_norm",
    "aten::_log_softmax",
    "aten::mse_loss",
    "aten::binary_cross_entropy_with_logits",
    "aten::_fused_rms_norm",
}


@pytest.fixture(params=[torch.float32, torch.float16, torch.bfloat16], ids=str)
def dtype(request):
    return request.param


@pytest.fixture(autouse=True)
def fixed_seed(repeatable_kernels):
    torch.manual_seed(0)


def check(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, kernels: int) -> None:
    """`fuse_rows` fires so often, without measuring, and leaves no reduction behind."""
    model = model.eval().cuda().to(dtype)
    x = torch.randn(shape, device="cuda", dtype=dtype)
    fast = nimble.compile(model, strict=True, rewrites=["fuse_rows"], tune=0).prepare(x)
    explained = fast.explain()
    assert f"fuse_rows: {kernels} times" in explained and "dropped" not in explained, explained
    [part] = fast._nimble._document((), {}, eager=False)["parts"]
    assert not {task["operator"].split(".")[0] for task in part["tasks"]} & REDUCTIONS, explained
    fresh = torch.randn_like(x)
    least = 1e-5 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps
    exact = in_double(model)(fresh.double())
    assert_as_near_as_eager(replay(fast, fresh), model(fresh), exact, least=least)


class RmsNorm(nn.Module):
    """As language models have it: in float32, whatever the type around it."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class GatedLayer(nn.Module):
    def __init__(self, width: int, norm: nn.Module):
        super().__init__()
        self.norm = norm
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


@pytest.mark.parametrize("words", [1, 50])
def test_rms_norms_take_in_what_is_around_them(dtype, words):
    layers = 3
    check(
        nn.Sequential(*(GatedLayer(256, RmsNorm(256)) for _ in range(layers))), (2, words, 256), dtype, layers
    )


def test_rms_norms_of_pytorchs(dtype):
    layers = 3
    model = nn.Sequential(nn.Tanh(), *(GatedLayer(256, nn.RMSNorm(256)) for _ in range(layers)))
    check(model, (2, 50, 256), dtype, layers)


class LossOfEachRow(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.model = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return functional.mse_loss(self.model(x).tanh(), x, reduction="none").mean(-1)


class LossOfEverything(LossOfEachRow):
    def forward(self, x: Tensor) -> Tensor:
        return functional.mse_loss(self.model(x).tanh(), x)


class CrossEntropy(LossOfEachRow):
    def forward(self, x: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(self.model(x) * 2, x.sigmoid())


class Similarity(LossOfEachRow):
    def forward(self, x: Tensor) -> Tensor:
        return functional.cosine_similarity(self.model(x), x, -1)


class Normalized(LossOfEachRow):
    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(self.model(x), dim=-1)


class LogProbabilities(LossOfEachRow):
    def forward(self, x: Tensor) -> Tensor:
        return (self.model(x) / 0.7).log_softmax(-1)


@pytest.mark.parametrize(
    "kind",
    [LossOfEachRow, LossOfEverything, CrossEntropy, Similarity, Normalized, LogProbabilities],
    ids=lambda c: c.__name__,
)
def test_losses_similarities_and_probabilities(dtype, kind):
    check(kind(96), (40, 96), dtype, 1)
