"""Shared by all Python tests. The marks `gpu` and `full` are described in pyproject.toml."""

import os

import pytest
import torch

# Tests that compare with eager bit by bit run without rewrites, whatever the default is; those of rewrites ask
# for them.
os.environ.setdefault("NIMBLE_REWRITES", "none")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            # `make test` counts the skipped GPU tests by these words.
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)
