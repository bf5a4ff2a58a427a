"""The oldest version of an API server on which this launcher keeps its promises."""

from __future__ import annotations

import re

OLDEST = (1, 29)
"""From here on `podReplacementPolicy: Failed` is in force: no pod replaces one that still ends."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


def problem(version: str) -> str:
    """Return why an API server of this version is no good; empty if it is, or is not known."""
    found = _VERSION.match(version)
    number = (int(found[1]), int(found[2])) if found else OLDEST
    if number == (0, 0) or number >= OLDEST:  # a build of one's own calls itself v0.0.0
        return ""
    oldest = ".".join(map(str, OLDEST))
    why = "a pod could be replaced while it still runs"
    return f"the API server has version {version}, which is older than {oldest}: {why}"
