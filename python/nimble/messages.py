"""How Nimble speaks: a log, and one kind of warning."""

import logging
import os
import sys
import warnings

import torch

log = logging.getLogger("nimble")
log.addHandler(logging.NullHandler())  # or Python prints what is a warning already once more

_NOT_THE_USERS = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (__file__, torch.__file__))


class FallbackWarning(UserWarning):
    """Something could not be replayed and runs eagerly instead. Given once for each reason."""


def warn(text: str) -> None:
    """As if the user's own line had given it."""
    log.warning(text)
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, FallbackWarning, stacklevel=level)
