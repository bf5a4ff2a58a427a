"""The pauses of the journal: a fault passes, a refusal lasts until a person acts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import cast

import pytest

from reshape_controller.core.record import LogRecord
from reshape_controller.live import journal as module
from reshape_controller.live.journal import REFUSED_RETRY_MAX_S, RETRY_S, Journal, Pauses
from reshape_controller.store.protocol import Store, StoreError, StoreRefused
from tests.support.store_values import records

DENIED = StoreRefused("mongodb://db/x: denies this; remedy: grant readWrite")


def test_a_refusal_is_tried_again_less_and_less_often_and_a_fault_each_second() -> None:
    pauses = Pauses()
    assert [pauses.after(DENIED) for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert pauses.after(StoreError("away")) == RETRY_S
    assert pauses.after(DENIED) == RETRY_S, "it begins again"
    assert REFUSED_RETRY_MAX_S == 30.0


def test_a_refused_login_is_tried_each_second_as_its_file_may_change() -> None:
    pauses = Pauses()
    login = StoreRefused("wrong password", login=True)
    assert [pauses.after(login) for _ in range(5)] == [RETRY_S] * 5


class _Refusing:
    """A store that refuses its first appends."""

    def __init__(self, refusals: int) -> None:
        self.left = refusals
        self.at_s: list[float] = []

    async def append(self, record: LogRecord) -> None:
        self.at_s.append(time.monotonic())
        self.left -= 1
        if self.left >= 0:
            raise DENIED


def _appended(store: _Refusing, stopping: Callable[[], bool]) -> Journal:
    journal = Journal(cast(Store, store))
    asyncio.run(journal.append(records(1)[0], stopping))
    return journal


def test_a_refused_append_is_named_and_succeeds_once_the_right_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.02)
    store = _Refusing(4)
    journal = _appended(store, lambda: False)
    assert (journal.seq, journal.problem) == (1, "")
    gaps_s = [later - first for first, later in zip(store.at_s, store.at_s[1:], strict=False)]
    assert len(gaps_s) == 4
    assert all(gap_s >= 0.02 * 2**n for n, gap_s in enumerate(gaps_s)), gaps_s


def test_a_stop_does_not_wait_for_the_pause_after_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.02)
    monkeypatch.setattr(module.Pauses, "after", lambda self, error: 600.0)
    store = _Refusing(100)
    with pytest.raises(StoreRefused, match="denies this"):
        _appended(store, lambda: len(store.at_s) > 0 and time.monotonic() > store.at_s[0] + 0.1)
    assert len(store.at_s) == 2


class _SnapshotsFail:
    """A store that takes no snapshot until it is mended."""

    def __init__(self) -> None:
        self.mended = False
        self.tries = 0

    async def write_snapshot(self, seq: int, parts: tuple[str, ...]) -> None:
        self.tries += 1
        if not self.mended:
            raise StoreError("no room")


def test_a_failed_snapshot_is_told_and_tried_ever_more_seldom_until_one_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, now_s = _SnapshotsFail(), [1000.0]
    journal = Journal(cast(Store, store))
    journal.seq = module.SNAPSHOT_EVERY
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    async def records_for(seconds: int) -> None:
        for _ in range(seconds):
            await journal.project(None, lambda: ("state",))
            now_s[0] += 1.0

    def tries_in(seconds: int) -> int:
        before = store.tries
        asyncio.run(records_for(seconds))
        return store.tries - before

    assert tries_in(60) == 6  # after 0, 1, 3, 7, 15 and 31 s
    assert "no room" in journal.snapshot_problem
    assert tries_in(6 * 3600) == pytest.approx(6 * 3600 / module.SNAPSHOT_RETRY_MAX_S, abs=6)
    assert journal.since_snapshot() == module.SNAPSHOT_EVERY
    store.mended = True
    tries_in(int(module.SNAPSHOT_RETRY_MAX_S) + 1)
    assert (journal.snapshot_problem, journal.since_snapshot()) == ("", 0)
    store.mended, journal.seq = False, 2 * module.SNAPSHOT_EVERY
    assert tries_in(4) == 3, "the pauses begin again"
