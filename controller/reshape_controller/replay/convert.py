"""From a public trace (GPU count and duration of each job) to a workload.

Does: reads submission, GPUs and duration, and says what had to be assumed, with how many rows it
could not take and why. Never: leaves a row out without counting it. State: none.

Such traces do not say what a job trained, nor how it scales. Assumed: its type is one of a job set,
drawn by its name; its duration was training alone, on the GPUs that it had, of one GPU type, at the
profile's speed; and it could as well have run on any power of two of GPUs up to the largest.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from reshape_controller.core.model import JobSpec, Length, LengthUnit
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.replay.generate import COMMAND
from reshape_controller.replay.ground_truth import drawn
from reshape_controller.replay.inputs import SECONDS_MAX, ReplayError, WorkJob, Workload
from reshape_profiles.loader import Bundle

MISSING = ("", "nan", "null", "none")
"""What traces write where there is nothing, in any case of letters."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of a trace's columns. ``name`` may be missing."""

    submit: str
    gpus: str
    duration: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Assumed:
    """What the trace does not say."""

    job_set: str = "one"
    gpu_type: str = "V100"
    largest: int = 8


@dataclass(frozen=True, slots=True)
class Converted:
    """The workload, what was assumed, and rows that were left out by reason."""

    workload: Workload
    assumptions: tuple[str, ...]
    left_out: tuple[tuple[str, int], ...]


def convert(text: str, name: str, columns: Columns, bundle: Bundle, assumed: Assumed) -> Converted:
    """The workload of a CSV. Raises ReplayError, which names the line."""
    types = dict(bundle.sets).get(assumed.job_set)
    if types is None:
        names = ", ".join(known for known, _ in bundle.sets)
        raise ReplayError(f"unknown job set {assumed.job_set!r}; use one of: {names}")
    book = ProfileBook({profile.job_type: profile for profile in bundle.profiles})
    if not any(book.knows_speed(kind, assumed.gpu_type) for kind in types):
        raise ReplayError(f"job set {assumed.job_set} has no speeds on {assumed.gpu_type}")
    left_out: Counter[str] = Counter()
    found: list[tuple[float, JobSpec]] = []
    forms: set[bool] = set()
    lines: dict[str, int] = {}
    for line, row in _rows(text, name, columns):
        where = f"{name}: line {line}"
        gpus = _number(row, columns.gpus, where)
        duration_s = _number(row, columns.duration, where)
        if duration_s > SECONDS_MAX:
            what = f"is {duration_s:g}, and must be at most {SECONDS_MAX:g} seconds"
            raise ReplayError(f"{where}: {columns.duration} {what}")
        reason = _unfit(gpus, duration_s, assumed)
        if not reason and _is_missing(row[columns.submit]):
            reason = "without a submission"
        if reason:
            left_out[reason] += 1
            continue
        submit_s, is_date = _time(row, columns.submit, where)
        forms.add(is_date)
        if len(forms) > 1:
            what = f"{columns.submit} is {row[columns.submit]!r}, and others are of another form"
            raise ReplayError(f"{where}: {what}; write seconds in all rows, or dates in all")
        key = row[columns.name] if columns.name is not None else f"job-{line:06d}"
        first = lines.setdefault(key, line)
        if first != line:
            what = f"{columns.name} is {key!r}, as in line {first}"
            raise ReplayError(f"{where}: {what}; name a column without repeats, or none")
        kind = types[int(drawn(0, "type", key) * len(types))]
        step_s = book.seconds_per_step(kind, assumed.gpu_type, int(gpus))
        sizes = {2**n for n in range(int(math.log2(assumed.largest)) + 1)} | {int(gpus)}
        length = Length(LengthUnit.STEPS, float(max(1, round(duration_s / step_s))))
        found.append((submit_s, JobSpec(key, COMMAND, tuple(sorted(sizes)), length, job_type=kind)))
    if not found:
        why = "; ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
        raise ReplayError(f"{name}: no row can be replayed ({why or 'no rows'})")
    first_s = min(submit_s for submit_s, _ in found)
    jobs = tuple(
        WorkJob(submit_s - first_s, spec)
        for submit_s, spec in sorted(found, key=lambda entry: (entry[0], entry[1].name))
    )
    return Converted(
        Workload(name, jobs, f"converted from {name}"),
        _assumptions(assumed),
        tuple(sorted(left_out.items())),
    )


def _assumptions(assumed: Assumed) -> tuple[str, ...]:
    return (
        f"job types: drawn from job set {assumed.job_set} by the job's name",
        f"durations: training alone, on {assumed.gpu_type} at the profile's speed",
        f"optional numbers of GPUs: powers of two up to {assumed.largest}, and the job's own",
        "times: from the first submission on",
    )


def _unfit(gpus: float, duration_s: float, assumed: Assumed) -> str:
    if gpus < 1:
        return "without a whole GPU"
    if gpus != int(gpus):
        return "with a part of a GPU"
    if gpus > assumed.largest:
        return f"with more than {assumed.largest} GPUs (a job lives on one host)"
    return "" if duration_s > 0.0 else "without a duration"


def _rows(text: str, name: str, columns: Columns) -> list[tuple[int, dict[str, str]]]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        known = reader.fieldnames or ()
        for column in (columns.submit, columns.gpus, columns.duration, columns.name):
            if column is not None and column not in known:
                raise ReplayError(
                    f"{name}: line 1: no column {column!r}; columns: {', '.join(known)}"
                )
        rows = []
        for row in reader:
            if None in row or None in row.values():
                raise ReplayError(
                    f"{name}: line {reader.line_num}: must have as many cells as line 1"
                )
            rows.append((reader.line_num, row))
    except csv.Error as error:
        raise ReplayError(f"{name}: line {reader.line_num}: is not valid CSV ({error})") from None
    return rows


def _is_missing(text: str) -> bool:
    return text.strip().lower() in MISSING


def _number(row: dict[str, str], column: str, where: str) -> float:
    """A number; 0 where there is none."""
    if _is_missing(row[column]):
        return 0.0
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ReplayError(f"{where}: {column} is {row[column]!r}, and must be a number")
    return value


def _time(row: dict[str, str], column: str, where: str) -> tuple[float, bool]:
    """Seconds, or a date and time (UTC where it names no zone); whether it is a date."""
    text = row[column]
    with contextlib.suppress(ValueError):
        seconds = float(text)
        if not abs(seconds) <= SECONDS_MAX:  # nor what is no number
            what = f"is {text!r}, and must be seconds, at most {SECONDS_MAX:g}"
            raise ReplayError(f"{where}: {column} {what}")
        return seconds, False
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ReplayError(
            f"{where}: {column} is {text!r}; write seconds, or a date as 2017-10-03 12:00:00"
        ) from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp(), True
