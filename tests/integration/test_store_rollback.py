"""Small versions of two campaigns: states of a damaged store, and kill -9 of daemons."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support import crash_states, daemon_kills


def test_every_damaged_store_is_whole_or_refused_or_lost_only_what_its_mark_had_not_noted(
    tmp_path: Path,
) -> None:
    found = asyncio.run(crash_states.campaign(140, 1, tmp_path))
    outcomes = found["outcomes"]
    assert isinstance(outcomes, dict)
    assert outcomes["-wal removed"] == {"refused by the mark": 20}
    assert set(outcomes["flipped in main"]) == {"refused as damaged", "whole"}


def test_no_daemon_that_was_killed_is_refused_its_store(tmp_path: Path) -> None:
    found = daemon_kills.campaign(8, 1, tmp_path / "homes")
    assert found["false refusals"] == 0
    assert found["requests acknowledged"] > 8
