"""The inbox inside an open SQLite file: requests of users and of the API.

Does: stores requests, reads the oldest first, and removes them; does not parse them. The connection
belongs to the caller.

A process that may write the file may also insert by hand, a kind and a text being enough::

    INSERT INTO inbox (kind, body) VALUES ('submit', '{"name": "resnet", ...}');
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from reshape_controller.store.conventions import READ_BYTES_MAX
from reshape_controller.store.protocol import InboxItem
from reshape_controller.store.sqlite.log import transaction


def put(connection: sqlite3.Connection, item: InboxItem) -> None:
    """Store a request, durably; one with the same id that is there already stays as it is."""
    with transaction(connection):
        connection.execute(
            "INSERT INTO inbox (id, kind, body) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
            (item.id, item.kind, item.body),
        )


def oldest(connection: sqlite3.Connection, limit: int) -> tuple[InboxItem, ...]:
    """The oldest requests, bounded in number and size."""
    items: list[InboxItem] = []
    size = 0
    for item in _items(connection, max(0, limit)):
        items.append(item)
        size += len(item.body)
        if size >= READ_BYTES_MAX:
            break
    return tuple(items)


def every(connection: sqlite3.Connection) -> Iterator[InboxItem]:
    """Yield all requests in order; for recovery."""
    return _items(connection, -1)


def _items(connection: sqlite3.Connection, limit: int) -> Iterator[InboxItem]:
    # As bytes: a text that was inserted by hand need not be UTF-8.
    for identity, kind, body in connection.execute(
        "SELECT id, CAST(kind AS BLOB), CAST(body AS BLOB) FROM inbox ORDER BY number LIMIT ?",
        (limit,),
    ):
        yield InboxItem(identity, _text(kind), _text(body))


def remove(connection: sqlite3.Connection, ids: tuple[str, ...]) -> None:
    """Remove requests; one that is gone already is no error."""
    if not ids:
        return
    with transaction(connection):
        connection.executemany("DELETE FROM inbox WHERE id = ?", [(each,) for each in ids])


def _text(raw: bytes | None) -> str:
    return raw.decode(errors="replace") if raw is not None else ""  # NULL: a damaged page
