"""What a worker says when a system fails, and in which order it measures."""

from __future__ import annotations

import pytest
from nimble.bench import worker
from nimble.bench.entrant import Entrant
from nimble.bench.job import Job
from nimble.bench.measure import QUICK, Timing
from nimble.bench.systems import SYSTEMS
from nimble.bench.worker import in_words


def test_a_failure_names_files_but_not_where_they_lie():
    error = RuntimeError(
        'no graph\n  File "/home/somebody/site-packages/torch/optim/sgd.py", line 127, in step (a/b)'
    )
    assert in_words(error) == 'RuntimeError: no graph File "sgd.py", line 127, in step (a/b)'


def test_a_failure_fits_into_a_cell_of_a_table():
    assert len(in_words(ValueError("x" * 10_000))) == 400


class Listener:
    def say(self, **what) -> None:
        pass


@pytest.fixture
def measured(monkeypatch) -> list[str]:
    """What was measured, in order, of a job on a GPU, which nobody has to have."""
    done: list[str] = []

    def noting(what: str, answer: object):
        return lambda *_: done.append(what) or answer

    times = {name: Timing(1.0, 1.0, 1.0, 1.0, 3) for name in ("eager", "nimble")}
    monkeypatch.setattr(worker, "time_in_turn", noting("timed", times))
    monkeypatch.setattr(worker, "clocks", lambda: {})
    monkeypatch.setattr(worker, "host_microseconds", noting("host time", 1.0))
    monkeypatch.setattr(worker, "active_share", noting("profiled", 0.5))
    job = Job("tiny", 1, "fp32", "cuda", ("eager", "nimble"), QUICK, profile=True)
    entrants = [
        Entrant(SYSTEMS["eager"], lambda: None, {}),
        Entrant(SYSTEMS["nimble"], lambda: None, {}, noting("tasks alone", {})),
    ]
    worker.measure(job, entrants, Listener())
    return done


def test_nothing_is_timed_after_a_profiler_ran(measured):
    assert measured == ["timed", "tasks alone", "host time", "host time", "profiled", "profiled"]
