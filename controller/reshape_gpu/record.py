"""A job record as it is sent: from a file or a mapping, with absolute folders."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from reshape_gpu.errors import Problem, RecordRejected, SettingError
from reshape_gpu.locations import NoSuchUser, resolved
from reshape_sidecar import foreign

Record = Mapping[str, object]
LOCATIONS = ("code", "dataset", "checkpoints")
_PLAIN = "write it as a text, number, list or mapping: str(path), number.item(), '2026-01-31'"


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


def _load(path: Path) -> object:
    from reshape_gpu import strict_yaml  # here, because a mapping does not need it

    try:
        return strict_yaml.load(foreign.read_text(path, foreign.SETTINGS_BYTES_MAX))
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
        place = os.fspath(place) if isinstance(place, os.PathLike) else place
        if isinstance(place, str):
            try:
                found[name] = resolved(place, folder)
            except NoSuchUser as error:
                raise RecordRejected.of(str(error), name, error.remedy) from None
    problems = [_not_json(name, value) for name, value in found.items() if not _is_json(value)]
    if problems:
        raise RecordRejected(*problems)
    return found


def _not_json(field: str, value: object) -> Problem:
    """Return the problem of a field, or of its first entry, that is no JSON."""
    entries: dict[str, object] = {}
    if isinstance(value, dict):
        entries = {f"{field}.{key}": entry for key, entry in value.items()}
    elif isinstance(value, list | tuple):
        entries = {f"{field}[{number}]": entry for number, entry in enumerate(value)}
    for where, entry in entries.items():
        if not _is_json(entry):
            return Problem(f"{entry!r:.200} cannot be sent as JSON", where, _PLAIN)
    return Problem(f"{value!r:.200} cannot be sent as JSON", field, _PLAIN)


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # ValueError: NaN, or a list in itself
        return False
    return True
