"""Steps of training that may round otherwise than eager, by as much as the user says."""

from __future__ import annotations

import copy

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

import nimble

pytestmark = pytest.mark.gpu

CLASSES, BATCH = 10, 16

MODELS = {
    "resnet18": lambda: torchvision.models.resnet18(num_classes=CLASSES),
    "resnet50": lambda: torchvision.models.resnet50(num_classes=CLASSES),
    "mobilenet_v2": lambda: torchvision.models.mobilenet_v2(num_classes=CLASSES, dropout=0.0),
}


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


def batch(number: int, size: int = 64) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(number)
    x = torch.randn(BATCH, 3, size, size, generator=source)
    return x.cuda(), torch.randint(CLASSES, (BATCH,), generator=source).cuda()


def step_of(model: nn.Module, lr: float = 1e-4):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def errors(model: nn.Module, exact: nn.Module) -> tuple[float, float]:
    """Of gradients and of statistics: by root mean square, as a part of the largest value, in the mean over all."""

    def mean_error(mine: list[Tensor], right: list[Tensor]) -> float:
        parts = [(a - b).pow(2).mean().sqrt() / b.abs().max() for a, b in zip(mine, right, strict=True)]
        return torch.stack(parts).mean().item()

    def gradients(of: nn.Module) -> list[Tensor]:
        return [parameter.grad for parameter in of.parameters()]

    def statistics(of: nn.Module) -> list[Tensor]:
        return [buffer for buffer in of.buffers() if buffer.is_floating_point()]

    return mean_error(gradients(model), gradients(exact)), mean_error(statistics(model), statistics(exact))


@pytest.mark.parametrize("tf32", [False, True], ids=["float32", "tf32"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_at_most_twice_as_far_from_float64_as_eagers(name, tf32):
    ours = MODELS[name]().cuda()
    eagers, exact = copy.deepcopy(ours), copy.deepcopy(ours).double()
    fast = nimble.compile(step_of(ours), rewrites="default", tolerance=1.0)
    slow, reference = step_of(eagers), step_of(exact)
    losses = []
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=tf32):
        for number in range(5):  # the first three are set up, recorded and compared
            x, y = batch(number)
            losses.append([fast(x, y).double(), slow(x, y).double(), reference(x.double(), y)])
    off, eagers_off = ((torch.tensor(losses)[:, :2] / torch.tensor(losses)[:, 2:]) - 1).abs().mean(0)
    assert off <= 2 * eagers_off + 0.01, losses
    explained = fast.explain()
    assert fast.stats["replays"] >= 1 and "fuse_batch_norm" in explained, explained
    for mine, theirs in zip(errors(ours, exact), errors(eagers, exact), strict=True):
        assert mine <= 2 * theirs, (mine, theirs)


def test_the_loss_goes_down_like_eagers():
    ours = MODELS["resnet18"]().cuda()
    eagers = copy.deepcopy(ours)
    fast = nimble.compile(step_of(ours, lr=1e-2), rewrites="default", tolerance=1.0)
    slow = step_of(eagers, lr=1e-2)
    losses = [(fast(*batch(n % 3)).item(), slow(*batch(n % 3)).item()) for n in range(30)]
    assert "fuse_batch_norm" in fast.explain() and fast.stats["replays"] >= 25
    for mine, theirs in losses[:5]:
        assert mine == pytest.approx(theirs, rel=0.02)
    assert losses[-1][0] < 0.8 * losses[0][0]


def test_without_a_tolerance_bits_stay():
    fast = nimble.compile(step_of(MODELS["resnet18"]().cuda()), rewrites="default")
    for number in range(5):
        fast(*batch(number))
    assert fast.stats["replays"] and "fuse_pointwise" in fast.explain()
    assert "fuse_batch_norm" not in fast.explain()


def test_a_tolerance_that_is_not_kept_drops_the_rewrites():
    fast = nimble.compile(step_of(MODELS["resnet18"]().cuda()), rewrites="default", tolerance=1e-12)
    for number in range(6):
        assert fast(*batch(number)).isfinite()
    explained = fast.explain()
    assert "dropped" in explained and "allowed" in explained
    assert fast.stats["replays"]
