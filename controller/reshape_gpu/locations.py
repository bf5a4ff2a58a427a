"""Locations in a record: folders of this machine, or names that a launcher knows.

Pure: looks at a path's form only, and does not check that it exists.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.ASCII)


def is_local(location: str) -> bool:
    """Whether a location is a path; ``claim:data/cifar`` (a volume claim) and URLs are not."""
    return _SCHEME.match(location) is None


def resolved(location: str | None, folder: Path | None) -> str | None:
    """Make a relative path absolute, from ``folder`` on; return any other location as it is."""
    if location is None or folder is None or not is_local(location):
        return location
    return os.path.normpath(folder.absolute() / Path(location).expanduser())
