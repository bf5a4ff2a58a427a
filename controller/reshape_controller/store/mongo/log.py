"""The log and its snapshots in MongoDB.

Does: appends with the seq as ``_id``, so that the server's own unique index is the fence; reads
back verified; keeps the last two snapshots. It needs no transaction and no session.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from reshape_controller.core.record import LogRecord
from reshape_controller.store.conventions import SNAPSHOTS_MAX, Damaged, OtherVersion, check_parts
from reshape_controller.store.digest import GENESIS, body_of, digest_of, record_of
from reshape_controller.store.protocol import SeqTaken, StoreBehind, StoreError
from reshape_sidecar.codec import CodecError

Database = AsyncDatabase[dict[str, Any]]
READ_BATCH = 100
"""Documents per reply of the server, which bounds a reply to 16 MB by itself."""


async def last_seq(database: Database) -> int:
    """Seq of the newest record; 0 for an empty log."""
    # Only numbers: a document that a user inserted with another _id is no record.
    newest = await database.log.find_one({"_id": {"$gt": 0}}, {"_id": 1}, sort=[("_id", -1)])
    return int(newest["_id"]) if newest is not None else 0


async def append(database: Database, record: LogRecord) -> None:
    """Add one record, acknowledged by a majority. Raises SeqTaken, StoreBehind."""
    seq, body = record.seq, body_of(record)
    query = {"_id": {"$in": [seq - 1, seq]}}
    near = {document["_id"]: document async for document in database.log.find(query)}
    if seq in near:
        raise SeqTaken(_decode(near[seq]))
    previous = GENESIS
    if seq > 1:
        if seq - 1 not in near:
            newest = await last_seq(database)
            if newest > seq:
                raise Damaged(seq - 2, f"record {seq} of the log is missing")
            raise StoreBehind(newest, seq - 1)
        previous = str(near[seq - 1].get("digest"))
    if record.digest != digest_of(previous, body):
        raise StoreBehind(seq - 1, seq - 1)
    try:
        await database.log.insert_one(document_of(record))
    except DuplicateKeyError:
        existing = await database.log.find_one({"_id": seq})
        if existing is None:
            raise StoreError(f"record {seq} has disappeared; remedy: check the server") from None
        raise SeqTaken(_decode(existing)) from None


def document_of(record: LogRecord) -> dict[str, Any]:
    """Return the document of a sealed record."""
    return {
        "_id": record.seq,
        "digest": record.digest,
        "body": body_of(record).decode(),
        "writer": record.writer,
        "epoch": record.epoch,
        "at_s": record.at_s,
    }


async def read(database: Database, after_seq: int) -> AsyncIterator[LogRecord]:
    """Yield the verified records after a seq. Raises Damaged at the first that does not fit."""
    async for document in _chain(database, after_seq):
        yield _decode(document)


async def verify(database: Database) -> None:
    """Check the newest snapshot and every record after it, as recovery reads them. Raises
    Damaged."""
    snapshot = await newest_snapshot(database)
    async for _ in _chain(database, snapshot[0] if snapshot is not None else 0):
        pass


async def last_good_seq(database: Database) -> int:
    """Seq up to which every record can be read, from the first one."""
    good = 0
    try:
        async for document in _chain(database, 0):
            good = document["_id"]
    except Damaged as damage:
        return damage.last_good_seq
    return good


async def _chain(database: Database, after_seq: int) -> AsyncIterator[dict[str, Any]]:
    if after_seq and after_seq > await last_seq(database):
        return
    good, previous = after_seq, GENESIS
    if after_seq:
        before = await database.log.find_one({"_id": after_seq}, {"digest": 1})
        if before is None:
            raise Damaged(
                await last_good_seq(database), f"record {after_seq} of the log is missing"
            )
        previous = str(before.get("digest"))
    records = database.log.find({"_id": {"$gt": after_seq}}).sort("_id", 1).batch_size(READ_BATCH)
    async with records:
        async for document in records:
            if document["_id"] != good + 1:
                raise Damaged(good, f"record {good + 1} of the log is missing")
            digest = digest_of(previous, str(document.get("body")).encode())
            if digest != document.get("digest"):
                raise Damaged(good, f"record {good + 1} of the log does not match its checksum")
            yield document
            good, previous = good + 1, digest


async def write_snapshot(database: Database, seq: int, parts: tuple[str, ...]) -> None:
    """Write a snapshot, part by part, and delete those before the last two."""
    check_parts(seq, parts)
    newest = await last_seq(database)
    if not 1 <= seq <= newest:
        raise StoreBehind(newest, seq)
    if seq in await _complete(database):
        return
    await database.snapshots.delete_many({"seq": seq})
    for number, part in enumerate(parts):
        name = f"{seq}-{number}"
        document = {
            "seq": seq,
            "part": number,
            "parts": len(parts),
            "digest": hashlib.sha256(part.encode()).hexdigest(),
            "body": part,
        }
        await database.snapshots.replace_one({"_id": name}, document, upsert=True)
    keep = (await _complete(database))[-SNAPSHOTS_MAX:]
    await database.snapshots.delete_many({"seq": {"$lt": keep[-1], "$nin": keep}})


async def newest_snapshot(database: Database) -> tuple[int, tuple[str, ...]] | None:
    """The newest complete snapshot, verified."""
    complete = await _complete(database)
    if not complete:
        return None
    seq, parts = complete[-1], []
    async for document in database.snapshots.find({"seq": seq}).sort("part", 1):
        body = str(document.get("body"))
        if hashlib.sha256(body.encode()).hexdigest() != document.get("digest"):
            good = await last_good_seq(database)
            raise Damaged(good, f"snapshot {seq} part {document['part']} is damaged")
        parts.append(body)
    return seq, tuple(parts)


async def _complete(database: Database) -> list[int]:
    """Seqs of the snapshots that have all their parts, ascending; there are three at most."""
    present: dict[int, int] = {}
    expected: dict[int, int] = {}
    ours = {"seq": {"$gt": 0}, "parts": {"$gt": 0}}
    async for part in database.snapshots.find(ours, {"seq": 1, "parts": 1}):
        present[part["seq"]] = present.get(part["seq"], 0) + 1
        expected[part["seq"]] = part["parts"]
    return sorted(seq for seq, count in present.items() if count == expected[seq])


def _decode(document: dict[str, Any]) -> LogRecord:
    try:
        return record_of(str(document.get("body")).encode(), str(document.get("digest")))
    except CodecError as error:
        raise OtherVersion(document["_id"], error) from None
