"""Logs that real daemons of 25 November 2026 (commit a1ec80c) wrote: this version does the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.core.engine import Engine
from reshape_controller.core.record import LogRecord
from reshape_controller.scheduling.rounds import redo
from reshape_controller.store.digest import body_of, record_of
from reshape_sidecar import codec

LOGS = sorted(Path(__file__).with_name("logs").glob("*.jsonl"))
KINDS = {
    "sidecar": {"CancelRequested", "ContainerGone", "ControllerStarted", "HaltRequested"}
    | {"JobSubmitted", "ReleaseVerified", "ResumeRequested", "SideCarReported"},
    "terminate": {"CancelRequested", "ContainerGone", "JobSubmitted", "SideCarReported"},
    "workers": {"CancelRequested", "JobSubmitted", "ReleaseVerified", "SideCarReported"},
}
"""The events that each log must have, so that it shows something."""


def bodies(path: Path) -> list[str]:
    """The records, as the store has them."""
    return path.read_text(encoding="utf-8").splitlines()


def test_the_logs_hold_what_they_are_named_for() -> None:
    assert {path.stem for path in LOGS} == set(KINDS)
    for path in LOGS:
        records = [record_of(body.encode(), "") for body in bodies(path)]
        kinds = {codec.tag_of(type(event)) for record in records for event in record.events}
        assert KINDS[path.stem] <= kinds, path.name
        commands = {codec.tag_of(type(each)) for record in records for each in record.commands}
        assert {"CheckRelease", "Launch", "SetDesired"} <= commands, path.name


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_every_record_is_read_and_written_byte_for_byte(path: Path) -> None:
    for body in bodies(path):
        assert body_of(record_of(body.encode(), "")).decode() == body


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_fresh_engine_commands_the_same_byte_for_byte(path: Path) -> None:
    engine = Engine()
    differing = []
    for body in bodies(path):
        record = codec.loads(LogRecord, body)
        commands = redo(engine, record).commands
        if codec.dumps(commands) != codec.dumps(record.commands):
            differing.append(record.seq)
    assert differing == []
