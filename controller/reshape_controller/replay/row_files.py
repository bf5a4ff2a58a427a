"""Rows of results as CSV and Parquet: jobs of all replays, and events of the first seed.

Only this module imports pyarrow, and late.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.shell import Result

Rows = Sequence[Mapping[str, object]]


class NoPyarrow(ReplayError):
    """Parquet needs pyarrow, which is not installed."""


def event_rows(label: str, result: Result) -> list[dict[str, object]]:
    """Return a row for each entry of a replay's history."""
    return [
        {
            "policy": label,
            "seed": result.seed,
            "at_s": entry.at_s,
            "job": None if entry.job is None else str(entry.job),
            "kind": entry.kind,
            "text": entry.text,
            "attempt": entry.attempt,
            "generation": entry.generation,
            "gpus": entry.size,
            "value": entry.value,
        }
        for entry in result.events
    ]


def course_rows(label: str, result: Result) -> list[dict[str, object]]:
    """Return a row for each time at which the queue or the GPUs of a replay changed."""
    return [
        {
            "policy": label,
            "seed": result.seed,
            "at_s": moment.at_s,
            "pending": moment.pending,
            "running": moment.running,
            "allocated": moment.allocated,
        }
        for moment in result.course
    ]


def write_csv(path: Path, rows: Rows) -> None:
    """Write rows as CSV; the first row has all columns. Raises OSError."""
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def pyarrow(name: str = "pyarrow") -> Any:
    """Return the module. Raises NoPyarrow with the remedy."""
    try:
        return importlib.import_module(name)
    except ImportError:
        what = "Parquet needs pyarrow, which is not installed"
        raise NoPyarrow(f"{what}: pip install pyarrow, or leave out --parquet") from None


def write_parquet(path: Path, rows: Rows) -> None:
    """Write rows as Parquet, with the columns of ``write_csv``. Raises NoPyarrow and OSError."""
    columns = list(rows[0]) if rows else []
    table = pyarrow().table({name: [row[name] for row in rows] for name in columns})
    pyarrow("pyarrow.parquet").write_table(table, str(path))
