"""Files of Slurm's accounting: what ``sacct --parsable2``, ``--parsable`` and ``--json`` write.

Does: tell such a file by its names, and give its rows by Slurm's names of columns, whichever of the
three forms it has. It does not know which rows belong together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence, Set
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from reshape_controller.core.model import Spans
from reshape_controller.replay import slurm_jobs
from reshape_controller.replay.conversion import DURATION, Columns
from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.trace_rows import (
    LINE_CHARS_MAX,
    OTHER_SEPARATORS,
    BadRows,
    Cells,
    Layout,
    opened,
    rows,
)

JOB, STATE, ELAPSED, SUSPENDED = "JobID", "State", "Elapsed", "Suspended"
JOBS = (JOB, "JobIDRaw")
"""Columns with the number of a job; by the second, components of a heterogeneous job are jobs."""
RESOURCES = ("AllocTRES", "ReqTRES")
IN_JSON = (
    *(JOB, "JobName", "User", "Account", "Partition", "QOS", "Submit", "Eligible", "Start", "End"),
    *(ELAPSED, SUSPENDED, STATE, "Priority", *RESOURCES),
)
"""Columns that the jobs of ``sacct --json`` become."""
HEAD_CHARS_MAX = 1 << 16


class Accounting(NamedTuple):
    """What a file of Slurm has: the names of its columns, and its layout; None: it is JSON."""

    names: tuple[str, ...]
    layout: Layout | None


def accounting_of(path: Path, layout: Layout) -> Accounting | None:
    """Return what a file of Slurm has; None for another file. In ``sacct --parsable2`` a quote is a
    character as others. Raises ReplayError and OSError."""
    with opened(path) as file:
        first = file.readline(HEAD_CHARS_MAX)
        while first and not first.strip():
            first = file.readline(HEAD_CHARS_MAX)
        if first.lstrip().startswith("{"):
            is_slurm = _is_whole(first) and _jobs_of(first + file.read(LINE_CHARS_MAX)) is not None
            return Accounting(IN_JSON, None) if is_slurm else None
    for separator in OTHER_SEPARATORS if layout.separator is None else (layout.separator,):
        cells = [each.strip() for each in first.rstrip("\r\n").split(separator)]
        names = layout.head or tuple(cells)
        is_slurm = all(any(each in names for each in some) for some in (JOBS, RESOURCES))
        if is_slurm and len(cells) == len(names):
            return Accounting(names, Layout(layout.head, separator, quotes=separator != "|"))
    return None


def columns_of(found: Sequence[Accounting], columns: Columns, span: Spans) -> Columns:
    """Return the columns of files of Slurm: those that are asked for and exist, else Slurm's.
    Raises ReplayError."""
    names = set.intersection(*(set(each.names) for each in found))
    if names.isdisjoint(JOBS):
        raise ReplayError(
            f"some files have {JOBS[0]}, others {JOBS[1]}; write one of them into all"
        )
    resources = next((each for each in RESOURCES if each in names), RESOURCES[0])
    known = {"submit": "Submit", "gpus": resources, "start": "Start", "end": "End"}
    known |= {"user": "User", "name": _job_in(names)}
    if span is not Spans.NEVER:
        known["hosts"] = resources
    chosen = {each.name: getattr(columns, each.name) for each in fields(Columns)}
    if chosen["duration"] not in names:
        unsaid = chosen["duration"] == DURATION
        chosen["duration"] = ELAPSED if unsaid and ELAPSED in names else chosen["duration"]
        if unsaid and {"Start", "End"} <= names:
            chosen |= {"duration": None, "start": "Start", "end": "End"}
    if chosen["end"] is None:
        del known["start"], known["end"]
    unsaid_names = {each.name: each.default for each in fields(Columns)}
    for field, name in known.items():
        if name in names and chosen[field] not in names and chosen[field] == unsaid_names[field]:
            chosen[field] = name
    return Columns(**chosen)


def order_of(
    found: Sequence[Accounting], columns: Columns
) -> tuple[list[str | None], slurm_jobs.Columns]:
    """Return the columns to read, first those of a conversion, and where the joiner finds its."""
    names = set.intersection(*(set(each.names) for each in found))
    order = [getattr(columns, each.name) for each in fields(Columns)]
    own = [each.name for each in fields(Columns)]

    def index(name: str) -> int:
        if name not in names:
            return -1
        order.append(name)
        return len(order) - 1

    at = slurm_jobs.Columns(
        submit=own.index("submit"),
        start=index("Start"),
        end=index("End"),
        elapsed=index(ELAPSED),
        suspended=index(SUSPENDED),
        state=index(STATE),
        gpus=own.index("gpus"),
        hosts=own.index("hosts"),
        job=index(_job_in(names)),
        user=own.index("user"),
        name=own.index("name"),
        asked=index("ReqTRES") if columns.gpus == "AllocTRES" else -1,
    )
    return order, at


def _job_in(names: Set[str]) -> str:
    return next((each for each in JOBS if each in names), JOB)


def rows_of(
    found: Accounting, path: Path, columns: Sequence[str | None], bad: BadRows
) -> Iterator[tuple[int, Cells]]:
    """Return line and cells of each row, the cells in the order of ``columns``; of JSON the number
    of the job in place of the line. Raises ReplayError and OSError."""
    if found.layout is not None:
        yield from rows(path, columns, found.layout, bad)
        return
    with opened(path) as file:
        jobs = _jobs_of(file.read(LINE_CHARS_MAX + 1)) or []
    for number, job in enumerate(jobs, start=1):
        try:
            cells = _cells_of(job)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            what = f"is no job as sacct writes it ({type(error).__name__}: {error})"
            bad.add(path.name, number, what)
            continue
        yield number, tuple("" if each is None else cells[each] for each in columns)


def _is_whole(first: str) -> bool:
    """Return False if a line is a JSON object of its own, which is no list of Slurm's jobs."""
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return True
    return isinstance(value, dict) and isinstance(value.get("jobs"), list)


def _jobs_of(text: str) -> list[object] | None:
    """Return the jobs of ``sacct --json``; None if the text is not of it. Raises ReplayError."""
    if len(text) > LINE_CHARS_MAX:
        raise ReplayError(f"has more than {LINE_CHARS_MAX} characters; use sacct --parsable2")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    jobs = value.get("jobs") if isinstance(value, dict) else None
    return jobs if isinstance(jobs, list) else None


def _cells_of(job: object) -> dict[str, str]:
    """Return the cells of a job by Slurm's names. Raises KeyError, TypeError and ValueError."""
    if not isinstance(job, dict):
        raise TypeError("is not an object of names and values")
    times, state, tres = job["time"], job["state"]["current"], job["tres"]
    cells = {
        JOB: _job_id(job),
        "Submit": _date(times["submission"]),
        "Eligible": _date(times.get("eligible")),
        "Start": _date(times["start"]),
        "End": _date(times["end"]),
        ELAPSED: _span(times["elapsed"]),
        SUSPENDED: _span(times.get("suspended")),
        STATE: " ".join(state) if isinstance(state, list) else str(state or ""),
        "Priority": str(_number(job.get("priority")) or ""),
        "AllocTRES": _resources(tres["allocated"]),
        "ReqTRES": _resources(tres.get("requested") or []),
    }
    texts = {"JobName": "name", "User": "user", "Account": "account", "QOS": "qos"}
    texts["Partition"] = "partition"
    job = {**(job.get("association") or {}), **job}
    return cells | {name: str(job.get(key) or "") for name, key in texts.items()}


def _job_id(job: dict[str, object]) -> str:
    """Return a job's number as ``sacct`` prints it: ``123``, ``123_4`` or ``123+1``."""
    own = _number(job["job_id"])
    if own is None:
        raise ValueError("job_id is no number")
    array, het = job.get("array"), job.get("het")
    if isinstance(array, dict) and _number(array.get("job_id")):
        task = _number(array.get("task_id"))
        if task is not None:
            return f"{_number(array['job_id'])}_{task}"
        if array.get("task"):
            return f"{_number(array['job_id'])}_[{array['task']}]"
    if isinstance(het, dict) and _number(het.get("job_id")):
        return f"{_number(het['job_id'])}+{_number(het.get('job_offset')) or 0}"
    return str(own)


def _number(value: object) -> int | None:
    """Return a number of JSON: of later versions with ``set``, ``infinite`` and ``number``."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return None if value is None or isinstance(value, bool) else int(str(value))


def _date(value: object) -> str:
    seconds = _number(value)
    if not seconds or seconds < 0:
        return "Unknown"
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _span(value: object) -> str:
    seconds = _number(value) or 0
    return f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"


def _resources(listed: list[dict[str, object]]) -> str:
    """Return a list of resources as ``AllocTRES`` has it."""
    return ",".join(
        f"{each['type']}{'/' if each.get('name') else ''}{each.get('name') or ''}={count}"
        for each in listed
        if (count := _number(each.get("count"))) is not None and count >= 0
    )
