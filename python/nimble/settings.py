"""Options of `nimble.compile`: by keyword, else from NIMBLE_<NAME> in the environment, else the default."""

import os
from collections.abc import Callable
from typing import Any

from nimble import _C

OUTPUTS = ("copy", "alias")
MEMORY = ("shared", "apart")


def _boolean(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off", ""):
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
    return 0 if text == "max" else _count(text, "neither auto, max nor a number of streams")


def _count(text: str, otherwise: str = "no whole number") -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is {otherwise}") from None
    if number < 0:
        raise ValueError(f"{text} is negative")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not number >= 0:
        raise ValueError(f"{text} is negative")
    return number


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _tolerance(text: str) -> float | None:
    return None if text == "auto" else _seconds(text)


# name: (how to read it, its default as text)
_OPTIONS = {
    "strict": (_boolean, "0"),
    "outputs": (_one_of(*OUTPUTS), "copy"),
    "validate_every": (_count, "0"),
    "cache_size": (_count, "8"),
    "streams": (_streams, "auto"),
    "memory": (_one_of(*MEMORY), "shared"),
    "graph": (_boolean, "1"),
    "tune": (_seconds, "0.5"),
    "rewrites": (_names, _C.DEFAULT_REWRITES),
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
            value = ",".join(value)
        text = str(value) if value is not None else os.environ.get(source, default)
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
