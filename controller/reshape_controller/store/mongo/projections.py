"""The projections in MongoDB: the documents that users read.

Does: writes the documents that an append changed, each by itself and with its seq, and answers
queries. A document of ``jobs`` has fields for users (state, GPUs, errors), and the store's own in
its field ``reshape``. A job that a user inserted keeps that document, with its ``_id``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pymongo import UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, DuplicateKeyError, WriteError

from reshape_controller.core.model import Gpu, Host, JobId, JobState
from reshape_controller.core.record import HistoryEntry
from reshape_controller.store.conventions import page_limit, unknown_page
from reshape_controller.store.mongo import documents as mongo_documents
from reshape_controller.store.mongo.documents import Document
from reshape_controller.store.mongo.inbox import key_of
from reshape_controller.store.mongo.log import Database
from reshape_controller.store.mongo.request_fields import exactly
from reshape_controller.store.protocol import (
    REQUEST_KEY_LENGTH,
    Changes,
    Decision,
    JobRow,
    Page,
)
from reshape_sidecar import codec

DUPLICATE = 11000
"""The server's code for a duplicate ``_id``."""
STAMP = "projections"
CURSOR = "cursor/"
_ROW = {"reshape.id": 1, "reshape.key": 1, "reshape.body": 1}
OURS: Document = {"seq": {"$gt": 0}}
"""Condition for documents of ours; others are not read, and ``db check`` names them."""


@dataclass(frozen=True, slots=True)
class Write:
    """Set ``fields`` in the document that ``where`` finds; with ``upsert`` insert a missing one."""

    where: Document
    fields: Document
    upsert: bool = True

    @property
    def update(self) -> Document:
        return {"$set": self.fields}

    @property
    def request(self) -> UpdateOne:
        """The write as a part of a bulk request."""
        return UpdateOne(self.where, self.update, upsert=self.upsert)


async def projected_seq(database: Database) -> int:
    """Seq up to which the projections are complete."""
    stamp = await database.meta.find_one({"_id": STAMP})
    return int(stamp["seq"]) if stamp is not None else 0


async def project(database: Database, changes: Changes) -> None:
    """Write the documents that one append changed; the stamp comes last, so that a start repeats
    an incomplete write."""
    await _project_jobs(database, changes.jobs)
    writes: dict[str, list[Write]] = {}
    for collection, identity, fields in mongo_documents.documents_of(changes):
        writes.setdefault(collection, []).append(_newest(identity, fields))
    for collection, some in writes.items():
        await write_all(database[collection], some)
    try:
        await database.meta.update_one(
            {"_id": STAMP, "seq": {"$lt": changes.seq}},
            {"$set": {"seq": changes.seq}},
            upsert=True,
        )
    except DuplicateKeyError:
        return  # the stamp is newer


async def jobs(
    database: Database,
    limit: int,
    after: str | None,
    states: tuple[JobState, ...],
    user: str | None,
    name: str | None,
    newest: bool,
) -> Page:
    """One page of jobs in order of submission, or with ``newest`` in reverse.

    A copy of a job's document is left out of the page, but not of the total, because a count reads
    no document; ``db check`` removes such copies.
    """
    where: Document = {"reshape.order": {"$gt": ""}}
    if states:
        where["reshape.state"] = {"$in": [state.value for state in states]}
    if user is not None:
        where["reshape.user"] = user
    if name is not None:
        pattern = re.escape(name).replace(r"\*", ".*").replace(r"\?", ".")
        matches = {"$regex": f"^{pattern}$"}
        where["$or"] = [{"reshape.name": matches}, {"reshape.id": matches}]
    total = await database.jobs.count_documents(where)
    if after is not None:
        last = await _rows(database, {"reshape.id": after}, 1, 1)
        if not last:
            raise unknown_page(after)
        beyond = {"$lt" if newest else "$gt": mongo_documents.order_of(last[0])}
        where["reshape.order"] = {**where["reshape.order"], **beyond}
    limit = page_limit(limit)
    rows = await _rows(database, where, -1 if newest else 1, limit + 1)
    return Page(rows[:limit], total, rows[limit - 1].id if len(rows) > limit else None)


async def job(database: Database, key: str, user: str) -> JobRow | None:
    """The job with this id, else the newest with this name, one of ``user`` first; a rejected
    record comes last."""
    accepted = {"reshape.name": key, "reshape.state": {"$ne": JobState.REJECTED.value}}
    for where in (
        {"reshape.id": key},
        {**accepted, "reshape.user": user},
        accepted,
        {"reshape.name": key, "reshape.user": user},
        {"reshape.name": key},
    ):
        rows = await _rows(database, where, -1, 1)
        if rows:
            return rows[0]
    return None


async def _rows(
    database: Database, where: Document, direction: int, most: int
) -> tuple[JobRow, ...]:
    """The first jobs in order of submission; with direction -1 the last ones."""
    rows: list[JobRow] = []
    cursor = database.jobs.find(where, _ROW).sort("reshape.order", direction).batch_size(most)
    async with cursor as documents:
        async for document in documents:
            if not is_copy(document):
                rows.append(codec.loads(JobRow, str(own_of(document).get("body"))))
            if len(rows) == most:
                break
    return tuple(rows)


async def gpus(database: Database) -> tuple[Gpu, ...]:
    """All GPUs by host and number."""
    order = [("host", 1), ("number", 1), ("_id", 1)]
    documents = await database.gpus.find(OURS, {"body": 1}).sort(order).to_list()
    return tuple(codec.loads(Gpu, str(document.get("body"))) for document in documents)


async def hosts(database: Database) -> tuple[Host, ...]:
    """All hosts by id."""
    documents = await database.hosts.find(OURS, {"body": 1}).sort("_id", 1).to_list()
    return tuple(codec.loads(Host, str(document.get("body"))) for document in documents)


async def history(database: Database, job: JobId | None, limit: int) -> tuple[HistoryEntry, ...]:
    """The newest entries, oldest first."""
    bodies = await _newest_of(database.history, {"job": job} if job is not None else {}, limit)
    return tuple(codec.loads(HistoryEntry, body) for body in bodies)


async def history_between(
    database: Database, after_seq: int, up_to_seq: int
) -> tuple[tuple[int, int, HistoryEntry], ...]:
    """Entries of the records after one, up to another, with seq and number."""
    first, end = mongo_documents.row_id(after_seq + 1, 0), mongo_documents.row_id(up_to_seq + 1, 0)
    found = database.history.find({"_id": {"$gte": first, "$lt": end}, **OURS}).sort("_id", 1)
    return tuple(
        (int(each["seq"]), int(each["number"]), codec.loads(HistoryEntry, str(each.get("body"))))
        for each in await found.to_list()
    )


async def cursor(database: Database, name: str) -> int | None:
    """Seq up to which a reader has what it reads; None if it has none."""
    found = await database.meta.find_one({"_id": CURSOR + name})
    return int(found["seq"]) if found is not None else None


async def set_cursor(database: Database, name: str, seq: int) -> None:
    """Note how far a reader is."""
    await database.meta.update_one({"_id": CURSOR + name}, {"$set": {"seq": seq}}, upsert=True)


async def decisions(database: Database, job: JobId | None, limit: int) -> tuple[Decision, ...]:
    """The newest decisions, oldest first."""
    bodies = await _newest_of(database.decisions, {"jobs": job} if job is not None else {}, limit)
    return tuple(codec.loads(Decision, body) for body in bodies)


async def _newest_of(
    collection: AsyncCollection[Document], where: Document, limit: int
) -> list[str]:
    if limit <= 0:
        return []  # MongoDB takes 0 for "all"
    cursor = collection.find({**where, **OURS}, {"body": 1}).sort("_id", -1).limit(limit)
    return [str(document.get("body")) for document in reversed(await cursor.to_list())]


async def job_documents(
    database: Database, rows: tuple[JobRow, ...]
) -> list[tuple[JobRow, object, Document]]:
    """For each row the ``_id`` of its document (the one that has its id already, or the record that
    it was inserted as), and the document's fields."""
    if not rows:
        return []
    places: dict[str, Any] = {}
    query = {"reshape.id": {"$in": [row.id for row in rows]}}
    async for document in database.jobs.find(query, {"reshape.id": 1, "reshape.key": 1}):
        if not is_copy(document):
            places[own_of(document)["id"]] = document["_id"]
    by_key = {row.id[-REQUEST_KEY_LENGTH:]: row.id for row in rows if row.id not in places}
    inserted = {"reshape.key": {"$in": list(by_key)}, "reshape.id": None}
    if by_key:
        async for document in database.jobs.find(inserted, {"reshape.key": 1}):
            if not is_copy(document):
                places[by_key[own_of(document)["key"]]] = document["_id"]
    return [(row, places.get(row.id, row.id), mongo_documents.fields_of(row)) for row in rows]


def own_of(document: Document) -> Document:
    """The store's own fields of a document of ``jobs``."""
    own = document.get("reshape")
    return own if isinstance(own, dict) else {}


def is_copy(document: Document) -> bool:
    """Whether a document is a copy that a user inserted of a job's document."""
    own, identity = own_of(document), document["_id"]
    return bool(identity != own.get("id") and own.get("key") != key_of(identity))


async def _project_jobs(database: Database, rows: tuple[JobRow, ...]) -> None:
    """Write the jobs; a job whose inserted document refuses the fields gets a new document."""
    targets = await job_documents(database, rows)
    writes = [_newest_job(row, place) for row, place, _ in targets]
    refused = await write_all(database.jobs, writes, may_fail=True)
    own = [_newest_job(targets[n][0], targets[n][0].id) for n in refused]
    await write_all(database.jobs, own)


def _newest_job(row: JobRow, place: object) -> Write:
    earlier = [{"reshape.seq": None}, {"reshape.seq": {"$lte": row.seq}}]
    older = {"_id": exactly(place), "$or": earlier}
    return Write(older, mongo_documents.fields_of(row), upsert=place == row.id)


def _newest(identity: str, fields: Document) -> Write:
    """A write that fails as a duplicate if the document has a newer seq."""
    older = {"_id": identity, "seq": {"$lte": fields["seq"]}}
    return Write(older, fields)


async def write_all(
    collection: AsyncCollection[Document], writes: Sequence[Write], *, may_fail: bool = False
) -> tuple[int, ...]:
    """Carry out all writes, and return the numbers of those that the server refused. A duplicate
    means that a newer document is there, and is no refusal.

    ``may_fail``: return refusals; otherwise they are raised.
    """
    if not writes:
        return ()
    try:
        await collection.bulk_write([write.request for write in writes], ordered=False)
    except KeyError:
        # The driver cannot read a reply with errors that lacks a field: FerretDB's nModified.
        return await _write_each(collection, writes, may_fail=may_fail)
    except BulkWriteError as error:
        details = error.details
        others = [e for e in details.get("writeErrors", ()) if e.get("code") != DUPLICATE]
        if details.get("writeConcernErrors") or (others and not may_fail):
            raise
        return tuple(e["index"] for e in others)
    return ()


async def _write_each(
    collection: AsyncCollection[Document], writes: Sequence[Write], *, may_fail: bool
) -> tuple[int, ...]:
    """Do as ``write_all``, one write after another; those that are done already change nothing."""
    refused = []
    for number, write in enumerate(writes):
        try:
            await collection.update_one(write.where, write.update, upsert=write.upsert)
        except DuplicateKeyError:
            continue
        except WriteError:
            if not may_fail:
                raise
            refused.append(number)
    return tuple(refused)
