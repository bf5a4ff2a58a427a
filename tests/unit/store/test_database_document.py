"""docs/database.md describes every collection, with examples that are what the code writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.core.events import HostDrained
from reshape_controller.core.model import JobState
from reshape_controller.records import parse_record
from reshape_controller.store.digest import GENESIS, digest_of, record_of
from reshape_controller.store.mongo.documents import NO_USE, documents_of, fields_of
from reshape_controller.store.mongo.request_fields import WORDS
from reshape_controller.store.mongo.schema import COLLECTIONS
from reshape_controller.store.protocol import RequestKind
from reshape_profiles.loader import parse
from tests.support.store_values import changes, job_row

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "database.md").read_text(encoding="utf-8")
BY_HAND = {"_id", "command", "epochs", "reshape"}
"""Fields of the example of a job that its author wrote, or that hold others."""


def example(collection: str) -> dict[str, Any]:
    """The example below a collection's heading."""
    section = re.split(r"^##+ ", TEXT.partition(f"\n### {collection}\n")[2], flags=re.M)[0]
    found = re.findall(r"^```json\n(.*?)^```$", section, flags=re.M | re.S)
    assert len(found) == 1, f"{collection} has {len(found)} examples"
    loaded: dict[str, Any] = json.loads(found[0])
    return loaded


def shape(value: object) -> object:
    """Names and types, not values."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__


def test_every_collection_has_an_example() -> None:
    for collection in COLLECTIONS:
        assert "_id" in example(collection), collection


@pytest.mark.parametrize(
    "collection", [c for c, *_ in documents_of(changes(7, job_row(1, 7)))], ids=str
)
def test_an_example_of_a_projection_has_the_fields_that_are_written(collection: str) -> None:
    written = {
        name: fields for name, _, fields in reversed(list(documents_of(changes(7, job_row(1, 7)))))
    }
    shown = example(collection)
    del shown["_id"]
    if collection == "gpus":
        for name in (*NO_USE, "use_epoch"):  # written beside the projection
            del shown[name]
    assert shape(shown) == shape(written[collection])


def test_a_gpu_without_a_worker_shows_no_use() -> None:
    written = {collection: fields for collection, _, fields in documents_of(changes(7))}
    assert written["gpus"].items() >= {"worker": None, **NO_USE}.items()


def test_the_example_of_a_job_has_the_fields_that_are_written_below_the_authors_own() -> None:
    shown = example("jobs")
    written = fields_of(job_row(1, 7, state=JobState.RUNNING))
    own = {name.removeprefix("reshape.") for name in written if name.startswith("reshape.")}
    assert set(shown["reshape"]) - {"key", "taken"} == own
    assert set(shown) - BY_HAND == {name for name in written if not name.startswith("reshape.")}


def test_the_example_of_the_log_is_a_record_that_fits_its_digest() -> None:
    shown = example("log")
    record = record_of(shown["body"].encode(), shown["digest"])
    assert digest_of(GENESIS, shown["body"].encode()) == shown["digest"]
    assert (record.seq, record.writer, record.epoch, record.at_s) == (
        shown["_id"],
        shown["writer"],
        shown["epoch"],
        shown["at_s"],
    )
    assert isinstance(record.events[0], HostDrained)


def test_the_record_that_is_inserted_is_one_and_the_requests_are_known() -> None:
    code = re.search(r"insert_one\(\s*(\{.*?\})\s*\)", TEXT, flags=re.S)
    assert code is not None
    assert parse_record(json.loads(re.sub(r",(\s*\})", r"\1", code[1]))).name == "resnet"
    assert RequestKind(example("inbox")["kind"]) is RequestKind.CANCEL
    for word in re.findall(r'"request": "(\w+)"', TEXT):
        assert RequestKind(word)


def test_every_word_of_a_request_field_is_in_the_table_beside_its_collection() -> None:
    table = re.findall(r"^\| `(jobs|hosts|gpus)` \| (.*?) \|", TEXT, flags=re.M)
    told = {(place, word) for place, cell in table for word in re.findall(r"`(\w+)`", cell)}
    assert told == {(place, str(word)) for place, words in WORDS.items() for word in words}


def test_the_profile_that_is_inserted_is_one() -> None:
    code = re.search(r"^profile = (\{.*\})$", TEXT, flags=re.M)
    assert code is not None
    (profile,) = parse({"profile": [json.loads(code[1])]}, "docs").profiles
    assert profile.speed[0].gpus == 1
    assert RequestKind("profile") is RequestKind.PROFILE
