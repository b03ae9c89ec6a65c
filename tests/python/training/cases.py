"""Training programs put together from a model, an optimizer and what else people do in a step."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import astuple, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ExponentialLR
from training.models import MODELS, Player
from training.optimizers import OPTIMIZERS
from training.steps import Training, nothing

# Every choice, the usual one first. "scaled": autocast with a GradScaler, bfloat16 on the CPU and float16 on CUDA.
PRECISIONS = ("float32", "bfloat16", "scaled")
CLIPPINGS = ("unclipped", "norm", "value")
ZEROINGS = ("none_inside", "zeros_inside", "none_outside", "zeros_outside", "none_after")
RATES = ("constant", "scheduled", "tensor", "scheduled_tensor")
EXTRAS = ("as_is", "frozen", "own_loss")


@dataclass(frozen=True)
class Case:
    model: str
    optimizer: str = "momentum_foreach"
    precision: str = "float32"
    clipping: str = "unclipped"
    zeroing: str = "none_inside"
    rate: str = "constant"
    extra: str = "as_is"

    def __str__(self) -> str:
        usual = astuple(Case(self.model))
        unusual = [
            value for value, common in zip(astuple(self)[2:], usual[2:], strict=True) if value != common
        ]
        return "-".join([self.model, self.optimizer, *unusual])

    def exists_on(self, device: str) -> bool:
        """Combinations that eager PyTorch refuses are no cases."""
        recipe = OPTIMIZERS[self.optimizer]
        if device not in recipe.devices or ("tensor" in self.rate and not recipe.tensor_lr):
            return False
        # Eager's own momentum starts from uninitialised memory where the scaler leaves the first step out.
        if device == "cuda" and self.precision == "scaled" and "momentum" in recipe.options:
            return False
        # Other optimizers make the scaler look at a value on the host, which test_steps.py is about.
        return self.precision != "scaled" or recipe.scales


def own_loss(loss: Tensor, module: nn.Module) -> Tensor:
    """A loss that a user wrote: soft, and with a penalty on all that is trained."""
    squares = [p.square().mean() for p in module.parameters() if p.requires_grad]
    return torch.log(torch.cosh(loss)) + 1e-2 * torch.stack(squares).sum().sqrt()


def freeze_first_third(module: nn.Module) -> None:
    parameters = list(module.parameters())
    for parameter in parameters[: len(parameters) // 3]:
        parameter.requires_grad_(False)


class Program:
    """The code that a user would write, with the choices of a case."""

    def __init__(self, case: Case, device: str) -> None:
        self.case, self.device = case, device
        task = MODELS[case.model]()
        self.players, self.draw = task.players, task.draw
        for player in self.players:
            player.module.to(device).train()
            if case.extra == "frozen":
                freeze_first_third(player.module)
        self.optimizers = [self.optimizer_of(player) for player in self.players]
        scheduled = case.rate.startswith("scheduled")
        self.schedulers = [ExponentialLR(o, 0.97) for o in self.optimizers] if scheduled else []
        self.scaler = torch.amp.GradScaler(device, init_scale=2.0**20, growth_interval=4)

    def optimizer_of(self, player: Player) -> Optimizer:
        recipe = OPTIMIZERS[self.case.optimizer]
        rate = torch.tensor(recipe.lr, device=self.device) if "tensor" in self.case.rate else None
        return recipe.make([p for p in player.module.parameters() if p.requires_grad], rate)

    def zero_grad(self, optimizer: Optimizer) -> None:
        optimizer.zero_grad(set_to_none=self.case.zeroing.startswith("none"))

    def autocast(self) -> torch.autocast:
        half = self.device == "cuda" and self.case.precision == "scaled"
        dtype = torch.float16 if half else torch.bfloat16
        return torch.autocast(self.device, dtype, enabled=self.case.precision != "float32")

    def update(self, player: Player, optimizer: Optimizer, batch: tuple[Tensor, ...]) -> Any:
        if self.case.zeroing.endswith("inside"):
            self.zero_grad(optimizer)
        with self.autocast():
            loss = player.loss(*batch)
        if self.case.extra == "own_loss":
            loss = own_loss(loss, player.module)
        if self.case.precision == "scaled":
            self.scaler.scale(loss).backward()
        else:
            loss.backward()
        norm = self.clip(player.module, optimizer)
        if self.case.precision == "scaled":
            self.scaler.step(optimizer)
        else:
            optimizer.step()
        if self.case.zeroing == "none_after":
            self.zero_grad(optimizer)
        return {"loss": loss, "norm": norm} if norm is not None else loss.detach()

    def clip(self, module: nn.Module, optimizer: Optimizer) -> Tensor | None:
        if self.case.clipping == "unclipped":
            return None
        if self.case.precision == "scaled":
            self.scaler.unscale_(optimizer)
        if self.case.clipping == "value":
            nn.utils.clip_grad_value_(module.parameters(), 0.01)
            return None
        norm = nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        # While a scaler looks for its scale, the norm of a step that it leaves out is infinite.
        return norm.nan_to_num()

    def step(self, *batch: Tensor) -> list[Any]:
        answers = [
            self.update(player, optimizer, batch)
            for player, optimizer in zip(self.players, self.optimizers, strict=True)
        ]
        if self.case.precision == "scaled":
            self.scaler.update()
        return answers

    def before(self) -> None:
        for optimizer in self.optimizers:
            self.zero_grad(optimizer)

    def after(self) -> None:
        for scheduler in self.schedulers:
            scheduler.step()

    def batch(self, number: int) -> tuple[Tensor, ...]:
        source = torch.Generator().manual_seed(1000 + number)
        return tuple(tensor.to(self.device) for tensor in self.draw(source))

    def state(self) -> dict[str, Any]:
        parts: dict[str, Any] = {"scaler": self.scaler}
        for number, player in enumerate(self.players):
            parts |= {f"model {number}": player.module, f"optimizer {number}": self.optimizers[number]}
        return parts | {f"scheduler {number}": s for number, s in enumerate(self.schedulers)}


def make(case: Case, device: str) -> Training:
    program = Program(case, device)
    outside = case.zeroing.endswith("outside")
    before = program.before if outside else nothing
    return Training(program.step, program.batch, program.state(), before, program.after)


def pairs_of(case: Case) -> set[tuple]:
    """All pairs of choices that meet in a case; the model is none of them."""
    return set(itertools.combinations(enumerate(astuple(case)[1:]), 2))


def pairwise(model: str, device: str) -> list[Case]:
    """Few cases in which every choice meets every other one at least once: greedily, always the case with the most
    pairs that have not met yet."""
    choices = (list(OPTIMIZERS), PRECISIONS, CLIPPINGS, ZEROINGS, RATES, EXTRAS)
    candidates = [Case(model, *chosen) for chosen in itertools.product(*choices)]
    candidates = [case for case in candidates if case.exists_on(device)]
    pairs = [pairs_of(case) for case in candidates]
    missing = set().union(*pairs)
    # What a case would bring only becomes less: whoever still brings what it did when it was put here is the best.
    waiting = [(-len(brought), index) for index, brought in enumerate(pairs)]
    heapq.heapify(waiting)
    chosen = []
    while missing:
        brought_then, index = heapq.heappop(waiting)
        brings = pairs[index] & missing
        if len(brings) == -brought_then:
            chosen.append(candidates[index])
            missing -= brings
        else:
            heapq.heappush(waiting, (-len(brings), index))
    return chosen


def each_model(cases: list[Case], per_model: int, models: list[str]) -> list[Case]:
    """Hands the cases out to the models in turn, so that together they use as many of them as possible."""
    return [
        replace(cases[(number + turn * len(models)) % len(cases)], model=model)
        for turn in range(per_model)
        for number, model in enumerate(models)
    ]
