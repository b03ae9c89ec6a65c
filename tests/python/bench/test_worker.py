"""What a worker says when a system fails."""

from __future__ import annotations

from nimble.bench.worker import in_words


def test_a_failure_names_files_but_not_where_they_lie():
    error = RuntimeError(
        'no graph\n  File "/home/somebody/site-packages/torch/optim/sgd.py", line 127, in step (a/b)'
    )
    assert in_words(error) == 'RuntimeError: no graph File "sgd.py", line 127, in step (a/b)'


def test_a_failure_fits_into_a_cell_of_a_table():
    assert len(in_words(ValueError("x" * 10_000))) == 400
