"""Documents that somebody may insert and that are no job record, for tests of the inbox."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import bson
from bson import Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

LENIENT: CodecOptions[dict[str, Any]] = CodecOptions(
    unicode_decode_error_handler="replace", datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
"""To read them back with."""


def fresh(name: str) -> dict[str, Any] | RawBSONDocument:
    """The document of this name, to be inserted as it is (the driver adds an ``_id`` to it)."""
    found = STRANGE[name]
    return found if isinstance(found, RawBSONDocument) else dict(found)


def _deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


STRANGE: dict[str, Mapping[str, Any]] = {
    "nothing": {},
    "operators as values": {"name": {"$ne": None}, "command": {"$where": "1"}},
    "dotted keys": {"a.b": 1, "name": "x"},
    "wrong types": {"name": 1, "command": 2, "optional_gpus": "3"},
    "not a number": {"name": "x", "target_accuracy": float("nan"), "epochs": float("inf")},
    "types of its own": {
        "name": ObjectId(),
        "epochs": Int64(2**40),
        "seed": Decimal128("1.5"),
        "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        "raw": b"\xff\x00",
    },
    "deep nesting": {"name": "x", "deep": _deep(90)},
    "our own field as something else": {"name": "x", "reshape": 5},
    "our own field with a seq": {"name": "x", "reshape": {"seq": 5}},
    "our own field from the future": {"name": "x", "reshape": {"seq": 10**9, "id": "y"}},
    "operators as keys": {"$set": {"name": "x"}},
    "as much as there can be": {"name": "x", "rest": "y" * (16 * 1024 * 1024 - 100)},
    "our own field": {"name": "x", "reshape": {"key": "zzz"}},
    "an id that is text": {"_id": "jobs:1", "name": "x"},
    "an id that is a document": {"_id": {"a": 1}, "name": "x"},
    "an id that is a number": {"_id": 7.5, "name": "x"},
    "an id that is not equal to itself": {"_id": float("nan"), "name": "x"},
    "an id that no calendar has": {"_id": DatetimeMS(2**62), "name": "x"},
    "an id that is no UTF-8": RawBSONDocument(
        bson.encode({"_id": "not-utf8"}).replace(b"not", b"\xff\xfe\xfd")
    ),
    "fields that are ours to write": {
        "name": "x",
        "state": "running",
        "errors": 7,
        "gpu_ids": {"$each": [1]},
        "request": {"$where": "1"},
        "request_size": float("inf"),
    },
    "empty names": {"": {"": [{"": None}]}, "name": ""},
    "a moment that no calendar has": {"name": "x", "at": DatetimeMS(2**62)},
    "text that is no UTF-8": RawBSONDocument(
        bson.encode({"_id": ObjectId(), "name": "not-utf8"}).replace(b"not", b"\xff\xfe\xfd")
    ),
    "patterns, programs and limits": {
        "name": Regex("^a"),
        "command": Code("while (true) {}"),
        "optional_gpus": [MinKey(), MaxKey(), Timestamp(1, 1)],
        "user": DBRef("users", 1),
    },
    "a list as long as it is useless": {"name": "x", "optional_gpus": [1] * 200_000},
    "much": {"name": "x" * 3_000_000},
}
