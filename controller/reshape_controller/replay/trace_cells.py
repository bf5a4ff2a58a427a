"""Cells of a public trace: missing ones, numbers, times and numbers of GPUs.

Does: read a cell's text. It does not know a trace's columns; each error names the column.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, tzinfo

from reshape_controller.records.limits import GPUS_MAX, SIZES_MAX
from reshape_controller.replay import slurm_cells
from reshape_controller.replay.inputs import SECONDS_MAX

MISSING = ("", "nan", "-nan", "null", "none")
"""Spellings of a missing value in traces, in lower case."""
NO_TIME = ("unknown",)
"""Spellings of a time that is not known, such as the end of a job that still runs."""
NO_DURATION = ("unlimited", "partition_limit", *NO_TIME)
GPU_COUNT_MAX = 1e6
"""Largest number of GPUs of a row. A number beyond it is taken for a mistake."""
_RANGE = re.compile(r"([0-9]{1,4})-([0-9]{1,4})")


class BadCell(Exception):
    """A cell cannot be read; the text is the reason."""


def is_missing(text: str) -> bool:
    """Return True if a cell has no value."""
    return not text or text.strip().lower() in MISSING


def is_no_time(text: str) -> bool:
    """Return True if a cell has no time."""
    return is_missing(text) or text.strip().lower() in NO_TIME


def number_of(text: str, column: str) -> float:
    """Return the number in a cell of ``column``; 0 if it is missing. Raises BadCell."""
    try:
        value = float(text)
    except ValueError:
        if is_missing(text):
            return 0.0
        value = math.inf
    if value != value:
        return 0.0
    if not -math.inf < value < math.inf:
        raise BadCell(f"{column} is {text!r}, and must be a number")
    return value


def entries_of(text: str) -> list[str] | None:
    """Return the entries of a cell with a list, as ``[gpu0, gpu1]``; None for another cell."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    return text[1:-1].replace(",", " ").split()


def gpus_of(text: str, column: str) -> float:
    """Return the number of GPUs in a cell of ``column``, which may be a list of them, or of Slurm's
    resources; 0 if it is missing. Raises BadCell."""
    entries = entries_of(text)
    if entries is not None:
        value = float(len(entries))
    elif slurm_cells.is_resources(text):
        try:
            value = slurm_cells.gpus_of(text)
        except ValueError as error:
            raise BadCell(f"{column} is {text!r}, and {error}") from None
    else:
        value = number_of(text, column)
    if not 0.0 <= value <= GPU_COUNT_MAX:
        what = f"{column} is {text!r}, and must be a number of GPUs"
        raise BadCell(f"{what} from 0 to {GPU_COUNT_MAX:.0f}")
    return value


def hosts_of(text: str, column: str) -> int:
    """Return the number of hosts in a cell of ``column``, which may be a list of them, or of
    Slurm's resources; 0 if it is missing. Raises BadCell."""
    entries = entries_of(text)
    if entries is not None:
        return len(entries)
    if not slurm_cells.is_resources(text):
        value = number_of(text, column)
        if not 0.0 <= value <= GPUS_MAX or value != int(value):
            what = f"{column} is {text!r}, and must be a whole number of hosts"
            raise BadCell(f"{what} from 0 to {GPUS_MAX}")
        return int(value)
    try:
        return slurm_cells.hosts_of(text)
    except ValueError as error:
        raise BadCell(f"{column} is {text!r}, and {error}") from None


def duration_of(text: str, column: str, unit_s: float) -> float:
    """Return the seconds in a cell of ``column``, also of Slurm's ``D-HH:MM:SS``; 0 if it is
    missing or unlimited. ``unit_s``: of a number. Raises BadCell."""
    if ":" in text:
        seconds = slurm_cells.seconds_of(text)
        if seconds is None:
            raise BadCell(f"{column} is {text!r}; write seconds, or [D-]HH:MM:SS as Slurm does")
        return seconds
    try:
        return number_of(text, column) * unit_s
    except BadCell:
        if text.strip().lower() in NO_DURATION:
            return 0.0
        raise


def time_of(text: str, unit_s: float = 1.0, zone: tzinfo = UTC) -> tuple[float, bool]:
    """Return a time in seconds, and True if it is a date.

    ``unit_s``: of a number; ``zone``: of a date that names none. Raises ValueError with the reason.
    """
    try:
        seconds = float(text) * unit_s
    except ValueError:
        pass
    else:
        if not abs(seconds) <= SECONDS_MAX:  # also rejects NaN
            what = f"is {text!r}, and must be seconds, at most {SECONDS_MAX:g}"
            raise ValueError(f"{what}; --time-unit names another unit")
        return seconds, False
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        what = f"is {text!r}; write seconds, or a date as 2017-10-03 12:00:00"
        raise ValueError(what) from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=zone)).timestamp(), True


def sizes_of(text: str, column: str) -> set[int]:
    """Return the numbers of GPUs of a cell such as ``1 2 4`` or ``1-8``. Raises BadCell."""
    found: set[int] = set()
    for part in text.strip("[]").replace(",", " ").split():
        span = _RANGE.fullmatch(part)
        if span is not None:
            found.update(range(int(span[1]), int(span[2]) + 1))
        elif part.isascii() and part.isdigit() and len(part) <= 4:
            found.add(int(part))
        else:
            found.clear()
            break
    if not found or min(found) < 1 or max(found) > GPUS_MAX or len(found) > SIZES_MAX:
        what = f"{column} is {text!r}; write at most {SIZES_MAX} numbers of GPUs"
        raise BadCell(f"{what} from 1 to {GPUS_MAX}, as in 1 2 4 or 1-8")
    return found
