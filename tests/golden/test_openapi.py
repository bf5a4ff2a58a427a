"""The HTTP API offers what it offered: paths, parameters and schemas, by its own description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reshape_controller.http.errors import ErrorBody
from reshape_controller.http.openapi import document
from reshape_controller.http.routes import OPERATIONS
from tests.golden.sentences import without_sentences

FILE = Path(__file__).with_name("openapi.json")


def described() -> Any:
    """The description without its version and sentences."""
    found = without_sentences(document(OPERATIONS, ErrorBody), ("description", "summary"))
    del found["info"]["version"]
    return found


def test_the_description_is_the_committed_one() -> None:
    """A change that is meant: write ``described()`` into the file, one line, keys sorted."""
    assert described() == json.loads(FILE.read_text())
