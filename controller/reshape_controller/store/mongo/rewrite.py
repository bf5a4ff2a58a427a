"""Another log in the place of a server's own, with the one of before kept beside it.

Does: fills a collection with other records, and puts it in the log's place by one rename, which a
server does as a whole. A stop at any moment leaves the one log or the other, and never a mixture.
Never: acts on the inbox, or on fields of users.
"""

from __future__ import annotations

from collections.abc import Sequence

from reshape_controller.core.record import LogRecord
from reshape_controller.store.mongo.log import READ_BATCH, Database, document_of, last_seq
from reshape_controller.store.protocol import StoreError

COPY = "log_rewritten"
KEPT = "log_before_"
"""Begins the name of the collection with the log of before; its last record ends it."""


async def begin(database: Database) -> None:
    """Make an empty copy that has the log's validator, in place of what an interrupted command
    left."""
    await abandon(database)
    await database.create_collection(COPY, **await database.log.options())


async def abandon(database: Database) -> None:
    """Drop the copy."""
    await database.drop_collection(COPY)


async def add(database: Database, records: Sequence[LogRecord]) -> None:
    """Add sealed records to the copy."""
    await database[COPY].insert_many([document_of(record) for record in records])


async def replace(database: Database, end_seq: int) -> str:
    """Keep the log, put the copy in its place, and drop snapshots; return where the log of before
    is. Raises StoreError if records were appended meanwhile."""
    kept = f"{KEPT}{end_seq}"
    await database.drop_collection(kept)
    records = database.log.find({"_id": {"$gt": 0}}).sort("_id", 1).batch_size(READ_BATCH)
    async with records:
        batch = []
        async for document in records:
            batch.append(document)
            if len(batch) == READ_BATCH or document["_id"] == end_seq:
                await database[kept].insert_many(batch)
                batch = []
    counts = [await database[name].count_documents({"_id": {"$gt": 0}}) for name in (kept, COPY)]
    if counts != [end_seq, end_seq] or await last_seq(database) != end_seq:
        remedy = "stop every controller of this database, and run the command again"
        raise StoreError(f"the log was written meanwhile; remedy: {remedy}")
    await database.snapshots.delete_many({})
    await database[COPY].rename("log", dropTarget=True)
    return kept
