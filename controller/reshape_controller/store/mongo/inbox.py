"""The inbox in MongoDB: requests of the API, and those that users insert by hand.

Does: stores requests, reads the oldest first, and removes them. It does not parse them, and reads
on if a document is not what it should be.

By hand: a document in ``jobs`` (a job record), a field ``request`` (``request_fields``), or a
document in ``inbox`` with ``kind`` and ``body``, to which ``error`` is added if it is refused. The
same in ``inbox.NAME``, into which only NAME may insert: a database tells the collection of a
document, and not the account that inserted it. A
document in ``jobs`` stays there and becomes the job's own; ``reshape.key`` marks that it was read,
``reshape.taken`` that the log has it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from bson import ObjectId, json_util
from pymongo.errors import DuplicateKeyError, WriteError

from reshape_controller.store.conventions import READ_BYTES_MAX
from reshape_controller.store.mongo import request_fields
from reshape_controller.store.mongo.log import Database
from reshape_controller.store.mongo.request_fields import exactly
from reshape_controller.store.protocol import InboxItem, RequestKind, StoreError, request_key

Document = dict[str, Any]
_INSERTED = "jobs:"
_BY_HAND = "inbox:"
_OWN = "inbox/"
_PREFIXES = (_INSERTED, _BY_HAND, _OWN, request_fields.PREFIX)
"""Prefixes of the ids of requests that were inserted by hand; the ``_id`` follows as JSON."""
_UNREADABLE = '"a document that is nested too deeply"'


async def put(database: Database, item: InboxItem) -> None:
    """Store a request; one with the same id that is there already stays as it is."""
    if not item.id or item.id.startswith(_PREFIXES):
        raise StoreError(f"a request cannot have the id {item.id!r}; remedy: choose another")
    document = {"_id": item.id, "order": ObjectId(), "kind": item.kind, "body": item.body}
    try:
        await database.inbox.insert_one(document)
    except DuplicateKeyError:
        return


def own_inbox(user: str) -> str:
    """Return the name of the collection whose documents are the user's requests."""
    return f"inbox.{user}"


async def make_own_inboxes(database: Database, users: tuple[str, ...]) -> None:
    """Make the users' own collections, with the index by which ``oldest`` reads them."""
    for user in users:
        await database[own_inbox(user)].create_index([("error", 1), ("_id", 1)])


async def oldest(
    database: Database, limit: int, users: tuple[str, ...] = ()
) -> tuple[InboxItem, ...]:
    """The oldest requests, bounded in number and size.

    Each of the users has an equal share of the number, and the size goes to the first of them.
    """
    items: list[InboxItem] = []
    size = 0
    for source in (
        _requests(database, limit),
        request_fields.pending(database, limit),
        _job_records(database, limit),
        *(_own_requests(database, limit // len(users), user) for user in users),
    ):
        async for item in source:
            if len(items) >= limit or size >= READ_BYTES_MAX:
                break
            items.append(item)
            size += len(item.body)
    return tuple(items)


async def remove(database: Database, ids: tuple[str, ...]) -> None:
    """Remove requests; one that is gone already is no error."""
    inserted, fields, others = _by_source(ids)
    for collection, documents in others.items():
        plain = [each for each in documents if exactly(each) is each]
        await database[collection].delete_many({"_id": {"$in": plain}})
        for odd in (each for each in documents if exactly(each) is not each):
            await database[collection].delete_one({"_id": exactly(odd)})
    for each in fields:
        await request_fields.answer(database, each, "")
    for identity in inserted:
        try:
            await database.jobs.update_one(
                {"_id": exactly(identity), "reshape.taken": None}, {"$set": {"reshape.taken": True}}
            )
        except WriteError:  # see _mark; the job has a document of its own
            await database.jobs.delete_one({"_id": exactly(identity)})


async def refuse(database: Database, item: str, text: str) -> None:
    """Remove a refused request, and write the reason beside it."""
    inserted, fields, others = _by_source((item,))
    if inserted:
        await remove(database, (item,))
    for each in fields:
        await request_fields.answer(database, each, text)
    for collection, documents in others.items():
        for identity in documents:
            try:
                await database[collection].update_one(
                    {"_id": exactly(identity)}, {"$set": {"error": text}}
                )
            except WriteError:
                await database[collection].delete_one({"_id": exactly(identity)})


def _by_source(ids: tuple[str, ...]) -> tuple[list[object], list[str], dict[str, list[object]]]:
    """Split ids: ``_id`` of inserted records, requests in fields, ``_id`` by inbox."""
    inserted: list[object] = []
    fields: list[str] = []
    others: dict[str, list[object]] = {}
    for each in ids:
        if each.startswith(_INSERTED):
            inserted.append(_decoded(each, _INSERTED))
        elif each.startswith(request_fields.PREFIX):
            fields.append(each)
        elif each.startswith(_OWN):
            user, _, document = each.removeprefix(_OWN).partition(":")
            others.setdefault(own_inbox(user), []).append(decoded(document, ""))
        else:
            others.setdefault("inbox", []).append(_decoded(each, _BY_HAND))
    return inserted, fields, others


async def _requests(database: Database, limit: int) -> AsyncIterator[InboxItem]:
    inbox = database.inbox
    order = [("order", 1), ("_id", 1)]
    async with (
        inbox.find({"error": None}).sort(order).limit(max(1, limit)).batch_size(10) as documents
    ):
        async for document in documents:
            identity, kind = document["_id"], document.get("kind")
            own = isinstance(identity, str) and not identity.startswith(_PREFIXES)
            own = own and "order" in document
            yield InboxItem(
                identity if own else encoded(identity, _BY_HAND),
                kind if isinstance(kind, str) else "",
                _text(document.get("body")),
            )


async def _own_requests(database: Database, limit: int, user: str) -> AsyncIterator[InboxItem]:
    inbox = database[own_inbox(user)]
    async with (
        inbox.find({"error": None}).sort("_id", 1).limit(max(1, limit)).batch_size(10) as documents
    ):
        async for document in documents:
            kind = document.get("kind")
            yield InboxItem(
                encoded(document["_id"], f"{_OWN}{user}:"),
                kind if isinstance(kind, str) else "",
                _text(document.get("body")),
                user,
            )


async def _job_records(database: Database, limit: int) -> AsyncIterator[InboxItem]:
    jobs = database.jobs
    waiting = {"reshape.order": None, "reshape.taken": None}
    async with jobs.find(waiting).sort("_id", 1).limit(max(1, limit)).batch_size(10) as documents:
        async for document in documents:
            identity = document.pop("_id")
            item, key = encoded(identity, _INSERTED), key_of(identity)
            mark = document.get("reshape")
            if isinstance(mark, dict) and mark.get("key") == key:
                del document["reshape"]
            else:
                await _mark(database, identity, key)
            yield InboxItem(item, RequestKind.SUBMIT.value, _text(document))


async def _mark(database: Database, identity: object, key: str) -> None:
    """Mark an inserted record, so that the projection finds it by the id of its job."""
    try:
        await database.jobs.update_one(
            {"_id": exactly(identity), "reshape.key": {"$ne": key}},
            {"$set": {"reshape": {"key": key}}},
        )
    except WriteError:
        return  # its field names cannot be updated; the job gets a document of its own


def _text(body: object) -> str:
    if isinstance(body, str):
        return body
    try:
        return json_util.dumps(body, json_options=json_util.RELAXED_JSON_OPTIONS)
    except (RecursionError, ValueError, TypeError, OverflowError):
        return _UNREADABLE


def key_of(identity: object) -> str:
    """``reshape.key`` of the document with this ``_id``; a copy of the document has another."""
    return request_key(encoded(identity, _INSERTED))


def encoded(identity: object, prefix: str) -> str:
    """Encode an ``_id`` as text."""
    return prefix + json_util.dumps(identity, json_options=request_fields.EXACT)


def _decoded(item: str, prefix: str) -> object:
    if not item.startswith(prefix):
        return item
    return decoded(item, prefix)


def decoded(item: str, prefix: str) -> object:
    """Decode an ``_id`` that ``encoded`` made a text."""
    return json_util.loads(item.removeprefix(prefix), json_options=request_fields.EXACT)
