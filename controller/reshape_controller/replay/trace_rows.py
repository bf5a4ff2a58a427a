"""Rows of public trace files: CSV, tab-separated values, JSON lines and lists, also in gzip.

Does: give each row's cells in the order that is asked for, with its line. It does not judge a cell.
Rows that cannot be read go to a ``BadRows``, which names the first of them.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TextIO

from reshape_controller.replay.inputs import ReplayError

BAD_ROWS_SHOWN_MAX = 20
"""Largest number of bad rows that are named for a reason; the others are counted."""
BAD_REASONS_SHOWN_MAX = 20
"""Largest number of reasons that are named."""
SEPARATORS = {".tsv": "\t", ".csv": ","}
LINES = (".jsonl", ".ndjson")
JSON_SUFFIXES = (*LINES, ".json")
"""A file of the last one has JSON lines, or a list of objects."""
_BLANKS = re.compile(r"\s*")

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of files. ``head``: names of the columns of files without a head; ``separator``:
    None takes a tab for ``.tsv`` and a comma otherwise."""

    head: tuple[str, ...] | None = None
    separator: str | None = None


@dataclass(slots=True)
class BadRows:
    """Rows that cannot be read: their number, and the lines of the first, by file and reason."""

    count: int = 0
    _lines: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def add(self, file: str, line: int, reason: str) -> None:
        """Count a row, and name it unless enough rows, or enough reasons, are named."""
        self.count += 1
        if (file, reason) in self._lines or len(self._lines) < BAD_REASONS_SHOWN_MAX:
            lines = self._lines.setdefault((file, reason), [])
            if len(lines) < BAD_ROWS_SHOWN_MAX:
                lines.append(line)

    @property
    def shown(self) -> tuple[str, ...]:
        """A text for each reason: the file, the lines of the first rows, the reason."""
        return tuple(
            f"{file}: line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}: {reason}"
            for (file, reason), lines in self._lines.items()
        )

    @property
    def more(self) -> int:
        """Number of rows that ``shown`` does not name."""
        return self.count - sum(map(len, self._lines.values()))


class BadRowsError(ReplayError):
    """Rows cannot be read; the text names the first of them."""

    def __init__(self, bad: BadRows) -> None:
        more = f"\nand {bad.more} more rows" if bad.more else ""
        super().__init__("\n".join(bad.shown) + more)
        self.bad = bad


def rows(
    path: Path, columns: Sequence[str | None], layout: Layout, bad: BadRows
) -> Iterator[tuple[int, Cells]]:
    """Return line and cells of each row, the cells in the order of ``columns``.

    A cell is empty if its column is None or, in JSON, if the object does not have it. Raises
    ReplayError if the file cannot be read; OSError.
    """
    stem = path.with_suffix("") if path.suffix == ".gz" else path
    opened: Callable[..., TextIO] = gzip.open if path.suffix == ".gz" else open
    is_json = stem.suffix in JSON_SUFFIXES
    if is_json and (layout.head is not None or layout.separator is not None):
        raise ReplayError(f"{path.name}: JSON has neither a head nor a separator")
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
                bad.add(name, reader.line_num, reason)
    except csv.Error as error:
        raise ReplayError(f"{name}: line {reader.line_num}: is not valid CSV ({error})") from None


def _json_rows(
    file: TextIO, name: str, columns: Sequence[str | None], bad: BadRows
) -> Iterator[tuple[int, Cells]]:
    found: set[str] = set()
    begin = [file.readline()]
    while begin[-1] and not begin[-1].strip():
        begin.append(file.readline())
    in_list = begin[-1].lstrip().startswith("[") and not name.removesuffix(".gz").endswith(LINES)
    entries = _listed(begin, file, name) if in_list else _lines(begin, file, name, bad)
    for line, entry in entries:
        if not isinstance(entry, dict):
            bad.add(name, line, "is not an object of names and values")
            continue
        found.update(entry)
        yield line, tuple("" if each is None else _cell(entry.get(each)) for each in columns)
    absent = [each for each in columns if each is not None and each not in found]
    if found and absent:
        shown = ", ".join(sorted(found))
        raise ReplayError(f"{name}: no row has a name {absent[0]!r}; names: {shown}")


def _lines(begin: list[str], file: TextIO, name: str, bad: BadRows) -> Iterator[tuple[int, object]]:
    """Return line and value of each of the JSON lines. ``begin``: the lines read already."""
    for line, text in enumerate(chain(begin, file), start=1):
        if not text.strip():
            continue
        try:
            yield line, json.loads(text)
        except (ValueError, RecursionError) as error:
            bad.add(name, line, f"is not valid JSON ({error})")


def _listed(begin: list[str], file: TextIO, name: str) -> Iterator[tuple[int, object]]:
    """Return line and value of each entry of a JSON list. Raises ReplayError at a syntax error:
    what follows it is unknown."""
    text = "".join(begin) + file.read()
    at, decoder, wants_entry = text.index("[") + 1, json.JSONDecoder(), False
    line = 1 + text.count("\n", 0, at)
    while True:
        next_at = _after_blanks(text, at)
        line, at = line + text.count("\n", at, next_at), next_at
        if not wants_entry and text.startswith("]", at):
            return
        try:
            entry, next_at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise ReplayError(f"{name}: line {line}: is not valid JSON ({error})") from None
        yield line, entry
        next_at = _after_blanks(text, next_at)
        line, at = line + text.count("\n", at, next_at), next_at
        wants_entry = text.startswith(",", at)
        if not wants_entry and not text.startswith("]", at):
            raise ReplayError(f"{name}: line {line}: has neither , nor ] after an entry")
        at += wants_entry


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


def _cell(value: object) -> str:
    """Return a JSON value as a cell; lists, as of numbers of GPUs, with blanks between."""
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join(str(entry) for entry in value)
    return str(value)
