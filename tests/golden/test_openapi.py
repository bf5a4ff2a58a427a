"""The HTTP API offers what it offered: paths, parameters and schemas, by its own description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reshape_controller.http.errors import ErrorBody
from reshape_controller.http.openapi import document
from reshape_controller.http.routes import OPERATIONS

FILE = Path(__file__).with_name("openapi.json")


def without_sentences(value: Any) -> Any:
    """The value without what is for people."""
    if isinstance(value, list):
        return [without_sentences(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: without_sentences(each)
        for name, each in value.items()
        if not (name in ("description", "summary") and isinstance(each, str))
    }


def described() -> Any:
    """The description without its version and sentences."""
    found = without_sentences(document(OPERATIONS, ErrorBody))
    del found["info"]["version"]
    return found


def test_the_description_is_the_committed_one() -> None:
    """A change that is meant: write ``described()`` into the file, one line, keys sorted."""
    assert described() == json.loads(FILE.read_text())
