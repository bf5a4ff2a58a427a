"""The projections in MongoDB, compared with what they should show.

Does: names documents that are missing or differ, writes them anew, removes documents by name.
Never: knows what is right (``live.audit`` makes that from the log), or looks at fields that users
added to their own documents. State: none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from pymongo import UpdateOne

from reshape_controller.store.mongo import documents, inbox, profiles, projections
from reshape_controller.store.mongo.log import Database, last_seq
from reshape_controller.store.protocol import Changes

Document = dict[str, Any]
_COLLECTIONS = (
    "gpus",
    "hosts",
    "history",
    "decisions",
    profiles.SPEED,
    profiles.ACCURACY,
    profiles.OVERHEAD,
)
_READ_MAX = 500
_COPIES = "copies of jobs/"
_NO_TEXT = "_id "
"""Before an ``_id`` that is no text, and so none of ours."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """A document: what it should show, and what it does. ``stamp`` is the field with its seq."""

    name: str
    identity: object
    fields: Document
    shown: Document | None
    stamp: str


async def differing(
    database: Database, wanted: tuple[Changes, ...], end_seq: int
) -> tuple[str, ...]:
    """Names of documents that are not there, or not so."""
    return tuple(looked.name for looked in await _wrong(database, wanted, end_seq))


async def rewrite(database: Database, wanted: tuple[Changes, ...], end_seq: int) -> None:
    """Show exactly ``wanted``."""
    for looked in await _wrong(database, wanted, end_seq):
        collection = looked.name.partition("/")[0]
        # Not over what a later append has written since it was looked at.
        seen = looked.shown.get(looked.stamp) if looked.shown is not None else None
        as_seen = {"_id": looked.identity, looked.stamp: seen}
        write = UpdateOne(as_seen, {"$set": looked.fields}, upsert=True)
        await projections.write_all(database[collection], [write])


async def names(database: Database) -> AsyncIterator[str]:
    """Names of all documents of the projections."""
    fields = {"reshape.id": 1, "reshape.key": 1}
    ours = {"$or": [{"reshape.seq": {"$gt": 0}}, {"reshape.order": {"$gt": ""}}]}
    async for document in database.jobs.find(ours, fields):
        if projections.is_copy(document):
            yield inbox.encoded(document["_id"], _COPIES)
        else:
            yield f"jobs/{projections.own_of(document).get('id')}"
    for collection in _COLLECTIONS:
        async for document in database[collection].find({}, {"_id": 1}):
            identity, start = document["_id"], f"{collection}/"
            if isinstance(identity, str):
                yield start + identity
            else:
                yield inbox.encoded(identity, start + _NO_TEXT)


async def forget(database: Database, rows: tuple[str, ...]) -> None:
    """Remove documents by name. A copy of a job's document stays, and becomes a new insert."""
    for name in rows:
        if name.startswith(_COPIES):
            copy = {"_id": inbox.decoded(name, _COPIES)}
            await database.jobs.update_one(copy, {"$unset": {"reshape": ""}})
            continue
        collection, _, identity = name.partition("/")
        if identity.startswith(_NO_TEXT):
            odd = {"_id": inbox.decoded(identity, _NO_TEXT)}
            await database[collection].delete_one(odd)
            continue
        field = "reshape.id" if collection == "jobs" else "_id"
        await database[collection].delete_many({field: identity})


async def _wrong(database: Database, wanted: tuple[Changes, ...], end_seq: int) -> list[_Looked]:
    """What the documents show is read before the end of the log, which a daemon writes first: so
    what it shows meanwhile is known to be newer."""
    looked = [each for changes in wanted async for each in _jobs(database, changes)]
    by_collection: dict[str, dict[str, Document]] = {}
    for changes in wanted:
        for collection, identity, fields in documents.documents_of(changes):
            by_collection.setdefault(collection, {})[identity] = fields
    for collection, expected in by_collection.items():
        for some in _chunks(expected):
            shown = {
                document["_id"]: document
                async for document in database[collection].find({"_id": {"$in": list(some)}})
            }
            looked += [
                _Looked(f"{collection}/{identity}", identity, fields, shown.get(identity), "seq")
                for identity, fields in some.items()
            ]
    newest = await last_seq(database)
    return [each for each in looked if _differs(each, end_seq, newest)]


async def _jobs(database: Database, changes: Changes) -> AsyncIterator[_Looked]:
    for row, place, fields in await projections.job_documents(database, changes.jobs):
        document = await database.jobs.find_one({"_id": place})
        flat = _flat(document) if document is not None else None
        yield _Looked(f"jobs/{row.id}", place, fields, flat, "reshape.seq")


def _flat(document: Document) -> Document:
    own = document.get("reshape")
    inner = own if isinstance(own, dict) else {}
    return {**document, **{f"reshape.{name}": value for name, value in inner.items()}}


def _differs(looked: _Looked, end_seq: int, newest: int) -> bool:
    shown = looked.shown
    if shown is None:
        return True
    seq = shown.get(looked.stamp)
    if isinstance(seq, int) and end_seq < seq <= newest:
        return False
    return any(name not in shown or shown[name] != value for name, value in looked.fields.items())


def _chunks(expected: dict[str, Document]) -> Iterator[dict[str, Document]]:
    items = list(expected.items())
    for first in range(0, len(items), _READ_MAX):
        yield dict(items[first : first + _READ_MAX])
