"""The projections inside an open SQLite file, compared with the rows that ``live.audit`` expects.

Does: names rows that are missing or differ, writes them again, removes rows by name. The connection
belongs to the caller.
"""

from __future__ import annotations

import sqlite3

from reshape_controller.store.protocol import Changes
from reshape_controller.store.sqlite.log import last_seq, transaction
from reshape_controller.store.sqlite.projections import rows_of

_COLUMNS = {
    "jobs": ("id", "name", "user", "state", "submitted_at_s", "place", "seq", "body"),
    "gpus": ("id", "host", "number", "state", "owner", "seq", "body"),
    "hosts": ("id", "seq", "body"),
    "history": ("seq", "number", "job", "at_s", "kind", "body"),
    "decisions": ("seq", "number", "at_s", "policy", "body"),
    "decision_jobs": ("job", "seq", "number"),
    "profiles": ("job_type", "seq", "body"),
}
_KEYS = {
    "history": ("seq", "number"),
    "decisions": ("seq", "number"),
    "decision_jobs": ("job", "seq", "number"),
    "profiles": ("job_type",),
}
_KEY = ("id",)


def differing(
    connection: sqlite3.Connection, expected: tuple[Changes, ...], end_seq: int
) -> tuple[str, ...]:
    """Names of the expected rows that are missing or differ."""
    return tuple(name for name, *_ in _wrong(connection, expected, end_seq))


def rewrite(connection: sqlite3.Connection, expected: tuple[Changes, ...], end_seq: int) -> None:
    """Write the expected rows that are missing or differ."""
    with transaction(connection):
        for _, table, values in _wrong(connection, expected, end_seq):
            key = _key(table, values)
            connection.execute(f"DELETE FROM {table} WHERE {_where(table)}", key)
            marks = ",".join("?" * len(values))
            connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)


def names(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Names of all rows."""
    names = []
    for table in _COLUMNS:
        columns = ", ".join(_KEYS.get(table, _KEY))
        for key in connection.execute(f"SELECT {columns} FROM {table}"):
            names.append(_name(table, key))
    return tuple(names)


def forget(connection: sqlite3.Connection, rows: tuple[str, ...]) -> None:
    """Remove rows by name."""
    with transaction(connection):
        for name in rows:
            table, _, key = name.partition("/")
            parts = key.rsplit("-", len(_KEYS.get(table, _KEY)) - 1)
            connection.execute(f"DELETE FROM {table} WHERE {_where(table)}", parts)


def _wrong(
    connection: sqlite3.Connection, expected: tuple[Changes, ...], end_seq: int
) -> list[tuple[str, str, tuple[object, ...]]]:
    newest = last_seq(connection)
    wrong = []
    for changes in expected:
        for table, values in rows_of(changes):
            key = _key(table, values)
            query = f"SELECT {', '.join(_COLUMNS[table])} FROM {table} WHERE {_where(table)}"
            row = connection.execute(query, key).fetchone()
            if row == values or _newer(table, row, end_seq, newest):
                continue
            wrong.append((_name(table, key), table, values))
    return wrong


def _newer(table: str, row: tuple[object, ...] | None, end_seq: int, newest: int) -> bool:
    """Whether a later append, which is in the log, has written this row."""
    if row is None:
        return False
    seq = row[_COLUMNS[table].index("seq")]
    return isinstance(seq, int) and end_seq < seq <= newest


def _key(table: str, values: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(values[_COLUMNS[table].index(name)] for name in _KEYS.get(table, _KEY))


def _where(table: str) -> str:
    return " AND ".join(f"{name} = ?" for name in _KEYS.get(table, _KEY))


def _name(table: str, key: tuple[object, ...]) -> str:
    return f"{table}/{'-'.join(str(part) for part in key)}"
