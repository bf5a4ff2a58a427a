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
