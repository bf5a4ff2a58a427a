"""What reports teach: speed, costs, straggling; and pins and wakes as events of the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core import learning
from reshape_controller.core.engine import Step
from reshape_controller.core.knowledge import Measured, measure
from reshape_controller.core.learning import SPEED_WEIGHT
from reshape_controller.core.limits import Limits
from reshape_controller.core.model import JobId, JobSpec, Length, LengthUnit, Mechanism, Stage
from reshape_controller.core.plan import Plan
from reshape_controller.core.profile_book import DEFAULT_OVERHEAD, total_steps
from reshape_controller.core.record import HistoryEntry
from reshape_controller.core.recorded_speeds import default_curve
from reshape_controller.core.state import State
from reshape_controller.core.transaction import Transaction
from reshape_controller.policies import make_policy
from reshape_profiles.schema import Overhead, Profile, SpeedPoint
from reshape_sidecar.wire import PhaseTimes, Progress, TargetProgress
from tests.support.world import World

KIND = Profile("kind", speed=(SpeedPoint("V100", 1, 4.0), SpeedPoint("V100", 2, 2.0)))


def world(**fields: object) -> World:
    """A job of a type with a profile, training on two GPUs."""
    found = World().boot(4)
    found.event(ev.ProfileRecorded(KIND))
    found.running("job", 2, 1, 2, 4, job_type="kind", **fields)
    return found


def report(found: World, step: int, seconds: float, times: PhaseTimes | None = None) -> None:
    c = found.container("job")
    c.step, c.sequence = step, c.sequence + 1
    seen = c.observed()
    progress = Progress(step=step, total_steps=1000, seconds_per_step=seconds)
    seen = replace(seen, progress=progress, times=times or seen.times)
    found.event(ev.SideCarReported(seen))


def test_a_verdict_is_shown_with_its_own_reason_and_kept_by_a_process_that_knows_none() -> None:
    found = world()
    for step, told, shown in (
        (1, ("steps-only", "dropout"), ("steps-only", "dropout")),
        (2, (None, None), ("steps-only", "dropout")),
        (3, ("exact", None), ("exact", None)),
    ):
        c = found.container("job")
        c.step, c.sequence = step, c.sequence + 1
        progress = Progress(step=step, trajectory=told[0], trajectory_reason=told[1])
        found.event(ev.SideCarReported(replace(c.observed(), progress=progress)))
        now = found.job("job").progress
        assert (now.trajectory, now.trajectory_reason) == shown


def kinds(found: World) -> list[str]:
    return [kind for kind in found.kinds if "straggling" in kind]


def test_a_profile_enters_by_an_event_and_is_in_the_snapshot() -> None:
    assert world().engine.snapshot().profiles.of("kind") == KIND


def test_a_measured_speed_moves_what_is_believed_of_the_job_by_half() -> None:
    found = world()
    report(found, 10, 3.0)
    (seen,) = found.job("job").measured
    assert (seen.gpu_type, seen.gpus) == ("V100", 2)
    assert seen.seconds_per_step == pytest.approx(2.0 + SPEED_WEIGHT * 1.0)


def test_a_report_without_a_new_step_teaches_nothing() -> None:
    found = world()
    report(found, 10, 3.0)
    before = found.job("job").measured
    report(found, 10, 9.0)
    assert found.job("job").measured == before


@pytest.mark.parametrize("seconds", [1e308, 1e-320, -1.0, 0.0])
def test_a_speed_that_no_step_can_have_is_not_believed_and_stops_nobody(seconds: float) -> None:
    found = world()
    for step in range(1, 8):
        report(found, step, seconds)
    assert found.job("job").progress.step == 7
    assert found.job("job").measured == ()
    for policy in ("adaptive", "optimus", "paper"):
        make_policy(policy).decide(found.engine.snapshot())


def test_a_start_that_says_to_have_taken_for_ever_is_not_believed() -> None:
    found = world()
    found.auto, before = False, found.engine.state.profiles.overhead("kind")
    found.plan(("job", 4))
    found.container("job").converge(found.engine.desired(JobId("job")))
    report(found, 1, 2.0, PhaseTimes(import_s=1e308, save_s=1e308, stop_s=-1.0))
    found.settle()
    assert found.job("job").stage is Stage.TRAINING
    assert found.engine.state.profiles.overhead("kind") == before


def test_a_type_learns_from_its_jobs_by_a_small_weight() -> None:
    found = world()
    for step in range(1, 4):
        report(found, step, 3.0)
    learned = found.engine.state.profiles.seconds_per_step("kind", "V100", 2)
    assert learned == pytest.approx(2.1)


def test_the_first_job_of_a_type_without_a_profile_is_its_probe_and_the_result_is_kept() -> None:
    found = World().boot(4)
    found.running("job", 2, 1, 2, 4, job_type="new")
    for step in range(1, 3):
        report(found, step, 3.4)
    assert not found.engine.state.profiles.learned_of("new").speed
    report(found, 3, 3.4)
    book = State.load(found.engine.state.dump()).profiles
    assert book.seconds_per_step("new", "V100", 2) == pytest.approx(3.4)
    ratio = default_curve(4) / default_curve(2)
    assert book.seconds_per_step("new", "V100", 4) == pytest.approx(3.4 * ratio)
    assert kinds(found) == []


def test_a_later_job_moves_a_type_without_a_profile_by_the_small_weight_only() -> None:
    found = World().boot(4)
    found.running("job", 2, 1, 2, 4, job_type="new")
    for step in range(1, 14):
        report(found, step, 3.0 if step < 13 else 4.0)
    learned = found.engine.state.profiles.seconds_per_step("new", "V100", 2)
    assert learned == pytest.approx(3.0 + 0.1 * 1.0)


def test_a_job_without_a_type_teaches_nobody_but_itself() -> None:
    found = World().boot(4)
    found.running("job", 2, 1, 2, 4)
    for step in range(1, 14):
        report(found, step, 3.0)
    assert found.job("job").measured[0].seconds_per_step == pytest.approx(3.0)
    assert found.engine.state.profiles.learned == {} or not any(
        known.speed for known in found.engine.state.profiles.learned.values()
    )


def test_the_job_start_is_learned_also_where_the_gpus_are_at_hand() -> None:
    found = World().boot(4)
    found.submit("job", 2, job_type="kind")
    found.new_containers[JobId("job")] = {"slow_init": True}
    found.plan(("job", 2))
    found.now_s += 13.0
    found.container("job").slow_init = False
    found.settle()
    learned = found.engine.state.profiles.learned_of("kind").job_init_s
    assert learned == pytest.approx(DEFAULT_OVERHEAD.job_init_s + 0.3 * 10.0)
    assert "start-cost" in found.kinds


ABSENCES = [
    pytest.param(ev.ControllerStarted(2, "test", Mechanism.SIDECAR, Limits()), id="restarted"),
    pytest.param(ev.ControllerHeldUp(3600.0), id="held up"),
]


@pytest.mark.parametrize("absence", ABSENCES)
def test_a_start_during_which_no_controller_was_there_teaches_not_how_long_it_took(
    absence: ev.Event,
) -> None:
    found = World().boot(4)
    found.submit("job", 2, job_type="kind")
    found.new_containers[JobId("job")] = {"slow_init": True}
    found.plan(("job", 2))
    found.now_s += 3640.0
    found.event(absence)
    found.now_s += 0.5
    found.container("job").slow_init = False
    found.settle()
    assert found.job("job").stage is Stage.TRAINING
    assert found.engine.state.profiles.learned_of("kind").job_init_s is None


@pytest.mark.parametrize("absence", ABSENCES)
def test_what_a_reshape_cost_is_not_known_where_no_controller_was_there_all_the_time(
    absence: ev.Event,
) -> None:
    found = World().boot(4)
    found.running("job", 1, 1, 2, 4)
    found.container("job").saves = False
    found.plan(("job", 2))
    found.now_s += 3600.0
    found.event(absence)
    found.container("job").saves = True
    found.settle()
    assert (found.job("job").stage, len(found.job("job").gpus)) == (Stage.TRAINING, 2)
    assert found.job("job").reshape_cost_s is None
    assert "reshape-cost" not in found.kinds
    found.now_s += 100.0
    found.plan(("job", 4))
    assert found.job("job").reshape_cost_s is not None, "the next one is watched again"


def test_a_straggling_job_is_said_to_straggle_once_and_teaches_its_type_nothing() -> None:
    found = world()
    for step in range(1, 9):
        report(found, step, 9.0)
    assert found.job("job").straggling
    assert kinds(found) == ["straggling"]
    assert found.engine.state.profiles.seconds_per_step("kind", "V100", 2) == 2.0
    for step in range(9, 20):
        report(found, step, 2.0)
    assert not found.job("job").straggling
    assert kinds(found) == ["straggling", "straggling-over"]


def test_the_cost_of_a_reshape_is_measured_and_told_beside_the_prediction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = world()
    entries: list[HistoryEntry] = []
    step = found.engine.step

    def watched(event: ev.Event, now_s: float) -> Step:
        result = step(event, now_s)
        entries.extend(result.history)
        return result

    monkeypatch.setattr(found.engine, "step", watched)
    found.now_s = 100.0
    found.plan(("job", 4))
    assert found.job("job").reshape_cost_s is not None
    (entry,) = [h for h in entries if h.kind == "reshape-cost"]
    assert entry.value == found.job("job").reshape_cost_s
    assert "checkpoint 0.10 s, predicted 1.0 s" in entry.text


def test_measured_saves_move_what_is_believed_of_the_types_costs() -> None:
    found = world()
    found.plan(("job", 4))
    believed = found.engine.state.profiles.overhead("kind")
    expected = DEFAULT_OVERHEAD.checkpoint_s + 0.3 * (0.1 - DEFAULT_OVERHEAD.checkpoint_s)
    assert believed.checkpoint_s == pytest.approx(expected)


def test_a_recorded_overhead_is_where_learning_starts() -> None:
    found = World().boot(4)
    profile = replace(KIND, overhead=Overhead(1.0, 2.0, 3.0, 4.0, 5.0))
    found.event(ev.ProfileRecorded(profile))
    assert found.engine.state.profiles.overhead("kind").checkpoint_s == 3.0


def test_what_was_learned_survives_a_snapshot_of_the_state() -> None:
    found = world()
    for step in range(1, 5):
        report(found, step, 3.0)
    state = State.load(found.engine.state.dump())
    assert state.profiles == found.engine.state.profiles
    assert state.jobs == found.engine.state.jobs


def test_a_pinned_job_has_one_size_until_it_is_unpinned() -> None:
    found = world()
    found.event(ev.PinRequested(JobId("job"), 4, "ann"))
    (view,) = found.engine.snapshot().running
    assert (view.sizes, view.pinned, view.size) == ((4,), True, 2)
    assert found.engine.wants_plan()
    found.event(ev.PinRequested(JobId("job"), None, "ann"))
    (view,) = found.engine.snapshot().running
    assert (view.sizes, view.pinned) == ((1, 2, 4), False)


def test_a_pin_to_a_size_that_the_job_has_not_changes_nothing() -> None:
    found = world()
    found.event(ev.PinRequested(JobId("job"), 3, "ann"))
    assert found.job("job").pinned is None


def test_an_empty_plan_may_ask_to_be_woken() -> None:
    found = world()
    found.engine.apply(Plan(wake_at_s=found.now_s + 60.0), found.now_s)
    assert not found.engine.wants_plan()
    assert found.engine.next_deadline_s() == found.now_s + 60.0
    state = State.load(found.engine.state.dump())
    assert state.wake_at_s == found.now_s + 60.0
    found.wait(59.0)
    assert not found.engine.wants_plan()
    found.wait(2.0)
    assert found.engine.wants_plan()


@pytest.mark.parametrize(
    ("length", "wanted"),
    [
        (None, True),
        (Length(LengthUnit.STEPS, 1000.0), False),
        (Length(LengthUnit.EPOCHS, 10.0), False),
        (Length(LengthUnit.EPOCHS, 9.0), True),
    ],
)
def test_a_length_is_news_if_nobody_knew_it_or_believed_another_one(
    length: Length | None, wanted: bool
) -> None:
    """The profile has 100 steps in an epoch; the process says that it makes 1,000."""
    found = World().boot(4)
    found.event(ev.ProfileRecorded(replace(KIND, steps_per_epoch=100)))
    found.running("job", 2, 2, 4, job_type="kind", length=length)
    job, state = found.job("job"), found.engine.state
    before = replace(job, progress=Progress(step=1))
    seen = replace(found.container("job").observed(), progress=Progress(step=2, total_steps=1000))
    state.plan_wanted = False
    tx = Transaction(state, found.now_s, keeps_history=True)
    learning.add_progress({}, tx, job, seen, before.progress, job.progress)
    assert state.plan_wanted is wanted


def test_the_length_of_a_job_that_becomes_known_is_reason_to_plan_again() -> None:
    found = World().boot(4)
    found.running("job", 2, 2, 4, length=None)
    (view,) = found.engine.snapshot().running
    assert view.growable


def test_the_first_median_at_a_size_replaces_what_means_said_there_and_nowhere_else() -> None:
    known = (Measured("V100", 1, 0.9, 7), Measured("V100", 2, 0.5, 9))
    after = measure(known, "V100", 2, 0.05, prior_s=0.4, weight=0.5, is_median=True)
    assert after == (known[0], Measured("V100", 2, 0.05, 1, is_median=True))
    again = measure(after, "V100", 2, 0.07, prior_s=0.4, weight=0.5, is_median=True)
    assert again[1].seconds_per_step == pytest.approx(0.06)
    assert measure(again, "V100", 2, 9.0, prior_s=0.4, weight=0.5) == again


def test_evaluations_and_ends_of_epochs_are_part_of_a_speed() -> None:
    found = World().boot(4)
    found.running("a", 2, 2)
    c = found.container("a")
    for step in (10, 20):
        c.step = step
        progress = replace(c.observed().progress, seconds_per_step=0.02, apart_s_per_step=0.03)
        c.sequence += 1
        report = replace(c.observed(), sequence=c.sequence, progress=progress)
        found.event(ev.SideCarReported(report))
    (speed,) = found.job("a").measured
    assert speed.is_median
    assert speed.seconds_per_step == pytest.approx(0.05)


@pytest.mark.parametrize("reports", [True, False])
def test_a_member_of_an_array_that_completes_teaches_its_siblings_length_and_speed(
    reports: bool,
) -> None:
    kind = "array-0123"
    found = World().boot(4)
    found.running("a", 2, 2, job_type=kind, length=None)
    sibling = JobSpec("b", ("t",), (2,), job_type=kind)
    assert total_steps(found.engine.state.profiles, sibling, Progress(), None) is None
    found.wait(25.0)
    if reports:
        found.container("a").seconds_per_step = 0.25
        found.train("a", 100)
    found.finish("a")
    book = found.engine.state.profiles
    total = total_steps(book, sibling, Progress(), None)
    assert total == (100.0 if reports else 1.0)
    assert total * book.seconds_per_step(kind, "V100", 2, 1) == pytest.approx(25.0)
    other = replace(sibling, job_type="resnet")
    assert total_steps(book, other, Progress(), None) is None


def test_a_report_of_an_earlier_step_with_a_first_word_about_the_target_adds_no_point() -> None:
    found = World().boot(4)
    found.running("job", 2, 1, 2, length=Length(LengthUnit.TARGET_ACCURACY, 0.9))
    report(found, 10, 1.0)
    c = found.container("job")
    c.sequence += 1
    said = TargetProgress("accuracy", evaluations=((3, 0.5),))
    seen = replace(c.observed(), progress=Progress(step=3, target=said))
    found.event(ev.SideCarReported(seen))
    assert found.job("job").accuracies == ()
    assert found.job("job").progress.step == 10
