"""The agent's word about its zygote: what a report says, and how long a start waits for it."""

from __future__ import annotations

import pytest

from reshape_sidecar import limits
from reshape_sidecar.agent import standby
from reshape_sidecar.init.values import InitStatus, ZygoteProcess
from reshape_sidecar.wire import Standby, StandbyState

IMPORTS_SINCE_S = 100.0
IMPORTING = ZygoteProcess(StandbyState.STARTING, "", 7, 70, IMPORTS_SINCE_S)


def status(zygote: ZygoteProcess | None) -> InitStatus:
    return InitStatus(1, 10, zygote=zygote)


def test_a_report_says_that_a_zygote_comes_before_init_has_started_it() -> None:
    none_yet = status(ZygoteProcess(StandbyState.NONE))
    coming = standby.observed(none_yet, None, is_asked=True)
    assert coming == Standby(StandbyState.STARTING)
    assert standby.observed(none_yet, None, is_asked=False) == Standby(StandbyState.NONE)


@pytest.mark.parametrize(
    "zygote",
    [
        IMPORTING,
        ZygoteProcess(StandbyState.READY, "", 7, 70, IMPORTS_SINCE_S),
        ZygoteProcess(StandbyState.NONE, "the zygote ended with exit code 1"),
        ZygoteProcess(StandbyState.OFF, "it was started 4 times"),
    ],
)
def test_a_report_says_what_init_says_of_a_zygote_that_was_started(zygote: ZygoteProcess) -> None:
    said = standby.observed(status(zygote), None, is_asked=True)
    assert said == Standby(zygote.state, zygote.reason)


def test_an_init_without_zygotes_and_an_attempt_without_one_announce_no_imports() -> None:
    assert standby.observed(status(None), None, is_asked=True) is None
    none_yet = status(ZygoteProcess(StandbyState.NONE))
    off = standby.observed(none_yet, "switched off", is_asked=False)
    assert off == Standby(StandbyState.OFF, "switched off")


def test_a_start_waits_for_slow_imports_from_the_time_that_it_was_asked_for() -> None:
    asked_at_s = IMPORTS_SINCE_S + limits.ZYGOTE_IMPORT_S + 5.0  # after a controller's whole wait
    last_s = asked_at_s + limits.ZYGOTE_IMPORT_S
    assert standby.is_importing(status(IMPORTING), asked_at_s, asked_at_s)
    assert standby.is_importing(status(IMPORTING), asked_at_s, last_s - 1.0)
    assert not standby.is_importing(status(IMPORTING), asked_at_s, last_s)


def test_a_start_waits_for_a_zygote_that_was_started_after_the_request() -> None:
    last_s = IMPORTS_SINCE_S + limits.ZYGOTE_IMPORT_S
    assert standby.is_importing(status(IMPORTING), 0.0, last_s - 1.0)
    assert not standby.is_importing(status(IMPORTING), 0.0, last_s)


@pytest.mark.parametrize("state", [StandbyState.NONE, StandbyState.READY, StandbyState.OFF])
def test_a_start_waits_for_no_zygote_that_imports_nothing(state: StandbyState) -> None:
    assert not standby.is_importing(status(ZygoteProcess(state)), 0.0, 0.0)
    assert not standby.is_importing(status(None), 0.0, 0.0)
