"""The environment of local jobs: the daemon's variables that an operator allows, and no other.

Does: selects variables by name. The daemon's own may hold credentials of the operator's, which no
job needs. What a job's record sets comes later, in the SideCar. Never: pass a RESHAPE_* variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

DEFAULT = "PATH,LANG,LC_*,TZ,LD_LIBRARY_PATH,*_proxy,*_PROXY"
"""What jobs get unless the operator names other variables; ``*`` stands for any text."""
ACCOUNT = ("HOME", "USER", "LOGNAME")
"""What says whose process it is; every job has them."""
_PATTERN = re.compile(r"[A-Za-z_*][A-Za-z0-9_*]*\Z")


class BadPattern(ValueError):
    """A name in the operator's list is none; the message is the name."""


def parse(text: str) -> tuple[str, ...]:
    """Return the patterns of a list that commas separate. Raises BadPattern."""
    patterns = tuple(word.strip() for word in text.split(","))
    for pattern in patterns:
        if not _PATTERN.match(pattern):
            raise BadPattern(repr(pattern))
    return patterns


def allowed(base: Mapping[str, str], patterns: tuple[str, ...]) -> dict[str, str]:
    """Return the variables of ``base`` that a job gets."""
    return {
        name: value
        for name, value in base.items()
        if not name.startswith("RESHAPE_")
        and any(fnmatchcase(name, pattern) for pattern in (*ACCOUNT, *patterns))
    }
