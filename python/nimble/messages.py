"""How Nimble speaks: a log, and one kind of warning."""

import logging
import warnings

log = logging.getLogger("nimble")


class FallbackWarning(UserWarning):
    """Something could not be replayed and runs eagerly instead. Given once for each reason."""


def warn(text: str) -> None:
    log.warning(text)
    warnings.warn(text, FallbackWarning, stacklevel=2)
