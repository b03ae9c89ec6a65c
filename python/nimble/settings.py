"""Options of `nimble.compile`: by keyword, else from NIMBLE_<NAME> in the environment, else the default."""

import math
import os
import sys
from collections.abc import Callable
from typing import Any

from nimble import _C
from nimble.nearest import find

OUTPUTS = ("copy", "alias")
MEMORY = ("shared", "apart")


def _boolean(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return read


def _streams(text: str) -> int | None:
    if text == "auto":
        return None
    if text == "max":
        return 0  # as the engine calls it
    return _at_least_one(text, "neither auto, max nor a number of streams")


def _count(text: str, otherwise: str = "no whole number") -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is {otherwise}") from None
    if number < 0:
        raise ValueError(f"{text} is negative")
    if number > sys.maxsize:
        raise ValueError(f"{text} is too large")
    return number


def _at_least_one(text: str, otherwise: str = "no whole number") -> int:
    if (number := _count(text, otherwise)) == 0:
        raise ValueError(f"{text} is less than 1")
    return number


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ValueError(f"{text!r} is no number")
    if number < 0:
        raise ValueError(f"{text} is negative")
    return number


def _seconds(text: str) -> float:
    if math.isinf(number := _number(text)):
        raise ValueError(f"{text} seconds are never over")
    return number


def _rewrites(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        find(name, ["default", "none", *_C.rewrites()], "rewrite")
    if "none" in names and len(set(names)) > 1:
        raise ValueError(f"{text!r} names none and others")
    return names


def _tolerance(text: str) -> float | None:
    return None if text == "auto" else _number(text)


# name: (how to read it, its default as text)
_OPTIONS = {
    "strict": (_boolean, "0"),
    "outputs": (_one_of(*OUTPUTS), "copy"),
    "validate_every": (_count, "0"),
    "cache_size": (_at_least_one, "8"),
    "streams": (_streams, "auto"),
    "memory": (_one_of(*MEMORY), "shared"),
    "graph": (_boolean, "1"),
    "tune": (_seconds, "0.5"),
    "rewrites": (_rewrites, _C.DEFAULT_REWRITES),
    "tolerance": (_tolerance, "auto"),
}


def compile_options(**given: Any) -> _C.CompileOptions:
    """The engine's options from keywords and environment. Unknown names and bad values are refused by name."""
    unknown = sorted(set(given) - set(_OPTIONS))
    if unknown:
        raise TypeError(f"nimble.compile has no option {unknown[0]!r}; it has {', '.join(_OPTIONS)}")
    values = {}
    for name, (read, default) in _OPTIONS.items():
        value = given.get(name)
        source = name if value is not None else f"NIMBLE_{name.upper()}"
        if isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        # A variable that is empty is none.
        text = str(value) if value is not None else os.environ.get(source) or default
        try:
            values[name] = read(text)
        except ValueError as error:
            raise ValueError(f"nimble.compile: option {source}: {error}") from None
    options = _C.CompileOptions()
    options.strict = values["strict"]
    options.alias_outputs = values["outputs"] == "alias"
    options.validate_every = values["validate_every"]
    options.cache_size = values["cache_size"]
    options.streams = values["streams"]
    options.share_memory = values["memory"] == "shared"
    options.graph = values["graph"]
    options.tune_seconds = values["tune"]
    options.rewrites = values["rewrites"]
    options.tolerance = values["tolerance"]
    return options
