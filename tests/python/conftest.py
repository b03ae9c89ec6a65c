"""Shared by all Python tests. The marks `gpu` and `full` are described in pyproject.toml."""

import os
from collections.abc import Iterator

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


@pytest.fixture
def made_for_dynamo(monkeypatch: pytest.MonkeyPatch) -> Iterator[list]:
    """What `torch.compile(backend="nimble")` made of the graphs that Dynamo found, in that order: from outside nothing
    tells a replay from an eager run. Dynamo starts afresh, and forgets what the test compiled."""
    import nimble.dynamo

    made: list[nimble.dynamo.CompiledFunction] = []

    class Remembered(nimble.dynamo.CompiledFunction):
        def __init__(self, *args) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(nimble.dynamo, "CompiledFunction", Remembered)
    torch._dynamo.reset()
    yield made
    torch._dynamo.reset()
