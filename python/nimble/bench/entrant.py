"""A system that is ready to be timed, and what is known of it so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nimble.bench.systems import System


@dataclass
class Entrant:
    system: System
    run: Callable[[], object]
    row: dict  # prepare_seconds, memory, answer, and what the system says of itself
    measured: Callable[[], dict] | None = None  # see Ready
