"""Stories of the CPU tests, told again on CUDA: accumulation, evaluation between steps, checkpoints, a last batch of
another size, and a compiled module in all kinds of loops. Only the fixture `device` is another (conftest.py)."""

from __future__ import annotations

import pytest
from training.test_changes import TestCheckpoints
from training.test_modules import TestAnOrdinaryLoop
from training.test_steps import TestAccumulation, TestBatchesOfAnotherSize, TestEvaluation

__all__ = [
    "TestAccumulation",
    "TestAnOrdinaryLoop",
    "TestBatchesOfAnotherSize",
    "TestCheckpoints",
    "TestEvaluation",
]

pytestmark = pytest.mark.gpu
