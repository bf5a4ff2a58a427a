"""Requests that users write as a field: ``request`` of a document of jobs, hosts or gpus.

Does: reads them, and removes each after its answer unless it was changed meanwhile.

    db.jobs.update_one({"name": "resnet"}, {"$set": {"request": "cancel"}})
    db.jobs.update_one({"name": "resnet"}, {"$set": {"request": "pin", "request_size": 2}})

The daemon removes the field once it has carried out the request; if it refuses it,
``request_error`` says why.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from bson import Regex, json_util
from bson.codec_options import DatetimeConversion
from bson.json_util import JSONMode, JSONOptions
from pymongo.errors import WriteError

from reshape_controller.store.mongo.log import Database
from reshape_controller.store.protocol import InboxItem, RequestKind

Document = dict[str, Any]
PREFIX = "request:"
EXACT = JSONOptions(
    json_mode=JSONMode.CANONICAL, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
"""Options to encode any ``_id`` as text and back, even a date that Python does not have."""
_UNPIN = "unpin"
"""To allow all sizes again: a word of its own, so that a forgotten size does not mean it."""
WORDS: dict[str, tuple[str, ...]] = {
    "jobs": (
        RequestKind.CANCEL,
        "pause",
        RequestKind.RESUME,
        RequestKind.PIN,
        _UNPIN,
        RequestKind.HALT,
    ),
    "hosts": (RequestKind.DRAIN, RequestKind.UNDRAIN),
    "gpus": (RequestKind.CLEAR,),
}
_NOUNS = {"jobs": "job", "hosts": "host", "gpus": "gpu"}
_PROJECTED: dict[str, Document] = {
    "jobs": {"reshape.order": {"$gt": ""}},
    "hosts": {"seq": {"$gt": 0}},
    "gpus": {"seq": {"$gt": 0}},
}
_FIELDS = ("request", "request_size", "request_user")


def exactly(identity: object) -> object:
    """Return the condition for this ``_id``: a document or a pattern in it stands for itself, and
    is no condition of its inserter."""
    return {"$eq": identity} if isinstance(identity, (dict, Regex)) else identity


async def pending(database: Database, limit: int) -> AsyncIterator[InboxItem]:
    """Yield the requests in fields; a value that is no request is refused here."""
    for collection, words in WORDS.items():
        where = {"request": {"$exists": True}, **_PROJECTED[collection]}
        fields = {**dict.fromkeys(_FIELDS, 1), "reshape.id": 1}
        async for document in database[collection].find(where, fields).limit(max(1, limit)):
            identity, word = document["_id"], document.get("request")
            size: Any = document.get("request_size")
            own = document.get("reshape")
            subject = own.get("id") if isinstance(own, dict) else None
            subject = subject if collection == "jobs" else identity
            refusal = _wrong(words, word, size)
            if subject is None:
                refusal = "this document is not a job's; write into the document that has its state"
            if refusal:
                await _answer(database, collection, identity, word, None, refusal)
                continue
            body = {_NOUNS[collection]: subject, "user": document.get("request_user") or ""}
            if word in (RequestKind.PIN, _UNPIN):
                body["size"] = int(size) if word == RequestKind.PIN else None
            key = [collection, identity, word, size if word == RequestKind.PIN else None]
            yield InboxItem(
                PREFIX + json_util.dumps(key, json_options=EXACT),
                RequestKind.PIN.value if word == _UNPIN else RequestKind(str(word)).value,
                json.dumps(body, default=str),
            )


def _wrong(words: tuple[str, ...], word: object, size: object) -> str:
    """The reason to refuse a value; empty if it is a request."""
    if word not in list(words):
        return f"unknown request; use one of: {', '.join(words)}"
    # Some clients write every number as a double.
    whole = isinstance(size, (int, float)) and not isinstance(size, bool) and size % 1 == 0
    if word == RequestKind.PIN and not whole:
        return "request_size is not a whole number; set it to one of the job's optional_gpus"
    return ""


async def answer(database: Database, item: str, refusal: str) -> None:
    """Remove a request of ``pending``; ``refusal`` is the reason if it is refused, else empty."""
    key = json_util.loads(item.removeprefix(PREFIX), json_options=EXACT)
    collection, identity, word, size = key
    await _answer(database, collection, identity, word, size, refusal)


async def _answer(
    database: Database,
    collection: str,
    identity: object,
    word: object,
    size: object,
    refusal: str,
) -> None:
    # Only if the field is unchanged: a newer request is read next time. (A text that is no UTF-8
    # cannot be compared.)
    exact = isinstance(word, str) and "\ufffd" not in word
    where = {"_id": exactly(identity), **({"request": word} if exact else {})}
    if size is not None:
        where["request_size"] = size
    change: Document = {"$unset": dict.fromkeys(_FIELDS, "")}
    if refusal:
        text = word if isinstance(word, str) and len(word) < 100 else type(word).__name__
        change["$set"] = {"request_error": {"request": text, "message": refusal}}
    else:
        change["$unset"]["request_error"] = ""
    try:
        await database[collection].update_one(where, change)
    except WriteError:
        await database[collection].update_one(
            {"_id": exactly(identity)}, {"$unset": {"request": ""}}
        )
