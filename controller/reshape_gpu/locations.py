"""Locations in a record: folders of this machine, or names that a launcher knows.

Pure: looks at a path's form only, and does not check that it exists.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.ASCII)
_URL = re.compile(r"\s*([a-z][a-z0-9+.-]*):/+", re.ASCII | re.IGNORECASE)
"""One slash is enough: ``Path("s3://bucket")`` has one left."""


class NoSuchUser(ValueError):
    """A location begins with ``~NAME``, and this machine has no such user."""

    remedy = "write the whole path, from / on"


def is_local(location: str) -> bool:
    """Whether a location is a path; ``claim:data/cifar`` (a volume claim) and URLs are not."""
    return _SCHEME.match(location) is None and url_scheme(location) is None


def url_scheme(location: str) -> str | None:
    """Return the scheme of a URL in lower case; None if the location is no URL."""
    found = _URL.match(location)
    return found[1].lower() if found else None


def resolved(location: str | None, folder: Path | None) -> str | None:
    """Make a relative path absolute, from ``folder`` on; return any other location as it is.

    Raises NoSuchUser.
    """
    if location is None or folder is None or not is_local(location):
        return location
    try:
        return os.path.normpath(folder.absolute() / Path(location).expanduser())
    except RuntimeError:
        raise NoSuchUser(f"{location!r:.200}: there is no such user on this machine") from None
