"""Whether the schedule that was kept is the one that the times in the report ask for."""

from __future__ import annotations

import re
from typing import Any

# More streams take more memory: they must be faster by more than the noise.
CLEARLY_FASTER = 0.99


def kept_by_the_rule(tried: list[dict[str, Any]]) -> dict[str, Any]:
    """Of those that were tried, the one with the fewest streams unless one with more is clearly faster."""
    best, *others = sorted((one for one in tried if not one["rejected"]), key=lambda one: one["streams"])
    for other in others:
        if other["milliseconds"] < CLEARLY_FASTER * best["milliseconds"]:
            best = other
    return best


def assert_kept_by_the_rule(fast: Any) -> list[dict[str, Any]]:
    """For a compiled function of one part. What was tried."""
    (part,) = fast._document((), {}, eager=False)["parts"]
    tried, said = part["tried"], fast.explain()
    kept = kept_by_the_rule(tried)
    assert part["streams"] == kept["streams"], said
    assert part["threads_per_stream"] == kept["threads_per_stream"], said
    assert fast.stats["streams"] == kept["streams"], said
    # explain() says the same.
    told = [int(streams) for streams in re.findall(r"^  tried +(\d+) stream", said, re.MULTILINE)]
    assert told == [one["streams"] for one in tried]
    assert re.search(rf"^  schedule .* {kept['streams']} stream", said, re.MULTILINE), said
    return tried
