"""Profiles as CSV: a table with a header, and a value (or a set of overheads) in each row.

Does: read the files of spreadsheets, and write what it can read. An error names line and column. It
does not fill in missing values.

    job_type,gpu_type,gpus,seconds_per_step,source
    resnet18-b64,V100,1,0.18,measured 2026-05-02
    resnet18-b64,V100,2,0.14,

Columns may be missing and in any order; cells may be empty. The columns of a group (``GROUPS``)
belong together, and ``source`` is that of the row's values. Also read, and never written:

    job_type,gpu_type,1,2,4                     seconds per step on so many GPUs
    job_type,gpu_type,nodes,gpus_per_node,batch_per_gpu,seconds_per_step

A batch per GPU makes a type of its own, ``JOB_TYPE-bB``, for each batch B of all GPUs. ``hosts``
says on how many hosts the GPUs are (empty: one); figures of several nodes are those of as many.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, TypeVar

from reshape_profiles.loader import Bundle, ProfileError, bounded
from reshape_profiles.schema import ASSUMED, COSTS, AccuracyPoint, Overhead, Profile, SpeedPoint

SPEED = ("gpu_type", "gpus", "seconds_per_step")
ACCURACY = ("step", "accuracy")
ABOUT = ("text", "global_batch", "steps_per_epoch")
GROUPS = (SPEED, ACCURACY, COSTS)
HOSTS = "hosts"
COLUMNS = ("job_type", *ABOUT, *SPEED, HOSTS, *ACCURACY, *COSTS, "source")
NODES = ("nodes", "gpus_per_node")
BATCH = "batch_per_gpu"
_READ = (*COLUMNS, *NODES, BATCH)
_WHOLE = ("global_batch", "steps_per_epoch", "gpus", HOSTS, "step", *NODES, BATCH)
_TEXT = ("job_type", "text", "gpu_type", "source")
T = TypeVar("T")


@dataclass
class _ProfileRows:
    """The values of a job type that were read so far."""

    about: dict[str, Any] = field(default_factory=dict)
    speed: list[SpeedPoint] = field(default_factory=list)
    accuracy: list[AccuracyPoint] = field(default_factory=list)
    overhead: Overhead | None = None


def parse(text: str, where: str) -> Bundle:
    """Return the profiles of a table. Raises ProfileError with line and column."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    found: dict[str, _ProfileRows] = {}
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
    """Return CSV text of profiles that ``parse`` reads."""
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
    for point in profile.speed:
        row = dict(zip((*SPEED, "source", HOSTS), astuple(point), strict=True))
        rows.append(row if point.hosts > 1 else row | {HOSTS: None})
    for seen in profile.accuracy:
        rows.append(dict(zip((*ACCURACY, "source"), astuple(seen), strict=True)))
    return rows


def _header(cells: list[str], where: str) -> list[str]:
    header = [cell.strip() for cell in cells]
    for name in header:
        if name not in _READ and not _is_gpus(name):
            known = f"{', '.join(_READ)}, and numbers of GPUs"
            raise ProfileError(where, f"unknown column {name!r}; known columns: {known}")
        if header.count(name) > 1:
            raise ProfileError(where, f"two columns {name!r}; keep one")
    wide = [name for name in header if _is_gpus(name)]
    twice = [name for name in (*SPEED[1:], *NODES) if wide and name in header]
    if HOSTS in header and "nodes" in header:
        raise ProfileError(where, "has the columns hosts and nodes; keep one")
    if twice:
        what = f"has the columns {wide[0]} and {twice[0]}; keep one form of the numbers of GPUs"
        raise ProfileError(where, what)
    if "gpus" in header and "nodes" in header:
        raise ProfileError(where, "has the columns gpus and nodes; nodes go with gpus_per_node")
    if "job_type" not in header:
        raise ProfileError(where, "the column job_type is missing; name the columns in line 1")
    return header


def _take(found: dict[str, _ProfileRows], header: list[str], cells: list[str], where: str) -> None:
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
    source = row.get("source", ASSUMED)
    wide = any(_is_gpus(name) for name in header)
    for kind, point, batch in _speeds(row, wide, source, where):
        speed_of = found.setdefault(kind, _ProfileRows())
        speed_of.speed.append(point)
        if batch is not None:
            speed_of.about.setdefault("global_batch", batch)
    if BATCH in row:
        others = [name for name in row if name in (*ABOUT, *ACCURACY, *COSTS)]
        if others:
            what = f"goes with speeds, and the row has {others[0]}; use rows of their own"
            raise ProfileError(f"{where}: {BATCH}", what)
        return
    each = found.setdefault(row["job_type"], _ProfileRows())
    for name in ABOUT:
        if name in row and each.about.setdefault(name, row[name]) != row[name]:
            what = f"is {row[name]!r}, and was {each.about[name]!r} above; keep one"
            raise ProfileError(f"{where}: {name}", what)
    if group := _group(row, ACCURACY, where):
        each.accuracy.append(_made(where, AccuracyPoint, *group, source))
    if group := _group(row, COSTS, where):
        if each.overhead is not None:
            raise ProfileError(
                where, f"a second row of overheads of {row['job_type']}; keep one row"
            )
        each.overhead = _made(where, Overhead, *group, source)


def _speeds(
    row: Mapping[str, Any], wide: bool, source: str, where: str
) -> Iterator[tuple[str, SpeedPoint, int | None]]:
    """Return job type, speed and global batch (None: that of the profile) of a row's figures."""
    for name in (name for name in row if _is_gpus(name)):
        if "gpu_type" not in row:
            raise ProfileError(f"{where}: gpu_type", "is empty; name the GPUs of the row's figures")
        yield _speed(row, row["gpu_type"], int(name), row[name], source, where, row.get(HOSTS, 1))
    if wide:
        return
    names = ("gpu_type", *NODES, "seconds_per_step") if NODES[0] in row else SPEED
    group = _group(row, names, where)
    if not group:
        return
    if names is SPEED:
        gpu_type, gpus, seconds = group
        yield _speed(row, gpu_type, gpus, seconds, source, where, row.get(HOSTS, 1))
        return
    gpu_type, nodes, gpus_per_node, seconds = group
    if nodes < 1:
        raise ProfileError(f"{where}: nodes", f"is {nodes}, and must be at least 1")
    yield _speed(row, gpu_type, nodes * gpus_per_node, seconds, source, where, nodes)


def _speed(
    row: Mapping[str, Any],
    gpu_type: str,
    gpus: int,
    seconds: float,
    source: str,
    where: str,
    hosts: int,
) -> tuple[str, SpeedPoint, int | None]:
    point = _made(where, SpeedPoint, gpu_type, gpus, seconds, source, hosts)
    if BATCH not in row:
        return row["job_type"], point, None
    if row[BATCH] < 1:
        raise ProfileError(f"{where}: {BATCH}", f"is {row[BATCH]}, and must be at least 1")
    batch = row[BATCH] * gpus
    return f"{row['job_type']}-b{batch}", point, batch


def _is_gpus(name: str) -> bool:
    """Whether a column has the seconds per step on a number of GPUs, its name."""
    return name.isascii() and name.isdigit() and name != "0"


def _group(row: Mapping[str, Any], names: tuple[str, ...], where: str) -> list[Any]:
    """Return the cells of a group; empty if all cells are empty."""
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


def _profile(kind: str, found: _ProfileRows, where: str) -> Profile:
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
