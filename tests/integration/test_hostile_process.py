"""Hostile arguments and variables of a record reach a real process as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_bed import Bed, bed
from tests.support.hostile_texts import CANARY, HOSTILE

SHORT = tuple(text for text in HOSTILE if len(text) < 4000)
"""Longer ones are refused with their place."""
TEXTS = (*SHORT, *(f"a{text}" for text in SHORT), *(f"--x={text}" for text in SHORT))[:200]
DUMP = """
import json, os, pathlib, sys
found = {"arguments": sys.argv[2:], "environment": dict(os.environ)}
pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Bed]:
    yield from bed(tmp_path)


def test_200_arguments_and_variables_arrive_as_they_are(daemon: Bed, tmp_path: Path) -> None:
    assert len(TEXTS) == 200
    daemon.up()
    path = tmp_path / "found.json"
    variables = {f"HOSTILE_{number}": text for number, text in enumerate(TEXTS)}
    command = ["python", "hostile.py", str(path), *TEXTS]
    daemon.submit("hostile", DUMP, command=command, env=variables)
    daemon.reaches("hostile", "completed")
    found = json.loads(path.read_text())
    assert found["arguments"] == list(TEXTS)
    assert {name: found["environment"].get(name) for name in variables} == variables
    assert not CANARY.exists()
