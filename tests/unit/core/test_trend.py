"""Which reports of a job that trains tell something new: only these change what policies see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.knowledge import NEWS
from reshape_controller.core.model import JobId
from reshape_controller.core.state import State
from reshape_profiles.schema import Profile, SpeedPoint
from reshape_sidecar.wire import Progress
from tests.support.world import World

STEP_S = 2.0
KIND = Profile("kind", speed=(SpeedPoint("V100", 2, STEP_S),))


def world() -> World:
    """A job of two GPUs that has reported twice, just as its profile has it."""
    found = World().boot(4)
    found.event(ev.ProfileRecorded(KIND))
    found.running("job", 2, 1, 2, 4, job_type="kind")
    report(found, 10)
    report(found, 20, after_s=10 * STEP_S)
    return found


def report(
    found: World, step: int, *, after_s: float = 0.0, step_s: float = STEP_S, total: int = 1000
) -> None:
    found.now_s += after_s
    c = found.container("job")
    c.step, c.sequence = step, c.sequence + 1
    progress = Progress(step=step, total_steps=total, seconds_per_step=step_s)
    found.event(ev.SideCarReported(replace(c.observed(), progress=progress)))


def test_a_report_that_was_to_be_expected_leaves_what_policies_see() -> None:
    found = world()
    (before,) = found.engine.snapshot().running
    report(found, 70, after_s=50 * STEP_S)
    (after,) = found.engine.snapshot().running
    assert after is before
    assert found.job("job").progress.step == 70
    assert found.job("job").measured[0].count == 3


def test_a_state_that_was_loaded_shows_the_same() -> None:
    found = world()
    report(found, 70, after_s=50 * STEP_S)
    state = found.engine.state
    fresh = State.load(state.dump())
    assert fresh.snapshot() == found.engine.snapshot()


@pytest.mark.parametrize(
    "told",
    [
        {"step": 60, "after_s": 50 * STEP_S},
        {"step": 80, "after_s": 50 * STEP_S},
        {"step": 70, "after_s": 50 * STEP_S, "step_s": STEP_S * (1.0 + 3.0 * NEWS)},
        {"step": 70, "after_s": 50 * STEP_S, "total": 1001},
    ],
    ids=["slower", "faster", "longer steps", "more steps"],
)
def test_a_report_that_tells_something_new_is_seen(told: dict[str, float]) -> None:
    found = world()
    report(found, **told)  # type: ignore[arg-type]
    (seen,) = found.engine.snapshot().running
    assert seen.progress == found.job("job").progress
    assert seen.progress_at_s == found.now_s
    assert seen.measured == found.job("job").measured


def test_small_differences_add_up_until_they_are_seen() -> None:
    """Each step takes half of what would be news longer; reports are compared with the newest one
    that was seen, not with the last."""
    found, step_s = world(), STEP_S
    seen = []
    for step in range(30, 130, 10):
        step_s *= 1.0 + NEWS / 2.0
        report(found, step, after_s=10 * step_s, step_s=step_s)
        (view,) = found.engine.snapshot().running
        seen.append(view.progress.step)
        own = found.job("job").measured[0].seconds_per_step
        assert view.measured[0].seconds_per_step == pytest.approx(own, rel=NEWS)
    assert 2 <= len(set(seen)) < len(seen)


@pytest.mark.parametrize("why", ["restart", "silence"])
def test_the_first_word_for_long_is_seen_even_if_it_was_to_be_expected(why: str) -> None:
    """Until then the job is frozen, for nobody knows whether it is still there."""
    found = world()
    found.auto = False
    if why == "restart":
        found.event(ev.ControllerStarted(2, "test", found.mechanism, found.limits))
    else:
        found.event(ev.SideCarFellSilent(JobId("job"), 1))
    (view,) = found.engine.snapshot().running
    assert view.frozen
    trend = found.job("job").trend
    report(found, 70, after_s=50 * STEP_S)
    assert found.job("job").trend is trend
    (view,) = found.engine.snapshot().running
    assert not view.frozen


def test_another_process_begins_another_trend() -> None:
    """Though it goes on where the one before was, it may be slower."""
    found = world()
    report(found, 920, after_s=900 * STEP_S)
    before, now = found.job("job").trend, found.container("job")
    assert before is not None
    assert before.progress.step <= 20
    now.saved_step = 920
    found.crash("job")
    found.settle()
    after = found.job("job").trend
    assert after is not None
    assert (after.at_s, after.progress.step) == (found.now_s, found.job("job").progress.step)
    assert after.progress.step >= 920


def test_what_a_type_learned_is_used_once_it_is_news() -> None:
    """Its jobs take two hundredths longer than was believed, and each counts for a tenth. The first
    is used as it is."""
    found = World().boot(4)
    found.event(ev.ProfileRecorded(KIND))
    used = []
    for number in range(14):
        name = f"job{number}"
        found.submit(name, 2, job_type="kind")
        found.plan((name, 2))
        found.settle()
        for step in (10, 20, 30, 40):
            c = found.container(name)
            c.step, c.sequence = step, c.sequence + 1
            progress = Progress(step=step, total_steps=1000, seconds_per_step=STEP_S * 1.02)
            found.event(ev.SideCarReported(replace(c.observed(), progress=progress)))
        learned = found.engine.state.profiles.learned_of("kind")
        used.append(learned.speed)
        assert learned.heard[0].count == number + 1
        found.finish(name)
        found.settle()
    assert used[0][0].seconds_per_step == pytest.approx(STEP_S * 1.002)
    assert used[-1][0].seconds_per_step == pytest.approx(STEP_S * 1.01, rel=0.005)
    assert len(set(used)) == 2
