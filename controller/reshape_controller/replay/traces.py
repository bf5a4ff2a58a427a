"""Trace files: workloads of users as CSV or JSON lines (docs/replay.md).

Does: read and write them; an error names line, column and remedy. Never: guess a unit or skip a
line.

Required columns: ``submit_s``, ``job_type``, and one of ``epochs``, ``steps``, ``target_accuracy``.
Optional: ``name``, ``optional_gpus``, ``priority``, ``user``, ``global_batch``, ``max_wait_s``,
``workers``, ``span``, ``placement``, ``known_gpus``.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TextIO, TypeVar

from reshape_controller.core.model import JobSpec, Length, LengthUnit, Placement, Spans
from reshape_controller.records import limits
from reshape_controller.records.errors import shown
from reshape_controller.replay.conversion import TraceJob
from reshape_controller.replay.generate import COMMAND, SIZES
from reshape_controller.replay.inputs import SECONDS_MAX, ReplayError, WorkJob, Workload

LENGTHS = tuple(unit.value for unit in LengthUnit)
COLUMNS = (
    "name",
    "submit_s",
    "job_type",
    "optional_gpus",
    *LENGTHS,
    "priority",
    "user",
    "global_batch",
    "max_wait_s",
)
SPANNING = ("workers", "span", "placement")
"""Columns of files with jobs on several hosts; other files are written without them."""
KNOWN_GPUS = "known_gpus"
"""Column of the sizes that a trace says, of jobs that have others too: those are assumed."""
KNOWN = (*COLUMNS, *SPANNING, KNOWN_GPUS)
CONVERTED = ("name", "submit_s", "job_type", "optional_gpus", "steps", "priority", "user")
"""Columns of a converted trace: the first fields of ``TraceJob``."""

Fields = Mapping[str, object]
Choice = TypeVar("Choice", bound=StrEnum)


def parse(text: str, name: str, types: Iterable[str], *, jsonl: bool) -> Workload:
    """Return the workload of a trace; ``types`` are the job types that have a profile.

    Raises ReplayError, which names the line.
    """
    known = tuple(types)
    jobs: list[WorkJob] = []
    lines: dict[str, int] = {}
    for number, (line, fields) in enumerate(_lines(text, name, jsonl)):
        where = f"{name}: line {line}"
        job = _job(fields, where, number, known)
        first = lines.setdefault(job.spec.name, line)
        if first != line:
            what = f"the job name {job.spec.name!r} is also in line {first}"
            raise ReplayError(f"{where}: {what}; give all jobs different names, or none")
        jobs.append(job)
    return Workload(name, tuple(sorted(jobs, key=lambda job: job.submit_s)), f"trace {name}")


def csv_text(workload: Workload) -> str:
    """Return the workload as CSV."""
    out = io.StringIO()
    rows = [_fields(job) for job in workload.jobs]
    spanning = [name for name in (*SPANNING, KNOWN_GPUS) if any(name in row for row in rows)]
    writer = csv.DictWriter(out, (*COLUMNS, *spanning), lineterminator="\n")
    writer.writeheader()
    for job, row in zip(workload.jobs, rows, strict=True):
        row["optional_gpus"] = " ".join(str(size) for size in job.spec.optional_gpus)
        if job.known_gpus:
            row[KNOWN_GPUS] = " ".join(str(size) for size in job.known_gpus)
        writer.writerow(row)
    return out.getvalue()


def jsonl_text(workload: Workload) -> str:
    """Return the workload as JSON lines."""
    return "".join(json.dumps(_fields(job)) + "\n" for job in workload.jobs)


def write_converted(
    jobs: Sequence[TraceJob], file: TextIO, *, jsonl: bool, density: float = 1.0
) -> None:
    """Write the jobs of a conversion, with submissions from the first on, ``density`` times as
    dense. Raises ReplayError if the last job then comes later than a replay can begin."""
    first_s, last_s = jobs[0].submit_s, jobs[-1].submit_s
    if (last_s - first_s) / density > SECONDS_MAX:
        raise ReplayError(f"the last job would be submitted after more than {SECONDS_MAX:g} s")
    sizes = {each for job in jobs for each in (job.optional_gpus, job.known_gpus)}
    texts = {each: " ".join(str(size) for size in each) for each in sizes}
    head: tuple[str, ...] = CONVERTED
    rows: Iterable[tuple[object, ...]] = (
        (name, (at_s - first_s) / density, kind, own if jsonl else texts[own], steps, rank, user)
        for name, at_s, kind, own, steps, rank, user, *_ in jobs
    )
    if any(job.workers > 1 for job in jobs):
        head = (*CONVERTED, "workers", "span")
        rows = ((*row, job.workers, job.span) for row, job in zip(rows, jobs, strict=True))
    if any(job.known_gpus for job in jobs):
        head = (*head, KNOWN_GPUS)
        known = (job.known_gpus or None if jsonl else texts[job.known_gpus] for job in jobs)
        rows = ((*row, own) for row, own in zip(rows, known, strict=True))
    if jsonl:
        file.writelines(json.dumps(dict(zip(head, row, strict=True))) + "\n" for row in rows)
        return
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)


def _fields(job: WorkJob) -> dict[str, object]:
    spec = job.spec
    row: dict[str, object] = {"name": spec.name, "submit_s": job.submit_s}
    row |= {"job_type": spec.job_type, "optional_gpus": list(spec.optional_gpus)}
    if spec.length is not None:
        value = spec.length.value
        row[spec.length.unit.value] = int(value) if value == int(value) else value
    optional = {
        "priority": spec.priority or None,
        "user": spec.user or None,
        "global_batch": spec.global_batch,
        "max_wait_s": spec.max_wait_s,
        "workers": spec.workers if spec.workers > 1 else None,
        "span": spec.span.value if spec.span is not Spans.NEVER else None,
        "placement": spec.placement.value if spec.placement is not Placement.PACK else None,
        KNOWN_GPUS: list(job.known_gpus) or None,
    }
    return row | {name: value for name, value in optional.items() if value is not None}


def _lines(text: str, name: str, jsonl: bool) -> Iterator[tuple[int, Fields]]:
    if jsonl:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield number, _object(line, f"{name}: line {number}")
        return
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        twice = _twice(reader.fieldnames or ())
        if twice:
            raise ReplayError(f"{name}: line 1: column {twice[0]!r} appears twice; keep one")
        unknown = [column for column in reader.fieldnames or () if column not in KNOWN]
        if unknown:
            raise ReplayError(
                f"{name}: line 1: unknown column {unknown[0]!r}; known: {', '.join(KNOWN)}"
            )
        for row in reader:
            where = f"{name}: line {reader.line_num}"
            if None in row or None in row.values():
                raise ReplayError(f"{where}: must have as many cells as line 1")
            yield reader.line_num, {key: value for key, value in row.items() if value != ""}
    except csv.Error as error:
        raise ReplayError(f"{name}: line {reader.line_num}: is not valid CSV ({error})") from None


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _object(line: str, where: str) -> Fields:
    twice: list[str] = []

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        twice.extend(_twice(key for key, _ in pairs))
        return dict(pairs)

    try:
        value = json.loads(line, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"{where}: is not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise ReplayError(f"{where}: is not an object of names and values")
    if twice:
        raise ReplayError(f"{where}: {twice[0]!r} appears twice; keep one")
    for key in value:
        if key not in KNOWN:
            raise ReplayError(f"{where}: unknown name {key!r}; known: {', '.join(KNOWN)}")
    return {key: entry for key, entry in value.items() if entry is not None}


def _job(fields: Fields, where: str, number: int, types: tuple[str, ...]) -> WorkJob:
    for needed in ("submit_s", "job_type"):
        if needed not in fields:
            raise ReplayError(f"{where}: {needed} is missing")
    kind = str(fields["job_type"])
    if kind not in types:
        raise ReplayError(
            f"{where}: job_type {kind!r} has no profile; give one with --profiles "
            f"(known: {', '.join(types)})"
        )
    lengths = [name for name in LENGTHS if name in fields]
    if len(lengths) != 1:
        what = "none" if not lengths else " and ".join(lengths)
        raise ReplayError(f"{where}: give one of {', '.join(LENGTHS)}, not {what}")
    unit = LengthUnit(lengths[0])
    value = _number(fields, unit.value, where, least=0.0)
    if value <= 0.0 or (unit is LengthUnit.TARGET_ACCURACY and value >= 1.0):
        raise ReplayError(f"{where}: {unit.value} is {value:g}, which no job can reach")
    if unit is LengthUnit.STEPS and value != int(value):
        raise ReplayError(f"{where}: steps is {value:g}, and must be a whole number")
    if value > limits.STEPS_MAX:
        what = f"{unit.value} is {value:g}, and must be at most {limits.STEPS_MAX:g}"
        raise ReplayError(f"{where}: {what}")
    sizes = _sizes(fields, where)
    workers, span, placement = _spanning(fields, sizes, where)
    spec = JobSpec(
        name=_text(fields, "name", where, default=f"job-{number:05d}"),
        command=COMMAND,
        optional_gpus=sizes,
        length=Length(unit, value),
        job_type=kind,
        global_batch=_batch(fields, sizes, where),
        user=_text(fields, "user", where),
        priority=_whole(fields, "priority", where, -limits.PRIORITY_MAX, limits.PRIORITY_MAX) or 0,
        max_wait_s=_wait_s(fields, where),
        workers=workers,
        span=span,
        placement=placement,
    )
    known = _sizes(fields, where, KNOWN_GPUS) if KNOWN_GPUS in fields else ()
    if not set(known) <= set(sizes):
        what = f"{KNOWN_GPUS} is {shown(fields[KNOWN_GPUS])}, which optional_gpus lacks"
        raise ReplayError(f"{where}: {what}; give sizes of optional_gpus, or leave it out")
    return WorkJob(_number(fields, "submit_s", where, least=0.0), spec, known)


def _text(fields: Fields, name: str, where: str, default: str = "") -> str:
    """Return a text field that may be written into the files of a bundle."""
    value = fields.get(name) or default
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ReplayError(f"{where}: {name} is {shown(value)}, and must be a text")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ReplayError(f"{where}: {name} is {text!a}, which holds half a character") from None
    return text


def _sizes(fields: Fields, where: str, name: str = "optional_gpus") -> tuple[int, ...]:
    value = fields.get(name)
    if value is None:
        return SIZES
    parts = value if isinstance(value, list) else str(value).replace(",", " ").split()
    try:
        sizes = sorted({int(str(part)) for part in parts})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1 or sizes[-1] > limits.GPUS_MAX or len(sizes) > limits.SIZES_MAX:
        what = f"give at most {limits.SIZES_MAX} numbers of GPUs from 1 to {limits.GPUS_MAX}"
        raise ReplayError(f"{where}: {name} is {shown(value)}; {what}, as in 1 2 4")
    return tuple(sizes)


def _batch(fields: Fields, sizes: tuple[int, ...], where: str) -> int | None:
    """Return the batch. Raises ReplayError if a size does not divide it, as for a job record."""
    batch = _whole(fields, "global_batch", where, 1, limits.GLOBAL_BATCH_MAX)
    odd = [str(size) for size in sizes if batch is not None and batch % size]
    if odd:
        what = f"global_batch is {batch}, which cannot be split evenly over {', '.join(odd)} GPUs"
        raise ReplayError(f"{where}: {what}; choose one that every number of GPUs divides")
    return batch


def _spanning(fields: Fields, sizes: tuple[int, ...], where: str) -> tuple[int, Spans, Placement]:
    """Return workers, span and placement, under the rules of a job record. Raises ReplayError."""
    workers = _whole(fields, "workers", where, 1, limits.WORKERS_MAX) or 1
    span = _one_of(fields, "span", where, Spans, Spans.NEVER)
    placement = _one_of(fields, "placement", where, Placement, Placement.PACK)
    odd = [str(size) for size in sizes if size % workers]
    if odd:
        what = f"workers is {workers}, and they cannot share {', '.join(odd)} GPUs equally"
        raise ReplayError(f"{where}: {what}; choose numbers of GPUs that it divides")
    if span is not Spans.NEVER and workers < 2:
        what = f"span is {span.value}, which places workers on several hosts"
        raise ReplayError(f"{where}: {what}; give workers, 2 or more, or leave it out")
    if span is Spans.NEVER and placement is Placement.SPREAD:
        raise ReplayError(f"{where}: placement is spread, and span is never; write span any")
    return workers, span, placement


def _one_of(fields: Fields, name: str, where: str, kind: type[Choice], default: Choice) -> Choice:
    value = fields.get(name, default)
    if value not in list(kind):
        known = ", ".join(kind)
        raise ReplayError(f"{where}: {name} is {shown(value)}, and must be one of {known}")
    return kind(str(value))


def _number(fields: Fields, name: str, where: str, *, least: float) -> float:
    value = fields[name]
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number) or number < least:
        raise ReplayError(f"{where}: {name} is {value!r}, and must be a number from {least:g} on")
    return number


def _wait_s(fields: Fields, where: str) -> float | None:
    if "max_wait_s" not in fields:
        return None
    wait_s = _number(fields, "max_wait_s", where, least=0.0)
    if wait_s > limits.MAX_WAIT_MAX_S:
        what = f"must be a number from 0 to {limits.MAX_WAIT_MAX_S:g}"
        raise ReplayError(f"{where}: max_wait_s is {wait_s:g}, and {what}")
    return wait_s


def _whole(fields: Fields, name: str, where: str, least: int, most: int) -> int | None:
    if name not in fields:
        return None
    value = fields[name]
    try:
        number = int(str(value))
    except ValueError:
        number = most + 1
    if not least <= number <= most:
        what = f"must be a whole number from {least} to {most}"
        raise ReplayError(f"{where}: {name} is {shown(value)}, and {what}")
    return number
