"""The inbox in MongoDB: requests of the API, and what people insert by hand.

Does: takes requests in, hands them out oldest first, and takes them out again. Never: reads what
is in one, or fails over one, whatever it is. State: none.

By hand: a document in ``jobs`` (a job record), a field ``request`` (``mongo_fields``), or one in
``inbox`` with ``kind`` and ``body``, to which ``error`` is added when it is refused. One in
``jobs`` stays there and becomes the job's document; ``reshape.key`` marks that it was seen,
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
from reshape_controller.store.protocol import InboxItem, RequestKind, StoreError, request_key

Document = dict[str, Any]
_INSERTED = "jobs:"
_BY_HAND = "inbox:"
_PREFIXES = (_INSERTED, _BY_HAND, request_fields.PREFIX)
"""Of the ids of documents that have no id of ours; the ``_id`` follows as JSON."""
_UNREADABLE = '"a document that is nested too deeply"'


async def put(database: Database, item: InboxItem) -> None:
    """Leave a request. One of the same id that waits is kept."""
    if not item.id or item.id.startswith(_PREFIXES):
        raise StoreError(f"a request cannot have the id {item.id!r}; remedy: choose another")
    document = {"_id": item.id, "order": ObjectId(), "kind": item.kind, "body": item.body}
    try:
        await database.inbox.insert_one(document)
    except DuplicateKeyError:
        return


async def oldest(database: Database, limit: int) -> tuple[InboxItem, ...]:
    """The oldest requests, bounded in number and size."""
    found: list[InboxItem] = []
    size = 0
    for source in (
        _requests(database, limit),
        request_fields.asked(database, limit),
        _inserted(database, limit),
    ):
        async for item in source:
            if len(found) >= limit or size >= READ_BYTES_MAX:
                break
            found.append(item)
            size += len(item.body)
    return tuple(found)


async def remove(database: Database, ids: tuple[str, ...]) -> None:
    """Take requests out; those that are gone already are no error."""
    inserted, fields, others = _sorted(ids)
    if others:
        await database.inbox.delete_many({"_id": {"$in": others}})
    for each in fields:
        await request_fields.answer(database, each, "")
    for identity in inserted:
        try:
            await database.jobs.update_one(
                {"_id": identity, "reshape.taken": None}, {"$set": {"reshape.taken": True}}
            )
        except WriteError:  # see _mark; the job has a document of its own
            await database.jobs.delete_one({"_id": identity})


async def refuse(database: Database, item: str, text: str) -> None:
    """Take a request out of which nothing comes, and write the reason beside it."""
    inserted, fields, others = _sorted((item,))
    if inserted:
        await remove(database, (item,))
    for each in fields:
        await request_fields.answer(database, each, text)
    for identity in others:
        try:
            await database.inbox.update_one({"_id": identity}, {"$set": {"error": text}})
        except WriteError:
            await database.inbox.delete_one({"_id": identity})


def _sorted(ids: tuple[str, ...]) -> tuple[list[object], list[str], list[object]]:
    """The ``_id`` of inserted records, requests in fields, the ``_id`` of those in ``inbox``."""
    inserted, fields, others = [], [], []
    for each in ids:
        if each.startswith(_INSERTED):
            inserted.append(_decoded(each, _INSERTED))
        elif each.startswith(request_fields.PREFIX):
            fields.append(each)
        else:
            others.append(_decoded(each, _BY_HAND))
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


async def _inserted(database: Database, limit: int) -> AsyncIterator[InboxItem]:
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
    """So that the projection finds the document by the id of the job that came of it."""
    try:
        await database.jobs.update_one(
            {"_id": identity, "reshape.key": {"$ne": key}}, {"$set": {"reshape": {"key": key}}}
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
    """What ``reshape.key`` is in the document of this ``_id``, and in no copy of it."""
    return request_key(encoded(identity, _INSERTED))


def encoded(identity: object, prefix: str) -> str:
    """An ``_id`` as text."""
    return prefix + json_util.dumps(identity, json_options=request_fields.EXACT)


def _decoded(item: str, prefix: str) -> object:
    if not item.startswith(prefix):
        return item
    return decoded(item, prefix)


def decoded(item: str, prefix: str) -> object:
    """The ``_id`` that ``encoded`` made a text of."""
    return json_util.loads(item.removeprefix(prefix), json_options=request_fields.EXACT)
