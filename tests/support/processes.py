"""Processes of this machine, for tests that leave none. Never: waits for one. State: none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def naming(text: str) -> Iterator[int]:
    """Ids of the processes that have ``text`` in their command line."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if text.encode() in command.read_bytes():
                yield int(command.parent.name)
