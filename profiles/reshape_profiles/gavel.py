"""Conversion between profiles and measured throughputs in the format of the Gavel scheduler.

Does: read the original format, or the same values as a list of rows; write the original format. It
does not smooth or guess values: it skips what it cannot use, and reports that.

    {gpu_type: {"('MODEL (batch size B)', N)": {"null": steps_per_s, "('OTHER', N)": [a, b]}}}
    {"columns": ["file", "model", "batch_size", "gpu_type", "num_gpus", "steps_per_s"], "rows": []}

A step is a minibatch of B samples on one GPU there, the rate is the sum over N GPUs, and a larger N
means a larger global batch. In a profile the global batch is fixed and split over the GPUs. A
profile therefore takes the values with the same B x N, and its step takes N / rate seconds, without
interpolation. ``null`` is the job alone; Reshape does not run two jobs on a GPU. The rates of a
type ``..._unconsolidated``, whose workers are on different servers, are points on two hosts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from reshape_profiles.loader import ProfileError, bounded
from reshape_profiles.schema import Profile, SpeedPoint

COLUMNS = ("file", "model", "batch_size", "gpu_type", "num_gpus", "steps_per_s")
GPUS_MAX = 1024
DIGITS = 12
"""Significant digits of a written rate; the division has changed later ones."""
SEVERAL_HOSTS = "_unconsolidated"
"""End of the name of a GPU type whose rates are those of workers on different servers."""
_JOB = re.compile(r"\('([^']{1,200})', ([0-9]{1,9})\)")
_MODEL = re.compile(r"(.+) \(batch size ([0-9]{1,15})\)")


@dataclass(frozen=True, slots=True)
class GavelProfiles:
    """The profiles of a file. ``left_out`` says in words what they omit."""

    profiles: tuple[Profile, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Rate:
    """A rate. ``batch`` is that of one GPU; None if the model has none."""

    model: str
    batch: int | None
    gpu_type: str
    gpus: int
    steps_per_s: float
    where: str

    @property
    def hosts(self) -> int:
        """The number of hosts that the rate is taken for."""
        return 2 if self.gpu_type.endswith(SEVERAL_HOSTS) else 1


@dataclass
class _Counts:
    zero: int = 0
    alone: int = 0
    shared: int = 0
    unknown: int = 0
    parts: dict[str, None] = field(default_factory=dict)


def is_one(document: object) -> bool:
    """True if a JSON document has one of the two formats."""
    if not isinstance(document, dict) or "profile" in document:
        return False
    if "rows" in document:
        return True
    tables = [table for table in document.values() if isinstance(table, dict)]
    return bool(tables) and all(_JOB.fullmatch(key) for table in tables for key in table)


def parse(document: dict[str, Any], where: str, part: str | None = None) -> GavelProfiles:
    """Return the profiles of a document; ``part`` selects the rows of this ``file``.

    Raises ProfileError.
    """
    counts = _Counts()
    if "rows" in document:
        figures = list(_of_rows(document, where, part, counts))
    elif part is not None:
        raise ProfileError(where, f"has no parts; leave {part!r} out")
    else:
        figures = list(_of_tables(document, where, counts))
    found: dict[str, tuple[str, int | None, list[SpeedPoint]]] = {}
    kept = [figure for figure in figures if _is_used(figure, counts)]
    for figure in kept:
        whole = figure.batch * figure.gpus if figure.batch is not None else None
        text = _named(figure.model, whole)
        kind = _slug(figure.model) + (f"-b{whole}" if whole is not None else "")
        known, _, points = found.setdefault(kind, (text, whole, []))
        if known != text:
            raise ProfileError(figure.where, f"{known!r} and {text!r} are both {kind}; rename one")
        points.append(_point(figure, points, f"measured: {_origin(where, counts)}"))
    profiles = tuple(
        bounded(Profile(kind, text, whole, speed=tuple(points)), where)
        for kind, (text, whole, points) in found.items()
    )
    return GavelProfiles(profiles, _said(counts))


def write(profiles: Iterable[Profile]) -> tuple[str, tuple[str, ...]]:
    """Return JSON text in the original format, and notes on what it cannot hold."""
    tables: dict[str, dict[str, dict[str, float]]] = {}
    left_out: dict[str, None] = {}
    for profile in profiles:
        model = _model_of(profile)
        if profile.accuracy or profile.overhead or profile.steps_per_epoch:
            left_out[f"{profile.job_type}: all but its speeds"] = None
        for point in profile.speed:
            whole, gpus = profile.global_batch, point.gpus
            if point.hosts > 2:
                left_out[f"{profile.job_type}: its speeds on more than two hosts"] = None
                continue
            if (whole is None and gpus > 1) or (whole or 0) % gpus:
                why = f"the format cannot express a global batch of {whole} on {gpus} GPUs"
                left_out[f"{profile.job_type}: {why}"] = None
                continue
            job = (_named(model, whole // gpus if whole is not None else None), gpus)
            rate = float(f"{gpus / point.seconds_per_step:.{DIGITS}g}")
            gpu_type = point.gpu_type + (SEVERAL_HOSTS if point.hosts > 1 else "")
            tables.setdefault(gpu_type, {})[f"('{job[0]}', {job[1]})"] = {"null": rate}
    return json.dumps(tables, indent=2, ensure_ascii=False) + "\n", tuple(left_out)


def _of_tables(document: dict[str, Any], where: str, counts: _Counts) -> Iterator[_Rate]:
    for gpu_type, table in document.items():
        if not isinstance(table, dict):
            raise ProfileError(f"{where}: {gpu_type}", "is not a table of jobs and rates")
        for key, rates in table.items():
            place = f"{where}: {gpu_type}: {key}"
            job = _JOB.fullmatch(key)
            if job is None or not isinstance(rates, dict):
                what = "is not a job with its rates; write \"('MODEL (batch size B)', N)\": {...}"
                raise ProfileError(place, what)
            counts.shared += len(rates) - ("null" in rates)
            if "null" not in rates:
                continue
            model, batch = _split(job[1])
            gpus = _whole(int(job[2]), place, GPUS_MAX)
            yield _Rate(model, batch, gpu_type, gpus, _rate(rates["null"], place), place)


def _of_rows(
    document: dict[str, Any], where: str, part: str | None, counts: _Counts
) -> Iterator[_Rate]:
    rows = document["rows"]
    if document.get("columns") != list(COLUMNS) or not isinstance(rows, list):
        what = f"the columns are not {', '.join(COLUMNS)}, or the rows are not a list; correct them"
        raise ProfileError(f"{where}: columns", what)
    parts = {row[0]: None for row in rows if isinstance(row, list) and row}
    known = ", ".join(map(str, parts))
    if part is None and len(parts) > 1:
        what = f"rows of {known} have figures for the same job type; choose one with --part"
        raise ProfileError(f"{where}: rows", what)
    if part is not None and part not in parts:
        raise ProfileError(f"{where}: rows", f"no rows of part {part!r}; use one of: {known}")
    for number, row in enumerate(rows):
        place = f"{where}: rows[{number}]"
        if not isinstance(row, list) or len(row) != len(COLUMNS):
            raise ProfileError(place, f"must have {len(COLUMNS)} entries ({', '.join(COLUMNS)})")
        file, model, batch, gpu_type, gpus, rate = row
        if part is not None and file != part:
            continue
        counts.parts[str(file)[:100]] = None
        for name, text in (("model", model), ("gpu_type", gpu_type)):
            if not isinstance(text, str) or not text or "'" in text:
                raise ProfileError(f"{place}: {name}", f"{text!r} is not a name; correct it")
        whole = None if batch is None else _whole(batch, f"{place}: batch_size", 2**40)
        count = _whole(gpus, f"{place}: num_gpus", GPUS_MAX)
        yield _Rate(model, whole, gpu_type, count, _rate(rate, f"{place}: steps_per_s"), place)


def _is_used(figure: _Rate, counts: _Counts) -> bool:
    """False for a rate that cannot be used.

    Zero means that the job did not fit into memory or was not measured. Without a batch it is
    unknown which rates of several GPUs have the same global batch.
    """
    if figure.steps_per_s == 0.0:
        counts.zero += 1
    elif figure.batch is None and figure.gpus > 1:
        counts.unknown += 1
    elif figure.hosts > figure.gpus:
        counts.alone += 1
    else:
        return True
    return False


def _said(counts: _Counts) -> tuple[str, ...]:
    said = (
        (counts.zero, "figures of 0 steps/s (not measured, or out of memory)"),
        (counts.unknown, "figures of several GPUs without a batch size"),
        (counts.alone, "figures of one GPU on different servers"),
        (counts.shared, "figures of two jobs on the same GPUs"),
    )
    return tuple(f"left out: {count} {what}" for count, what in said if count)


def _point(figure: _Rate, points: list[SpeedPoint], source: str) -> SpeedPoint:
    gpu_type, hosts = figure.gpu_type.removesuffix(SEVERAL_HOSTS), figure.hosts
    if any((p.gpu_type, p.gpus, p.hosts) == (gpu_type, figure.gpus, hosts) for p in points):
        what = f"a second rate of {figure.model} on {figure.gpus} {figure.gpu_type}; keep one"
        raise ProfileError(figure.where, what)
    try:
        seconds = figure.gpus / figure.steps_per_s
        return SpeedPoint(gpu_type, figure.gpus, seconds, source, hosts)
    except (ValueError, ZeroDivisionError) as error:
        raise ProfileError(figure.where, f"{figure.steps_per_s} steps/s: {error}") from None


def _rate(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ProfileError(where, f"{value!r} is not a number of steps per second; correct it")
    if not (math.isfinite(value) and 0 <= value < 1e12):
        raise ProfileError(where, f"{value!r} steps per second; write 0 for what was not measured")
    return float(value)


def _whole(value: Any, where: str, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ProfileError(where, f"{value!r} is not a whole number from 1 to {most}; correct it")
    return value


def _split(job: str) -> tuple[str, int | None]:
    found = _MODEL.fullmatch(job)
    return (found[1], int(found[2])) if found is not None and int(found[2]) else (job, None)


def _named(model: str, batch: int | None) -> str:
    return model if batch is None else f"{model} (batch size {batch})"


def _model_of(profile: Profile) -> str:
    """Return the model that an imported profile names, or its job type."""
    model, whole = _split(profile.text)
    mine = whole == profile.global_batch and profile.job_type.startswith(_slug(model))
    return model if mine and model and "'" not in model else profile.job_type


def _slug(model: str) -> str:
    return re.sub(r"[^a-z0-9_.]+", "-", model.lower()).strip("-.")[:40]


def _origin(where: str, counts: _Counts) -> str:
    name = where.rpartition("/")[2][:100]
    return ", ".join([name, *counts.parts])
