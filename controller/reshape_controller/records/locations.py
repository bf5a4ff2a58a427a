"""Locations in a record: folders of this machine, or something that a launcher knows. Pure but
for reading a path's form; never looks whether anything is there."""

from __future__ import annotations

import os
import re
from pathlib import Path

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.ASCII)


def is_local(place: str) -> bool:
    """Whether it is a path; ``claim:data/cifar`` (a volume claim) and URLs are not."""
    return _SCHEME.match(place) is None


def resolved(place: str | None, folder: Path | None) -> str | None:
    """``place`` as an absolute path if it is relative and there is a folder to begin at."""
    if place is None or folder is None or not is_local(place):
        return place
    return os.path.normpath(folder.absolute() / Path(place).expanduser())
