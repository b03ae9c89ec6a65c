"""For the tests of training alone."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def device() -> str:
    """Where the stories take place; those that gpu/training tells again take place on a GPU."""
    return "cpu"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The tensors are so small that more threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
