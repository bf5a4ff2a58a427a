"""A job record as it is sent: from a file or a mapping, with absolute folders."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from reshape_gpu.errors import RecordRejected, SettingError

Record = Mapping[str, object]
LOCATIONS = ("code", "dataset", "checkpoints")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.ASCII)


def read(record: Record | str | os.PathLike[str]) -> dict[str, object]:
    """Return a record: a mapping, or that of a YAML or JSON file. Raises ClientError.

    Relative folders begin at the file's folder, or at the working folder. Without ``code`` that is
    where the program runs, unless the record has an image. The daemon checks the rest.
    """
    if isinstance(record, Mapping):
        return _absolute(record, Path.cwd())
    path = Path(record)
    value = _load(path)
    if not isinstance(value, Mapping):
        what, remedy = "the file is not a job record", "write lines such as name: mnist"
        raise RecordRejected.of(what, str(path), remedy)
    return _absolute(cast(Record, value), path.absolute().parent)


def is_local(location: str) -> bool:
    """Whether a location is a path; ``claim:data/cifar`` (a volume claim) and URLs are not."""
    return _SCHEME.match(location) is None


def resolved(location: str, folder: Path) -> str:
    """Make a relative path absolute, from ``folder`` on; return any other location as it is."""
    if not is_local(location):
        return location
    return os.path.normpath(folder.absolute() / Path(location).expanduser())


def _load(path: Path) -> object:
    from reshape_gpu import strict_yaml  # here, because a mapping does not need it

    try:
        return strict_yaml.load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        what = f"the file cannot be read: {error}"
        raise SettingError.of(what, str(path), "give a job record, in UTF-8") from None
    except strict_yaml.NotYaml as error:
        raise RecordRejected.of(f"the record is not YAML: {error}", str(path)) from None


def _absolute(record: Record, folder: Path) -> dict[str, object]:
    found = dict(record)
    if found.get("code") is None and found.get("image") is None:
        found["code"] = "."
    for name in LOCATIONS:
        place = found.get(name)
        if isinstance(place, str):
            found[name] = resolved(place, folder)
    return found
