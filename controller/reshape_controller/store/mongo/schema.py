"""Collections, indexes and validators of the MongoDB store.

Does: makes those that are missing, any number of times. The store does not rely on a validator: not
every server has them, and our own code checks first. ``jobs`` has none, so that a wrong record is
answered with reasons instead of an error of the server.
"""

from __future__ import annotations

from typing import Any

from pymongo.errors import CollectionInvalid, OperationFailure

from reshape_controller.store.mongo.log import Database

INDEXES: dict[str, tuple[list[tuple[str, int]], ...]] = {
    "jobs": (
        [("reshape.id", 1)],
        [("reshape.name", 1), ("reshape.order", 1)],
        [("reshape.state", 1), ("reshape.order", 1)],
        [("reshape.user", 1), ("reshape.order", 1)],
        [("reshape.key", 1)],
        [("reshape.order", 1), ("reshape.taken", 1), ("_id", 1)],
        [("name", 1)],
        [("request", 1)],
    ),
    "gpus": ([("host", 1), ("number", 1)], [("request", 1)]),
    "hosts": ([("request", 1)],),
    "history": ([("job", 1), ("_id", 1)],),
    "decisions": ([("jobs", 1), ("_id", 1)],),
    "inbox": ([("error", 1), ("order", 1), ("_id", 1)],),
    "snapshots": ([("seq", 1), ("part", 1)],),
}
_WHOLE, _TEXT, _NUMBER = ["int", "long"], "string", ["int", "long", "double"]
_REQUIRED: dict[str, dict[str, Any]] = {
    "log": {"_id": _WHOLE, "digest": _TEXT, "body": _TEXT, "writer": _TEXT, "at_s": _NUMBER},
    "snapshots": {"seq": _WHOLE, "part": _WHOLE, "parts": _WHOLE, "digest": _TEXT, "body": _TEXT},
    "gpus": {"_id": _TEXT, "host": _TEXT, "state": _TEXT, "seq": _WHOLE, "body": _TEXT},
    "hosts": {"_id": _TEXT, "gpu_type": _TEXT, "seq": _WHOLE, "body": _TEXT},
    "history": {"seq": _WHOLE, "at_s": _NUMBER, "kind": _TEXT, "text": _TEXT, "body": _TEXT},
    "decisions": {"seq": _WHOLE, "at_s": _NUMBER, "policy": _TEXT, "jobs": "array", "body": _TEXT},
    "speed_profiles": {"_id": _TEXT, "speeds": "array", "seq": _WHOLE, "body": _TEXT},
    "accuracy_profiles": {"_id": _TEXT, "accuracies": "array", "seq": _WHOLE},
    "overhead_profiles": {"_id": _TEXT, "seq": _WHOLE},
}
COLLECTIONS = ("jobs", *_REQUIRED, "inbox", "meta")


async def make_indexes(database: Database) -> None:
    """Make missing indexes, and with them their collections."""
    for collection, indexes in INDEXES.items():
        for keys in indexes:
            await database[collection].create_index(keys)


async def make_validators(database: Database) -> tuple[str, ...]:
    """Put validators on the collections that only Reshape writes; return those that have one now.
    A collection is left as it is if the server or the user's rights do not allow one."""
    made = []
    for collection, required in _REQUIRED.items():
        properties = {name: {"bsonType": kind} for name, kind in required.items()}
        schema = {"bsonType": "object", "required": list(required), "properties": properties}
        options: dict[str, Any] = {
            "validator": {"$jsonSchema": schema},
            "validationLevel": "moderate",
            "validationAction": "error",
        }
        try:
            try:
                await database.create_collection(collection, **options)
            except CollectionInvalid:
                await database.command({"collMod": collection, **options})
        except OperationFailure:
            continue
        made.append(collection)
    return tuple(made)
