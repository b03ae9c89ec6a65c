"""Trains a small convolutional network on digit-like pictures, eagerly and with Nimble, from the same seed.

    python examples/train_mnist.py [--steps N] [--batch N] [--device cpu|cuda]

Nothing is downloaded: each of the ten classes is a random stroke pattern of 1 x 28 x 28 pixels, and a picture is its
class's pattern, shifted a little and under noise. Both runs end with the same loss, to the last bit.
"""

import argparse
import time

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from torch import nn
from torch.nn import functional as F

import nimble

CLASSES = 10
WARM_UP = 5  # steps that are not timed: in the first ones Nimble records, plans and checks


def make_pictures(count: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures and their labels, the same ones every time."""
    source = torch.Generator().manual_seed(0)
    # A few coarse random strokes, blown up: neighbouring pixels belong together, as in handwriting.
    coarse = (torch.rand(CLASSES, 1, 7, 7, generator=source) < 0.3).float()
    patterns = F.interpolate(coarse, size=(28, 28), mode="bilinear")
    labels = torch.randint(CLASSES, (count,), generator=source)
    shifts = torch.randint(-2, 3, (count, 2), generator=source).tolist()
    shifted = [
        patterns[label].roll(shift, (1, 2)) for label, shift in zip(labels.tolist(), shifts, strict=True)
    ]
    pictures = torch.stack(shifted) + 0.7 * torch.randn(count, 1, 28, 28, generator=source)
    return pictures.to(device), labels.to(device)


def make_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(),
        nn.Linear(64, CLASSES),
    )


def train(title: str, compiler, arguments: argparse.Namespace) -> dict:
    torch.manual_seed(1)
    pictures, labels = make_pictures(64 * arguments.batch, arguments.device)
    model = make_network().to(arguments.device)
    # Adam counts its steps on the host. Nimble notices: the forward and backward passes are replayed, and this
    # optimizer's step runs as ever. With capturable=True (on a GPU) or fused=True all of it is replayed.
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=arguments.fused)

    def step(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        # Tensors, not numbers: .item() in here would make the host wait, and could not be replayed.
        return loss.detach(), (logits.argmax(1) == y).float().mean()

    step = compiler(step)  # all there is to it

    losses, accuracies = [], []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns) as progress:
        bar = progress.add_task(title, total=arguments.steps)
        start = time.perf_counter()
        for number in range(arguments.steps):
            if number == min(WARM_UP, arguments.steps - 1):
                start = now(arguments.device)
            chosen = torch.arange(number * arguments.batch, (number + 1) * arguments.batch) % len(pictures)
            loss, accuracy = step(pictures[chosen], labels[chosen])
            losses.append(loss)
            accuracies.append(accuracy)
            if number % 20 == 19:  # looking at a number waits for the GPU, so not at every step
                recent = torch.stack(accuracies[-20:]).mean().item()
                progress.update(bar, description=f"{title}  accuracy {recent:6.1%}")
            progress.advance(bar)
        seconds = now(arguments.device) - start
    return {
        "loss": losses[-1].item(),
        "accuracy": torch.stack(accuracies[-20:]).mean().item(),
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
        "--steps", type=positive, default=300, help="training steps for each of the two runs (300)"
    )
    parser.add_argument("--batch", type=positive, default=64, help="pictures in each step (64)")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--fused", action="store_true", help="let Adam count on the device")
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
