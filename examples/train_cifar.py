"""Trains ResNet-18 on small coloured pictures, eagerly and with Nimble, from the same seed.

    python examples/train_cifar.py [--steps N] [--batch N] [--device cpu|cuda]

Nothing is downloaded: each of the ten classes is a random pattern of colours at 3 x 32 x 32 pixels, and a picture is
its class's pattern, mirrored or not and under noise. The accuracy is that on pictures kept aside. Both runs end with
the same loss, to the last bit.
"""

import argparse
import time
from dataclasses import dataclass

import torch
import torchvision
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from torch.nn import functional as F

import nimble

CLASSES = 10
WARM_UP = 5  # steps that are not timed: in the first ones Nimble records, plans and checks


@dataclass
class Pictures:
    """A set that fits into memory, handed out in batches."""

    images: torch.Tensor
    labels: torch.Tensor

    def batch(self, number: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.arange(number * size, (number + 1) * size) % len(self.images)
        return self.images[chosen], self.labels[chosen]


def make_pictures(count: int, seed: int, device: str) -> Pictures:
    """The patterns are the same ones every time; which pictures are made of them depends on the seed."""
    patterns = F.interpolate(
        torch.randn(CLASSES, 3, 8, 8, generator=torch.Generator().manual_seed(0)),
        size=(32, 32),
        mode="bilinear",
    )
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=source)
    images = patterns[labels]
    mirrored = torch.rand(count, 1, 1, 1, generator=source) < 0.5
    images = torch.where(mirrored, images.flip(3), images)
    images = images + 1.5 * torch.randn(count, 3, 32, 32, generator=source)
    return Pictures(images.to(device), labels.to(device))


def train(title: str, compiler, arguments: argparse.Namespace) -> dict:
    torch.manual_seed(1)
    device, size = arguments.device, arguments.batch
    training = make_pictures(100 * size, 1, device)
    aside = make_pictures(size, 2, device)
    model = torchvision.models.resnet18(num_classes=CLASSES).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=5e-4)

    # One step as it stands in any training script. Nimble records one call of it, forward, backward and update, checks
    # another one against eager, and replays the rest: the Python below no longer runs.
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    def evaluate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (model(x).argmax(1) == y).float().mean()

    step, evaluate = compiler(step), compiler(evaluate)

    seconds = 0.0
    accuracy = torch.zeros(())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns) as progress:
        bar = progress.add_task(title, total=arguments.steps)
        for number in range(arguments.steps):
            batch = training.batch(number, size)
            start = now(device)
            loss = step(*batch)
            seconds += now(device) - start if number >= WARM_UP else 0.0
            progress.advance(bar)
            if (
                number % arguments.evaluate_every == arguments.evaluate_every - 1
                or number == arguments.steps - 1
            ):
                # The step and this read the same weights, where they lie.
                model.eval()
                with torch.no_grad():
                    accuracy = evaluate(aside.images, aside.labels)
                model.train()
                progress.update(bar, description=f"{title}  accuracy {accuracy.item():6.1%}")
    return {
        "loss": loss.item(),
        "accuracy": accuracy.item(),
        "milliseconds": 1e3 * seconds / max(1, arguments.steps - WARM_UP),
        "explain": step.explain() if hasattr(step, "explain") else "",
    }


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--steps", type=positive, default=150, help="training steps for each of the two runs (150)"
    )
    parser.add_argument("--batch", type=positive, default=32, help="pictures in each step (32)")
    parser.add_argument(
        "--evaluate-every", type=positive, default=10, metavar="N", help="steps in between (10)"
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--explain", action="store_true", help="tell what Nimble did")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no GPU")
    torch.backends.cudnn.deterministic = True  # so that two runs can be compared at all

    eager = train("eager ", lambda function: function, arguments)
    fast = train("nimble", nimble.compile, arguments)
    for title, run in (("eager", eager), ("nimble", fast)):
        print(
            f"{title:7} loss {run['loss']!r}, accuracy {run['accuracy']:.1%}, {run['milliseconds']:.2f} ms a step"
        )
    print(f"same loss: {'yes' if eager['loss'] == fast['loss'] else 'no'}")
    if arguments.steps > WARM_UP:
        print(f"speed-up: {eager['milliseconds'] / fast['milliseconds']:.2f}")
    else:
        print(f"speed-up: none, for the first {WARM_UP} steps are not timed")
    if arguments.explain:
        print(fast["explain"])


if __name__ == "__main__":
    main()
