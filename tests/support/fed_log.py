"""A log fed to a fresh engine: it has to command the same, byte for byte. State: none."""

from __future__ import annotations

from collections.abc import Iterable

from reshape_controller.core.engine import Engine
from reshape_controller.core.record import LogRecord
from reshape_controller.scheduling.rounds import redo
from reshape_sidecar import codec


def verify(records: Iterable[LogRecord]) -> None:
    """Feed a whole log. Fails at the first record with other commands."""
    engine = Engine()
    for record in records:
        commands = redo(engine, record).commands
        assert codec.dumps(commands) == codec.dumps(record.commands), f"record {record.seq}"
