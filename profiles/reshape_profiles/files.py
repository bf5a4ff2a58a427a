"""Files of profiles in all formats: TOML, JSON, CSV, or throughputs in Gavel's format.

Does: detect the format by the file's name and content, read it up to a limit, and turn every
mistake into a ProfileError.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reshape_profiles import gavel, loader, table
from reshape_profiles.loader import Bundle, ProfileError
from reshape_sidecar import foreign

FILE_BYTES_MAX = 16 * 1024 * 1024
FORMS = "give a file of profiles (.toml, .json or .csv)"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The profiles of a file; ``notes`` say what they omit."""

    bundle: Bundle
    notes: tuple[str, ...] = ()


def load(path: Path, part: str | None = None) -> Loaded:
    """Return the profiles of a file; ``part`` selects one of several sets of throughputs.

    Raises ProfileError, OSError.
    """
    where = str(path)
    try:
        data = foreign.read(path, FILE_BYTES_MAX)
    except foreign.TooLong:
        raise ProfileError(where, f"has more than {FILE_BYTES_MAX} bytes; split it") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProfileError(where, f"is not UTF-8 text ({error.reason}); {FORMS}") from None
    if path.suffix == ".json":
        document = _json(text, where)
        if gavel.is_one(document):
            read = gavel.parse(document, where, part)
            return Loaded(Bundle(read.profiles), read.left_out)
        found = loader.parse(document, where)
    elif path.suffix == ".csv":
        found = table.parse(text, where)
    else:
        found = loader.parse(_toml(text, where), where)
    if part is not None:
        raise ProfileError(where, f"has no parts; leave {part!r} out")
    return Loaded(found)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ProfileError(where, "is nested too deeply to be profiles") from None
    except ValueError as error:
        raise ProfileError(where, f"is not valid JSON ({error})") from None


def _toml(text: str, where: str) -> Any:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ProfileError(where, "is nested too deeply to be profiles") from None
    except ValueError as error:
        raise ProfileError(where, f"is not valid TOML ({error})") from None
