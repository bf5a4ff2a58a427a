"""The projections inside an open SQLite file, compared with what they should show.

Does: names rows that are missing or differ, writes them anew, removes rows by name. Never: knows
what is right: ``live.audit`` makes that from the log. State: none.
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
    connection: sqlite3.Connection, wanted: tuple[Changes, ...], end_seq: int
) -> tuple[str, ...]:
    """Names of rows that are not shown, or not so."""
    return tuple(name for name, *_ in _wrong(connection, wanted, end_seq))


def rewrite(connection: sqlite3.Connection, wanted: tuple[Changes, ...], end_seq: int) -> None:
    """Show exactly ``wanted``."""
    with transaction(connection):
        for _, table, values in _wrong(connection, wanted, end_seq):
            key = _key(table, values)
            connection.execute(f"DELETE FROM {table} WHERE {_where(table)}", key)
            marks = ",".join("?" * len(values))
            connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)


def names(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Names of all rows."""
    found = []
    for table in _COLUMNS:
        columns = ", ".join(_KEYS.get(table, _KEY))
        for key in connection.execute(f"SELECT {columns} FROM {table}"):
            found.append(_name(table, key))
    return tuple(found)


def forget(connection: sqlite3.Connection, rows: tuple[str, ...]) -> None:
    """Remove rows by name."""
    with transaction(connection):
        for name in rows:
            table, _, key = name.partition("/")
            parts = key.rsplit("-", len(_KEYS.get(table, _KEY)) - 1)
            connection.execute(f"DELETE FROM {table} WHERE {_where(table)}", parts)


def _wrong(
    connection: sqlite3.Connection, wanted: tuple[Changes, ...], end_seq: int
) -> list[tuple[str, str, tuple[object, ...]]]:
    newest = last_seq(connection)
    found = []
    for changes in wanted:
        for table, values in rows_of(changes):
            key = _key(table, values)
            query = f"SELECT {', '.join(_COLUMNS[table])} FROM {table} WHERE {_where(table)}"
            shown = connection.execute(query, key).fetchone()
            if shown == values or _newer(table, shown, end_seq, newest):
                continue
            found.append((_name(table, key), table, values))
    return found


def _newer(table: str, shown: tuple[object, ...] | None, end_seq: int, newest: int) -> bool:
    """Whether a later append, which is in the log, has written this row."""
    if shown is None:
        return False
    seq = shown[_COLUMNS[table].index("seq")]
    return isinstance(seq, int) and end_seq < seq <= newest


def _key(table: str, values: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(values[_COLUMNS[table].index(name)] for name in _KEYS.get(table, _KEY))


def _where(table: str) -> str:
    return " AND ".join(f"{name} = ?" for name in _KEYS.get(table, _KEY))


def _name(table: str, key: tuple[object, ...]) -> str:
    return f"{table}/{'-'.join(str(part) for part in key)}"
