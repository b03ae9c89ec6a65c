"""A wrong name is answered with the nearest right ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from nimble.exit_codes import WrongInput


class UnknownName(WrongInput):
    """A name that is in no list; the message suggests those that are."""


def find(name: str, known: Iterable[str], kind: str) -> str:
    """`name`, where it is known; else UnknownName says which names are nearest, or all where none is near."""
    names = list(known)
    if name in names:
        return name
    by_lower_case = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=4, cutoff=0.6)
    if near:
        advice = "did you mean " + " or ".join(by_lower_case[each] for each in near) + "?"
    elif len(names) <= 40:
        advice = "there are " + ", ".join(names)
    else:
        advice = f"none of {len(names)} names is near it"
    raise UnknownName(f"no {kind} is named {name!r}; {advice}")
