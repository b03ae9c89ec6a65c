"""Prints how far eager and a rewritten program are from float64, for models of model_lists.py: the table of
docs/rewrites.md. `python tests/python/model_errors.py torchvision-resnet18 timm-hrnet_w18_small`"""

from __future__ import annotations

import sys

import torch
from model_checks import build
from model_lists import ALL
from nearness import distance, in_double, largest

import nimble

INPUTS = 4


def span(errors: list[float]) -> str:
    return f"{min(errors):.1e} to {max(errors):.1e}"


@torch.no_grad()
def main(names: list[str]) -> None:
    for case in (case for case in ALL if str(case) in names):
        torch.manual_seed(0)
        model = build(case)
        exact_model = in_double(model)
        fast = nimble.compile(model, rewrites="default", tune=0, strict=True)
        fast.prepare(*case.inputs()[0])
        errors: dict[str, list[float]] = {"eager": [], "rewritten": []}
        for _ in range(INPUTS):
            (x,), _ = case.inputs()
            exact = exact_model(x.double())
            for name, function in (("eager", model), ("rewritten", fast)):
                errors[name].append(distance(function(x), exact) / largest(exact))
        print(f"| {case} | {span(errors['eager'])} | {span(errors['rewritten'])} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
