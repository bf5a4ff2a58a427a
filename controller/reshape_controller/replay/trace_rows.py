"""Rows of public trace files: CSV, tab-separated values, JSON lines and lists, also in gzip.

Does: give each row's cells in the order that is asked for, with its line. It does not judge a cell.
Rows that cannot be read go to a ``BadRows``, which names the first of them. A file's content says
whether it is compressed: browsers unpack some files and keep the name.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TextIO

from reshape_controller.replay.inputs import ReplayError
from reshape_sidecar import foreign

BAD_ROWS_SHOWN_MAX = 20
"""Largest number of bad rows that are named for a reason; the others are counted."""
BAD_REASONS_SHOWN_MAX = 20
LINE_CHARS_MAX = 256 << 20
"""Longest line, and longest JSON list, which is read as a whole."""
"""Largest number of reasons that are named."""
TAB = "\t"
SEPARATORS = {".tsv": TAB, ".csv": ","}
OTHER_SEPARATORS = (TAB, ";", "|", ",")
"""Separators that a head may have instead of the expected one."""
LINES = (".jsonl", ".ndjson")
JSON_SUFFIXES = (*LINES, ".json")
"""Names of files with JSON end so: with JSON lines, or a trace of the last one with a list."""
GZIP = b"\x1f\x8b"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
UNPACK = "unpack it first"
PACKED = (
    (b"PK\x03\x04", "a ZIP archive or a spreadsheet", "unpack it, or save it as CSV"),
    (b"\xfd7zXZ", "xz data", UNPACK),
    (b"BZh", "bzip2 data", UNPACK),
    (b"\x28\xb5\x2f\xfd", "zstd data", UNPACK),
    (b"7z\xbc\xaf", "a 7z archive", UNPACK),
    (b"PAR1", "a Parquet file", "save it as CSV"),
)
"""First bytes of files that are often downloaded, what they are, and the remedy."""
BEGIN_BYTES = 512
"""Bytes that are looked at; text has no NUL in them, and a tar archive has."""
_BLANKS = re.compile(r"\s*")
_INDEX = re.compile(r"-?[0-9]{1,6}")

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of files. ``head``: names of the columns of files without a head; ``separator``:
    None takes a tab for ``.tsv`` and a comma otherwise; ``quotes``: whether a quote is one."""

    head: tuple[str, ...] | None = None
    separator: str | None = None
    quotes: bool = True


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


def rows_text(count: int, which: str = "") -> str:
    """Return ``1 row`` or ``2 rows``, with a word before them."""
    return f"{count} {which}row{'s' if count != 1 else ''}"


class BadRowsError(ReplayError):
    """Rows cannot be read; the text names the first of them."""

    def __init__(self, bad: BadRows) -> None:
        more = f"\nand {rows_text(bad.more, 'more ')}" if bad.more else ""
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
    is_json = stem.suffix in JSON_SUFFIXES
    if is_json and (layout.head is not None or layout.separator is not None):
        raise ReplayError(f"{path.name}: JSON has neither a head nor a separator")
    with opened(path) as file:
        if is_json:
            yield from _json_rows(file, path.name, columns, bad)
        else:
            separator = layout.separator or SEPARATORS.get(stem.suffix, ",")
            yield from _table_rows(file, path.name, columns, separator, layout, bad)


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Open the text of a file, unpacked if it is gzip data. Raises ReplayError and OSError, also
    while it is read."""
    try:
        with foreign.reader(path) as data, _text(data, path.name) as file:
            yield file
    except UnicodeDecodeError:
        raise ReplayError(f"{path.name}: is not UTF-8 text; save it as UTF-8") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ReplayError(f"{path.name}: is not whole gzip data ({error})") from None


def _text(data: io.BufferedReader, name: str) -> TextIO:
    """Return the text of a file, unpacked if it is gzip data. Raises ReplayError."""
    if data.peek(len(GZIP)).startswith(GZIP):
        data = io.BufferedReader(gzip.GzipFile(fileobj=data))
    begin = data.peek(BEGIN_BYTES)[:BEGIN_BYTES]
    for magic, kind, remedy in PACKED:
        if begin.startswith(magic):
            raise ReplayError(f"{name}: is {kind}; {remedy}")
    if b"\0" in begin and not begin.startswith(UTF_16):
        raise ReplayError(
            f"{name}: is an archive or other binary data; unpack it, or save it as CSV"
        )
    return io.TextIOWrapper(data, encoding="utf-8-sig", newline="")


def _table_rows(
    file: TextIO,
    name: str,
    columns: Sequence[str | None],
    separator: str,
    layout: Layout,
    bad: BadRows,
) -> Iterator[tuple[int, Cells]]:
    reader = csv.reader(
        file,
        delimiter=separator,
        quoting=csv.QUOTE_MINIMAL if layout.quotes else csv.QUOTE_NONE,
        strict=True,
        skipinitialspace=separator != " ",
    )
    head = layout.head
    try:
        first = next(filter(None, reader), []) if head is None else head
    except csv.Error as error:
        raise ReplayError(f"{name}: line {reader.line_num}: is not valid CSV ({error})") from None
    known = [each.strip() for each in first]
    if not known:
        raise ReplayError(f"{name}: is empty")
    _check_head(known, columns, separator, f"{name}: {'--head' if head else 'line 1'}")
    width = len(known)
    pick = itemgetter(*(width if each is None else known.index(each) for each in columns))
    line, has_more = reader.line_num, True
    while has_more:
        try:
            for row in reader:
                line = reader.line_num
                if len(row) == width:
                    row.append("")
                    yield line, pick(row)
                elif row:
                    what = "line 1" if head is None else "--head"
                    reason = f"has {len(row)} cells, and must have as many as {what} ({width})"
                    bad.add(name, line, reason)
            has_more = False
        except csv.Error as error:
            # An open quote takes the lines after it: none of them vanishes.
            for lost in range(line + 1, reader.line_num + 1):
                bad.add(name, lost, f"is not valid CSV ({error})")
            line = reader.line_num


def _check_head(
    known: Sequence[str], columns: Sequence[str | None], separator: str, where: str
) -> None:
    """Raises ReplayError unless a head has each of ``columns`` once."""
    wanted = [each for each in columns if each is not None]
    for column in wanted:
        if known.count(column) > 1:
            raise ReplayError(f"{where}: {known.count(column)} columns are called {column!r}")
    absent = [each for each in wanted if each not in known]
    if not absent:
        return
    others = [other for other in OTHER_SEPARATORS if other != separator and other in known[0]]
    if len(known) == 1 and others:
        remedy = f"add --separator {'tab' if others[0] == TAB else repr(others[0])}"
    elif any(_is_number(cell) for cell in known):
        remedy = "name the columns of a file without a head by --head NAME,NAME"
    else:
        remedy = "choose columns by --submit, --gpus, --duration and the others"
    what = f"no column {absent[0]!r}; columns: {', '.join(known)}"
    raise ReplayError(f"{where}: {what}; {remedy}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _json_rows(
    file: TextIO, name: str, columns: Sequence[str | None], bad: BadRows
) -> Iterator[tuple[int, Cells]]:
    wanted = [each for each in columns if each is not None]
    names: set[str] = set()
    found: set[str] = set()
    lines = _bounded(file, name)
    begin = [next(lines, "")]
    while begin[-1] and not begin[-1].strip():
        begin.append(next(lines, ""))
    in_list = begin[-1].lstrip().startswith("[") and not name.removesuffix(".gz").endswith(LINES)
    entries = _listed(begin, file, name) if in_list else _lines(begin, lines, name, bad)
    for line, entry in entries:
        if not isinstance(entry, dict):
            bad.add(name, line, "is not an object of names and values")
            continue
        names.update(entry)
        values = {each: _value(entry, each) for each in wanted}
        found.update(each for each in wanted if each in entry or values[each] is not None)
        yield line, tuple("" if each is None else _cell(values[each]) for each in columns)
    absent = [each for each in wanted if each not in found]
    if names and absent:
        shown = ", ".join(sorted(names))
        raise ReplayError(f"{name}: no row has a name {absent[0]!r}; names: {shown}")


def _value(value: object, name: str) -> object:
    """Return the value of a name, or of a path as ``request.gpus`` and ``attempts.0.gpus``; of a
    list without an index the values of all its entries. None: there is none."""
    if isinstance(value, dict) and name in value:
        return value[name]
    first, dot, rest = name.partition(".")
    if isinstance(value, list):
        if _INDEX.fullmatch(first):
            at = int(first)
            found = value[at] if -len(value) <= at < len(value) else None
            return _value(found, rest) if dot else found
        return [each for each in (_value(entry, name) for entry in value) if each is not None]
    if not dot or not isinstance(value, dict):
        return None
    return _value(value.get(first), rest)


def _bounded(file: TextIO, name: str) -> Iterator[str]:
    """Return the lines of a file. Raises ReplayError at one that is too long to be read."""
    while line := file.readline(LINE_CHARS_MAX + 1):
        if len(line) > LINE_CHARS_MAX:
            raise ReplayError(f"{name}: has a line of more than {LINE_CHARS_MAX} characters")
        yield line


def _lines(
    begin: list[str], file: Iterator[str], name: str, bad: BadRows
) -> Iterator[tuple[int, object]]:
    """Return line and value of each of the JSON lines. ``begin``: the lines read already."""
    for line, text in enumerate(chain(begin, file), start=1):
        if not text.strip():
            continue
        try:
            yield line, json.loads(text)
        except (ValueError, RecursionError) as error:
            bad.add(name, line, f"is not valid JSON ({_reason(error)})")


def _listed(begin: list[str], file: TextIO, name: str) -> Iterator[tuple[int, object]]:
    """Return line and value of each entry of a JSON list. Raises ReplayError at a syntax error:
    what follows it is unknown."""
    text = "".join(begin) + file.read(LINE_CHARS_MAX + 1)
    if len(text) > LINE_CHARS_MAX:
        what = f"has a list of more than {LINE_CHARS_MAX} characters"
        raise ReplayError(f"{name}: {what}; write a line for each job")
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
            what = f"is not valid JSON ({_reason(error)})"
            raise ReplayError(f"{name}: line {line}: {what}") from None
        yield line, entry
        next_at = _after_blanks(text, next_at)
        line, at = line + text.count("\n", at, next_at), next_at
        wants_entry = text.startswith(",", at)
        if not wants_entry and not text.startswith("]", at):
            raise ReplayError(f"{name}: line {line}: has neither , nor ] after an entry")
        at += wants_entry


def _reason(error: ValueError | RecursionError) -> str:
    """Return why JSON is not valid, without a line: the one that the decoder counts is another."""
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


def _cell(value: object) -> str:
    """Return a JSON value as a cell; a list as ``[1 2 4]``, with those in it in one line."""
    if value is None:
        return ""
    if isinstance(value, list):
        return f"[{' '.join(_cell(entry).strip('[]') for entry in value)}]"
    return str(value)
