"""The projections in MongoDB, compared with the documents that ``live.audit`` expects.

Does: names documents that are missing or differ, writes them again, removes documents by name.
Fields that users added to their own documents are not compared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from reshape_controller.store.mongo import documents, inbox, profiles, projections
from reshape_controller.store.mongo.log import Database, last_seq
from reshape_controller.store.mongo.request_fields import exactly
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
"""Prefix of the name of a document whose ``_id`` is no text: none of ours."""


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A document as it should be, and as it is."""

    name: str
    identity: object
    fields: Document
    """Expected fields."""
    actual: Document | None
    """The document as read; None: it is missing."""
    stamp: str
    """Name of the field with the document's seq."""


async def differing(
    database: Database, expected_changes: tuple[Changes, ...], end_seq: int
) -> tuple[str, ...]:
    """Names of the expected documents that are missing or differ."""
    return tuple(each.name for each in await _wrong(database, expected_changes, end_seq))


async def rewrite(database: Database, expected_changes: tuple[Changes, ...], end_seq: int) -> None:
    """Write the expected documents that are missing or differ."""
    for wrong in await _wrong(database, expected_changes, end_seq):
        collection = wrong.name.partition("/")[0]
        # Only if no later append has written it since it was read.
        seq = wrong.actual.get(wrong.stamp) if wrong.actual is not None else None
        as_read = {"_id": exactly(wrong.identity), wrong.stamp: seq}
        write = projections.Write(as_read, wrong.fields)
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
            copy = {"_id": exactly(inbox.decoded(name, _COPIES))}
            await database.jobs.update_one(copy, {"$unset": {"reshape": ""}})
            continue
        collection, _, identity = name.partition("/")
        if identity.startswith(_NO_TEXT):
            odd = {"_id": exactly(inbox.decoded(identity, _NO_TEXT))}
            await database[collection].delete_one(odd)
            continue
        field = "reshape.id" if collection == "jobs" else "_id"
        await database[collection].delete_many({field: identity})


async def _wrong(
    database: Database, expected_changes: tuple[Changes, ...], end_seq: int
) -> list[_Comparison]:
    """The documents that are missing or differ. They are read before the end of the log, which a
    daemon writes first: a document that it writes meanwhile is then known to be newer."""
    compared = [each for changes in expected_changes async for each in _jobs(database, changes)]
    by_collection: dict[str, dict[str, Document]] = {}
    for changes in expected_changes:
        for collection, identity, fields in documents.documents_of(changes):
            by_collection.setdefault(collection, {})[identity] = fields
    for collection, expected in by_collection.items():
        for some in _chunks(expected):
            actual = {
                document["_id"]: document
                async for document in database[collection].find({"_id": {"$in": list(some)}})
            }
            compared += [
                _Comparison(
                    f"{collection}/{identity}", identity, fields, actual.get(identity), "seq"
                )
                for identity, fields in some.items()
            ]
    newest = await last_seq(database)
    return [each for each in compared if _differs(each, end_seq, newest)]


async def _jobs(database: Database, changes: Changes) -> AsyncIterator[_Comparison]:
    for row, place, fields in await projections.job_documents(database, changes.jobs):
        document = await database.jobs.find_one({"_id": exactly(place)})
        flat = _flat(document) if document is not None else None
        yield _Comparison(f"jobs/{row.id}", place, fields, flat, "reshape.seq")


def _flat(document: Document) -> Document:
    own = document.get("reshape")
    inner = own if isinstance(own, dict) else {}
    return {**document, **{f"reshape.{name}": value for name, value in inner.items()}}


def _differs(comparison: _Comparison, end_seq: int, newest: int) -> bool:
    actual = comparison.actual
    if actual is None:
        return True
    seq = actual.get(comparison.stamp)
    if isinstance(seq, int) and end_seq < seq <= newest:
        return False
    return any(
        name not in actual or actual[name] != value for name, value in comparison.fields.items()
    )


def _chunks(expected: dict[str, Document]) -> Iterator[dict[str, Document]]:
    items = list(expected.items())
    for first in range(0, len(items), _READ_MAX):
        yield dict(items[first : first + _READ_MAX])
