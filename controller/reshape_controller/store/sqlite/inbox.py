"""The inbox inside an open SQLite file: what users and the API ask for.

Does: takes requests in, hands them out oldest first, and takes them out again. Never: reads what
is in one. State: none; the connection belongs to the caller.

Anybody who may write the file may also insert by hand, a name and a text being enough::

    INSERT INTO inbox (kind, body) VALUES ('submit', '{"name": "resnet", ...}');
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from reshape_controller.store.conventions import READ_BYTES_MAX
from reshape_controller.store.protocol import InboxItem
from reshape_controller.store.sqlite.log import transaction


def put(connection: sqlite3.Connection, item: InboxItem) -> None:
    """Leave a request; it is durable on return. One of the same id that waits is kept."""
    with transaction(connection):
        connection.execute(
            "INSERT INTO inbox (id, kind, body) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
            (item.id, item.kind, item.body),
        )


def oldest(connection: sqlite3.Connection, limit: int) -> tuple[InboxItem, ...]:
    """The oldest requests, bounded in number and size."""
    found: list[InboxItem] = []
    size = 0
    for item in _items(connection, max(0, limit)):
        found.append(item)
        size += len(item.body)
        if size >= READ_BYTES_MAX:
            break
    return tuple(found)


def every(connection: sqlite3.Connection) -> Iterator[InboxItem]:
    """All requests, one after the other; for recovery."""
    return _items(connection, -1)


def _items(connection: sqlite3.Connection, limit: int) -> Iterator[InboxItem]:
    # As bytes: a text that somebody inserted by hand need not be UTF-8.
    for identity, kind, body in connection.execute(
        "SELECT id, CAST(kind AS BLOB), CAST(body AS BLOB) FROM inbox ORDER BY number LIMIT ?",
        (limit,),
    ):
        yield InboxItem(identity, _text(kind), _text(body))


def remove(connection: sqlite3.Connection, ids: tuple[str, ...]) -> None:
    """Take requests out; those that are gone already are no error."""
    if not ids:
        return
    with transaction(connection):
        connection.executemany("DELETE FROM inbox WHERE id = ?", [(each,) for each in ids])


def _text(raw: bytes | None) -> str:
    return raw.decode(errors="replace") if raw is not None else ""  # NULL: a damaged page
