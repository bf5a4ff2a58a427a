"""A replay plays the newcomer's imports: its donor trains on meanwhile, as on a real cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.replay.shell import LIMITS, Result, limits_of
from tests.support.replay_bed import FREE, ROUND, job, run, scene

IMPORT_S = 30.0
JOBS = [job("elastic", 0.0, 2000, (2, 4)), job("small", 1000.0, 100, (2,))]


def played(import_s: float) -> Result:
    """A job on four GPUs gives two to a newcomer whose imports take ``import_s``."""
    given = scene(JOBS, costs=replace(ROUND, import_s=import_s))
    return run(given, "paper", keep=True)


def at_s(result: Result, kind: str, name: str) -> float:
    """Return the time of the first history entry of a kind about a job of this name."""
    return next(entry.at_s for entry in result.events if entry.kind == kind and name in entry.job)  # type: ignore[operator]


@pytest.mark.parametrize(("import_s", "waits_s"), [(IMPORT_S, IMPORT_S), (90.0, 60.0)])
def test_the_donor_is_asked_after_the_imports_or_after_the_limit_of_the_wait(
    import_s: float, waits_s: float
) -> None:
    result = played(import_s)
    initialised_s = at_s(result, "initialized", "small")
    assert at_s(result, "shrink-asked", "elastic") == pytest.approx(initialised_s + waits_s)


def test_a_start_waits_for_what_is_left_of_the_imports() -> None:
    result = played(90.0)
    imported_s = at_s(result, "initialized", "small") + 90.0
    first_step_s = at_s(result, "first-step", "small")
    assert at_s(result, "granted", "small") < imported_s
    assert first_step_s == pytest.approx(imported_s + ROUND.overhead.process_init_s)


def test_without_a_time_of_imports_a_replay_has_the_limits_that_it_had() -> None:
    assert limits_of(FREE) is LIMITS
    assert not [entry for entry in played(0.0).events if entry.kind == "imports-awaited"]
