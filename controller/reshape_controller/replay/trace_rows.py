"""Rows of public trace files: CSV, tab-separated values and JSON lines, also compressed by gzip.

Does: give each row's cells in the order that is asked for, with its line. It does not judge a cell.
Rows that cannot be read go to a ``BadRows``, which names the first of them.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TextIO

from reshape_controller.replay.inputs import ReplayError

BAD_ROWS_SHOWN_MAX = 20
"""Largest number of bad rows that are named; the others are counted."""
SEPARATORS = {".tsv": "\t", ".csv": ","}
JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of files. ``head``: names of the columns of files without a head; ``separator``:
    None takes a tab for ``.tsv`` and a comma otherwise."""

    head: tuple[str, ...] | None = None
    separator: str | None = None


class BadRowsError(ReplayError):
    """Rows cannot be read. ``rows`` are texts of the first, with file, line and reason."""

    def __init__(self, rows: tuple[str, ...], count: int) -> None:
        more = f"\nand {count - len(rows)} more rows" if count > len(rows) else ""
        super().__init__("\n".join(rows) + more)
        self.rows = rows
        self.count = count


@dataclass(slots=True)
class BadRows:
    """Rows that cannot be read: their number, and the first with different reasons."""

    count: int = 0
    shown: list[str] = field(default_factory=list)
    _reasons: set[str] = field(default_factory=set)

    def add(self, where: str, reason: str) -> None:
        """Count a row, and name it unless its reason is known or enough rows are named."""
        self.count += 1
        if len(self.shown) < BAD_ROWS_SHOWN_MAX and reason not in self._reasons:
            self._reasons.add(reason)
            self.shown.append(f"{where}: {reason}")


def rows(
    path: Path, columns: Sequence[str | None], layout: Layout, bad: BadRows
) -> Iterator[tuple[int, Cells]]:
    """Return line and cells of each row, the cells in the order of ``columns``.

    A cell is empty if its column is None or, in JSON lines, if the object does not have it. Raises
    ReplayError if the file cannot be read; OSError.
    """
    stem = path.with_suffix("") if path.suffix == ".gz" else path
    opened: Callable[..., TextIO] = gzip.open if path.suffix == ".gz" else open
    is_json = stem.suffix in JSON_SUFFIXES
    if is_json and (layout.head is not None or layout.separator is not None):
        raise ReplayError(f"{path.name}: JSON lines have neither a head nor a separator")
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            if is_json:
                yield from _json_rows(file, path.name, columns, bad)
            else:
                separator = layout.separator or SEPARATORS.get(stem.suffix, ",")
                yield from _table_rows(file, path.name, columns, separator, layout.head, bad)
    except UnicodeDecodeError:
        raise ReplayError(f"{path.name}: is not UTF-8 text; save it as UTF-8") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ReplayError(f"{path.name}: is not whole gzip data ({error})") from None


def _table_rows(
    file: TextIO,
    name: str,
    columns: Sequence[str | None],
    separator: str,
    head: tuple[str, ...] | None,
    bad: BadRows,
) -> Iterator[tuple[int, Cells]]:
    reader = csv.reader(file, delimiter=separator, strict=True)
    try:
        known = next(reader, []) if head is None else list(head)
        absent = [each for each in columns if each is not None and each not in known]
        if absent:
            shown = ", ".join(known)
            raise ReplayError(f"{name}: line 1: no column {absent[0]!r}; columns: {shown}")
        width = len(known)
        pick = itemgetter(*(width if each is None else known.index(each) for each in columns))
        for row in reader:
            if len(row) == width:
                row.append("")
                yield reader.line_num, pick(row)
            elif row:
                what = "line 1" if head is None else "--head"
                reason = f"has {len(row)} cells, and must have as many as {what} ({width})"
                bad.add(f"{name}: line {reader.line_num}", reason)
    except csv.Error as error:
        raise ReplayError(f"{name}: line {reader.line_num}: is not valid CSV ({error})") from None


def _json_rows(
    file: TextIO, name: str, columns: Sequence[str | None], bad: BadRows
) -> Iterator[tuple[int, Cells]]:
    found: set[str] = set()
    for line, text in enumerate(file, start=1):
        if not text.strip():
            continue
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError) as error:
            bad.add(f"{name}: line {line}", f"is not valid JSON ({error})")
            continue
        if not isinstance(entry, dict):
            bad.add(f"{name}: line {line}", "is not an object of names and values")
            continue
        found.update(entry)
        yield line, tuple("" if each is None else _cell(entry.get(each)) for each in columns)
    absent = [each for each in columns if each is not None and each not in found]
    if found and absent:
        shown = ", ".join(sorted(found))
        raise ReplayError(f"{name}: no line has a name {absent[0]!r}; names: {shown}")


def _cell(value: object) -> str:
    """Return a JSON value as a cell; lists, as of numbers of GPUs, with blanks between."""
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join(str(entry) for entry in value)
    return str(value)
