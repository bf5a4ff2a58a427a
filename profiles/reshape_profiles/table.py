"""Profiles as CSV: a table with a header, one figure (or one set of overheads) in each row.

Does: reads what a spreadsheet writes, writes what it reads, and says of anything wrong its line and
column. Never: fills in a figure. State: none.

    job_type,gpu_type,gpus,seconds_per_step,source
    resnet18-b64,V100,1,0.18,measured 2026-05-02
    resnet18-b64,V100,2,0.14,

Columns may be left out and come in any order; a cell may be empty. The columns of one group
(``GROUPS``) are filled together, and ``source`` is that of the row's figures.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, TypeVar

from reshape_profiles.loader import Bundle, ProfileError, bounded
from reshape_profiles.schema import ASSUMED, COSTS, AccuracyPoint, Overhead, Profile, SpeedPoint

SPEED = ("gpu_type", "gpus", "seconds_per_step")
ACCURACY = ("step", "accuracy")
ABOUT = ("text", "global_batch", "steps_per_epoch")
GROUPS = (SPEED, ACCURACY, COSTS)
COLUMNS = ("job_type", *ABOUT, *SPEED, *ACCURACY, *COSTS, "source")
_WHOLE = ("global_batch", "steps_per_epoch", "gpus", "step")
_TEXT = ("job_type", "text", "gpu_type", "source")
T = TypeVar("T")


@dataclass
class _Found:
    """What was read of one job type so far."""

    about: dict[str, Any] = field(default_factory=dict)
    speed: list[SpeedPoint] = field(default_factory=list)
    accuracy: list[AccuracyPoint] = field(default_factory=list)
    overhead: Overhead | None = None


def parse(text: str, where: str) -> Bundle:
    """Profiles of a table. Raises ProfileError with line and column."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    found: dict[str, _Found] = {}
    try:
        header = _header(next(reader, []), f"{where}: line 1")
        for cells in reader:
            if cells:
                _take(found, header, cells, f"{where}: line {reader.line_num}")
    except csv.Error as error:
        raise ProfileError(
            f"{where}: line {reader.line_num}", f"is not valid CSV ({error})"
        ) from None
    profiles = tuple(_profile(kind, each, where) for kind, each in found.items())
    return Bundle(profiles)


def write(profiles: Iterable[Profile]) -> str:
    """CSV text of profiles, as ``parse`` reads it."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for profile in profiles:
        writer.writerows({"job_type": profile.job_type, **row} for row in _rows(profile))
    return text.getvalue()


def _rows(profile: Profile) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{name: getattr(profile, name) for name in ABOUT}]
    if profile.overhead is not None:
        rows[0] |= dict(zip((*COSTS, "source"), astuple(profile.overhead), strict=True))
    for names, points in ((SPEED, profile.speed), (ACCURACY, profile.accuracy)):
        rows += [dict(zip((*names, "source"), astuple(point), strict=True)) for point in points]
    return rows


def _header(cells: list[str], where: str) -> list[str]:
    header = [cell.strip() for cell in cells]
    for name in header:
        if name not in COLUMNS:
            raise ProfileError(
                where, f"unknown column {name!r}; known columns: {', '.join(COLUMNS)}"
            )
        if header.count(name) > 1:
            raise ProfileError(where, f"two columns {name!r}; keep one")
    if "job_type" not in header:
        raise ProfileError(where, "the column job_type is missing; name the columns in line 1")
    return header


def _take(found: dict[str, _Found], header: list[str], cells: list[str], where: str) -> None:
    if len(cells) > len(header):
        what = f"has {len(cells)} cells for {len(header)} columns; quote texts with commas"
        raise ProfileError(where, what)
    row = {
        name: _value(name, cell.strip(), f"{where}: {name}")
        for name, cell in zip(header, cells, strict=False)
        if cell.strip()
    }
    if "job_type" not in row:
        raise ProfileError(f"{where}: job_type", "is empty; name the type as the job records do")
    each = found.setdefault(row["job_type"], _Found())
    for name in ABOUT:
        if name in row and each.about.setdefault(name, row[name]) != row[name]:
            what = f"is {row[name]!r}, and was {each.about[name]!r} above; keep one"
            raise ProfileError(f"{where}: {name}", what)
    source = row.get("source", ASSUMED)
    if group := _group(row, SPEED, where):
        each.speed.append(_made(where, SpeedPoint, *group, source))
    if group := _group(row, ACCURACY, where):
        each.accuracy.append(_made(where, AccuracyPoint, *group, source))
    if group := _group(row, COSTS, where):
        if each.overhead is not None:
            raise ProfileError(
                where, f"a second row of overheads of {row['job_type']}; keep one row"
            )
        each.overhead = _made(where, Overhead, *group, source)


def _group(row: Mapping[str, Any], names: tuple[str, ...], where: str) -> list[Any]:
    """The cells of a group; none if all are empty."""
    missing = [name for name in names if name not in row]
    if len(missing) == len(names):
        return []
    if missing:
        what = f"{', '.join(missing)} missing; fill {', '.join(names)} together"
        raise ProfileError(where, what)
    return [row[name] for name in names]


def _value(name: str, text: str, where: str) -> Any:
    if name in _TEXT:
        return text
    whole = name in _WHOLE
    try:
        return int(text) if whole else float(text)
    except ValueError:
        kind = "whole number, for example 2" if whole else "number, for example 0.25"
        raise ProfileError(where, f"{text[:100]!r} is not a {kind}") from None


def _made(where: str, kind: Callable[..., T], *values: Any) -> T:
    try:
        return kind(*values)
    except ValueError as error:
        raise ProfileError(where, str(error)) from None


def _profile(kind: str, found: _Found, where: str) -> Profile:
    place = f"{where}: {kind}"
    made = _made(
        place,
        Profile,
        kind,
        found.about.get("text", ""),
        found.about.get("global_batch"),
        found.about.get("steps_per_epoch"),
        tuple(found.speed),
        tuple(found.accuracy),
        found.overhead,
    )
    return bounded(made, place)
