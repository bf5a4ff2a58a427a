"""Requests that people write as a field: ``request`` of a document of ``jobs`` or ``hosts``.

Does: hands them out, and takes each out again unless it was changed meanwhile. Never: carries one
out, or loses one that came while another was answered. State: none.

    db.jobs.update_one({"name": "resnet"}, {"$set": {"request": "cancel"}})

The field is gone when the daemon has done what it says; else ``request_error`` says why not.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from bson import json_util
from pymongo.errors import WriteError

from reshape_controller.store.mongo_log import Database
from reshape_controller.store.protocol import InboxItem, RequestKind

Document = dict[str, Any]
PREFIX = "request:"
_WORDS: dict[str, tuple[RequestKind, ...]] = {
    "jobs": (RequestKind.CANCEL, RequestKind.HALT, RequestKind.RESUME),
    "hosts": (RequestKind.DRAIN, RequestKind.UNDRAIN),
}
_PROJECTED: dict[str, Document] = {
    "jobs": {"reshape.order": {"$gt": ""}},
    "hosts": {"seq": {"$gt": 0}},
}


async def asked(database: Database, limit: int) -> AsyncIterator[InboxItem]:
    """What is asked in fields now. Values that are no request are answered here."""
    for collection, words in _WORDS.items():
        where = {"request": {"$exists": True}, **_PROJECTED[collection]}
        fields = {"request": 1, "request_user": 1, "reshape.id": 1}
        async for document in database[collection].find(where, fields).limit(max(1, limit)):
            identity, word = document["_id"], document.get("request")
            if word not in list(words):
                known = ", ".join(words)
                await _answer(database, collection, identity, word, f"no request; one of: {known}")
                continue
            subject = document["reshape"]["id"] if collection == "jobs" else identity
            noun = "job" if collection == "jobs" else "host"
            body = {noun: subject, "user": document.get("request_user") or ""}
            place = [collection, identity, word]
            yield InboxItem(
                PREFIX + json_util.dumps(place, json_options=json_util.CANONICAL_JSON_OPTIONS),
                str(word),
                json.dumps(body, default=str),
            )


async def answer(database: Database, item: str, refusal: str) -> None:
    """Take a request out that ``asked`` gave; ``refusal`` says why nothing came of it."""
    options = json_util.CANONICAL_JSON_OPTIONS
    collection, identity, word = json_util.loads(item.removeprefix(PREFIX), json_options=options)
    await _answer(database, collection, identity, word, refusal)


async def _answer(
    database: Database, collection: str, identity: object, word: object, refusal: str
) -> None:
    # Only while it is still what was asked: a newer request waits for its own turn.
    where = {"_id": identity, **({"request": word} if isinstance(word, str) else {})}
    change: Document = {"$unset": {"request": "", "request_user": ""}}
    if refusal:
        shown = word if isinstance(word, str) and len(word) < 100 else type(word).__name__
        change["$set"] = {"request_error": {"request": shown, "message": refusal}}
    else:
        change["$unset"]["request_error"] = ""
    try:
        await database[collection].update_one(where, change)
    except WriteError:
        await database[collection].update_one({"_id": identity}, {"$unset": {"request": ""}})
