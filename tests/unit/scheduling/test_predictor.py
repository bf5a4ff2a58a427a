"""The sums of section III.C by hand, for each mechanism, and what counts as training left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from reshape_controller.core.knowledge import Curve, Learned, Measured
from reshape_controller.core.model import JobId, JobState, Length, LengthUnit, Mechanism
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.core.profile_book import DEFAULT_WORK_S, ProfileBook
from reshape_controller.scheduling.cluster_index import ClusterIndex
from reshape_controller.scheduling.predictor import Predictor, to_ms
from reshape_profiles.schema import Profile
from reshape_sidecar.wire import Progress
from tests.property.random_clusters import clusters
from tests.support.clusters import COSTS, Cluster
from tests.support.gate import examples


def one(snapshot: Snapshot) -> JobView:
    return (*snapshot.running, *snapshot.queued)[0]


def test_a_newcomer_is_start_training_and_end() -> None:
    """Table IV, V100: 1000 * 0.14 s of training on two GPUs."""
    snapshot = Cluster(overhead=COSTS).waits("job", speed={1: 0.18, 2: 0.14}).snapshot()
    phases = Predictor(snapshot).incoming(one(snapshot), "V100", 2).phases
    wanted: tuple[tuple[str, object], ...] = (
        ("job start", 10.0),
        ("release", 0.0),
        ("process start", 20.0),
        ("training", pytest.approx(140.0)),
        ("last checkpoint", 2.0),
        ("last process stop", 3.0),
        ("last job stop", 5.0),
    )
    assert phases == wanted


def test_an_initialised_newcomer_needs_no_job_start() -> None:
    snapshot = Cluster(overhead=COSTS).waits("job", on="a", speed={2: 1.0}).snapshot()
    assert Predictor(snapshot).incoming(one(snapshot), "V100", 2).total_s == 1030.0


def test_a_running_job_that_is_left_alone_is_training_and_end() -> None:
    snapshot = Cluster(overhead=COSTS).runs("job", 2, speed={2: 1.0}).snapshot()
    assert Predictor(snapshot).unchanged(one(snapshot)).total_s == 1010.0


def test_a_job_that_loses_its_steps_repeats_them_at_its_new_size() -> None:
    """300 of 1000 steps are done, the last checkpoint holds 100, and 10 s have passed since."""
    cluster = Cluster(overhead=COSTS).runs(
        "job", 2, speed={2: 2.0, 4: 1.0}, loses=True, progress=Progress(300, checkpoint_step=100)
    )
    snapshot = replace(cluster.snapshot(), now_s=cluster.now_s + 10.0)
    predictor, job = Predictor(snapshot), one(snapshot)
    phases = predictor.reshaped(job, "V100", 4).phases
    assert phases[3:5] == (("repeated steps", 205.0), ("training", 695.0))
    assert predictor.reshaped_by_size_s(job, "V100")[4] == pytest.approx(
        predictor.reshaped(job, "V100", 4).total_s
    )
    assert predictor.unchanged(job).total_s == 1400.0  # nothing is lost if it is left alone


def test_a_job_that_saves_repeats_nothing() -> None:
    cluster = Cluster(overhead=COSTS).runs("job", 2, progress=Progress(300))
    snapshot = cluster.snapshot()
    assert Predictor(snapshot).lost_steps(one(snapshot)) == 0.0


def test_a_reshape_in_place_is_checkpoint_stop_and_start() -> None:
    snapshot = Cluster(overhead=COSTS).runs("job", 2, speed={2: 2.0, 4: 1.0}).snapshot()
    phases = Predictor(snapshot).reshaped(one(snapshot), "V100", 4).phases
    assert phases[:4] == (
        ("checkpoint", 2.0),
        ("process stop", 3.0),
        ("process start", 20.0),
        ("training", 1000.0),
    )


@pytest.mark.parametrize("moves", [False, True])
def test_a_restart_adds_the_end_and_start_of_the_job(moves: bool) -> None:
    """The mechanism ``terminate``, and any move to another host."""
    mechanism = Mechanism.SIDECAR if moves else Mechanism.TERMINATE
    cluster = Cluster(overhead=COSTS, mechanism=mechanism).runs("job", 2, speed={2: 2.0, 4: 1.0})
    predictor = Predictor(cluster.snapshot())
    job = one(cluster.snapshot())
    assert predictor.reshape_s(job, moves=moves) == 40.0
    assert predictor.reshaped(job, "V100", 4, moves=moves).total_s == 40.0 + 1000.0 + 10.0


def test_gpus_are_released_after_checkpoint_and_stop_or_with_the_container() -> None:
    for mechanism, seconds in ((Mechanism.SIDECAR, 5.0), (Mechanism.TERMINATE, 10.0)):
        cluster = Cluster(overhead=COSTS, mechanism=mechanism).runs("job", 2)
        assert Predictor(cluster.snapshot()).release_s(one(cluster.snapshot())) == seconds


def test_steps_since_the_last_report_are_carried_on() -> None:
    """600 of 1000 steps at the last report, 50 s ago, at 2 s each: 375 are left."""
    cluster = Cluster().runs(
        "job", 2, speed={2: 2.0}, progress=Progress(step=600), progress_at_s=9_950.0
    )
    predictor = Predictor(cluster.snapshot())
    assert predictor.remaining_steps(one(cluster.snapshot())) == 375.0


def test_a_job_is_never_past_its_end() -> None:
    cluster = Cluster().runs("job", 2, progress=Progress(step=999), progress_at_s=0.0)
    assert Predictor(cluster.snapshot()).remaining_steps(one(cluster.snapshot())) == 0.0


@pytest.mark.parametrize(
    ("length", "progress", "steps"),
    [
        (Length(LengthUnit.STEPS, 500.0), Progress(), 500.0),
        (Length(LengthUnit.EPOCHS, 3.0), Progress(steps_per_epoch=40), 120.0),
        (Length(LengthUnit.EPOCHS, 3.0), Progress(steps_per_epoch=40, total_steps=90), 90.0),
        (Length(LengthUnit.EPOCHS, 3.0), Progress(), 300.0),
        (None, Progress(total_steps=70), 70.0),
        (None, Progress(), None),
        (Length(LengthUnit.TARGET_ACCURACY, 0.5), Progress(), None),
        (Length(LengthUnit.TARGET_ACCURACY, 0.5), Progress(total_steps=70), 70.0),
    ],
)
def test_the_length_is_from_the_best_that_is_known(
    length: Length | None, progress: Progress, steps: float | None
) -> None:
    """The profile says 100 steps per epoch; a job's own report counts more."""
    snapshot = Cluster().waits("job", progress=progress).snapshot()
    job = replace(one(snapshot), spec=replace(one(snapshot).spec, length=length))
    book = snapshot.profiles.with_profile(
        replace(snapshot.profiles.profiles["type of job"], steps_per_epoch=100)
    )
    assert Predictor(replace(snapshot, profiles=book)).total_steps(job) == steps


def test_a_batch_other_than_the_profiles_changes_steps_and_their_time_in_proportion() -> None:
    snapshot = Cluster().waits("job", speed={1: 1.0}).snapshot()
    profile = replace(
        snapshot.profiles.profiles["type of job"], steps_per_epoch=100, global_batch=32
    )
    snapshot = replace(snapshot, profiles=snapshot.profiles.with_profile(profile))
    spec = replace(one(snapshot).spec, global_batch=64, length=Length(LengthUnit.EPOCHS, 2.0))
    job = replace(one(snapshot), spec=spec)
    predictor = Predictor(snapshot)
    assert predictor.total_steps(job) == 100.0
    assert predictor.step_s(job, "V100", 1) == 2.0


def test_a_target_accuracy_becomes_steps_by_the_jobs_curve_else_by_that_of_its_type() -> None:
    """1 - 0.8 = 1 / (0.01 k + 1) + 0.1, so 0.01 k + 1 = 10 and k = 900."""
    snapshot = Cluster().runs("job", 2, speed={2: 1.0}).snapshot()
    spec = replace(one(snapshot).spec, length=Length(LengthUnit.TARGET_ACCURACY, 0.8))
    job = replace(one(snapshot), spec=spec)
    curve = Curve(0.01, 1.0, 0.1, 9)
    assert Predictor(snapshot).total_steps(replace(job, curve=curve)) == pytest.approx(900.0)
    book = snapshot.profiles.with_learned(Learned("type of job", curve=curve))
    assert Predictor(replace(snapshot, profiles=book)).total_steps(job) == pytest.approx(900.0)
    unreachable = replace(curve, b2=0.3)
    assert Predictor(snapshot).total_steps(replace(job, curve=unreachable)) is None


def test_a_job_of_unknown_length_has_a_stated_amount_of_training_left() -> None:
    snapshot = Cluster().runs("job", 2, left=None, speed={1: 2.0, 2: 1.0}).snapshot()
    predictor = Predictor(snapshot)
    assert predictor.train_s(one(snapshot), "V100", 1) == pytest.approx(DEFAULT_WORK_S)
    assert predictor.train_s(one(snapshot), "V100", 2) == pytest.approx(DEFAULT_WORK_S / 2)


def test_a_job_under_way_to_another_size_counts_with_the_reshape() -> None:
    cluster = Cluster(overhead=COSTS)
    cluster.runs("job", 2, speed={2: 1.0}, frozen=True, trains=False, state=JobState.ADJUSTING)
    assert Predictor(cluster.snapshot()).unchanged(one(cluster.snapshot())).total_s == 1035.0


def test_a_newcomer_that_was_promised_gpus_counts_with_its_start() -> None:
    cluster = Cluster(overhead=COSTS)
    cluster.runs("job", 2, speed={2: 1.0}, frozen=True, trains=False, state=JobState.SUBMITTED)
    assert Predictor(cluster.snapshot()).unchanged(one(cluster.snapshot())).total_s == 1040.0


def test_measured_speeds_of_a_job_count_more_than_its_profile() -> None:
    """Measured 3 s on two GPUs where the profile says 2: it is slower by half at each size."""
    measured = (Measured("V100", 2, 3.0, 9),)
    cluster = Cluster().runs("job", 2, speed={1: 4.0, 2: 2.0, 4: 1.0}, measured=measured)
    predictor, job = Predictor(cluster.snapshot()), one(cluster.snapshot())
    assert [predictor.step_s(job, "V100", size) for size in (1, 2, 4)] == pytest.approx(
        [6.0, 3.0, 1.5]
    )


@given(snapshot=clusters())
@settings(max_examples=examples(100), deadline=None)
def test_the_quick_totals_are_the_sums_of_the_phases(snapshot: Snapshot) -> None:
    predictor = Predictor(snapshot)
    for job in snapshot.running:
        end, is_moment = predictor.end_of(job)
        left_s = end / 1000 - (snapshot.now_s if is_moment else 0.0)
        assert left_s == pytest.approx(predictor.unchanged(job).total_s, abs=1e-3)
        for moves in (False, True):
            totals = predictor.reshaped_by_size_s(job, job.gpu_type, moves=moves)
            for size, total_s in totals.items():
                phases = predictor.reshaped(job, job.gpu_type, size, moves=moves)
                assert total_s == pytest.approx(phases.total_s)
    for job in snapshot.queued:
        for size in job.sizes:
            phases = predictor.incoming(job, "V100", size, 7.0)
            assert predictor.incoming_s(job, "V100", size, 7.0) == pytest.approx(phases.total_s)


def test_without_any_profile_the_introductions_curve_and_local_costs_stand_in() -> None:
    snapshot = replace(Cluster().waits("job").snapshot(), profiles=ProfileBook())
    predictor = Predictor(snapshot)
    one_gpu = predictor.step_s(one(snapshot), "V100", 1)
    assert one_gpu / predictor.step_s(one(snapshot), "V100", 2) == pytest.approx(1.7, abs=1e-3)
    assert one_gpu / predictor.step_s(one(snapshot), "V100", 4) == pytest.approx(2.4, abs=1e-3)
    assert "assumed" in predictor.estimate(one(snapshot)).cost.source


def test_costs_of_the_default_type_stand_in_for_types_without_their_own() -> None:
    book = ProfileBook().with_profile(Profile("default", overhead=COSTS))
    book = book.with_profile(Profile("typed"))
    assert book.overhead("typed") == book.overhead(None) == COSTS


def test_a_queued_job_that_trained_before_is_not_mistaken_for_a_fresh_one_of_its_kind() -> None:
    """Equal records; only the step that the second has reached tells them apart."""
    cluster = Cluster().waits("job")
    fresh = cluster.snapshot().queued[0]
    resumed = replace(fresh, id=JobId("resumed"), progress=Progress(step=900))
    predictor = Predictor(cluster.snapshot())
    assert predictor.incoming_s(fresh, "V100", 2) == pytest.approx(1000 * 4.0)
    assert predictor.incoming_s(resumed, "V100", 2) == pytest.approx(100 * 4.0)


@pytest.mark.parametrize(
    "of_spec",
    [
        {"length": Length(LengthUnit.EPOCHS, 9.0)},
        {"global_batch": 64},
        {"job_type": "another"},
        {"optional_gpus": (2, 4)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_queued_jobs_share_an_estimate_only_if_their_predictions_are_equal(
    of_spec: dict[str, object],
) -> None:
    snapshot = Cluster().waits("job", speed={1: 1.0, 2: 0.6, 4: 0.4}).snapshot()
    first = one(snapshot)
    recorded = replace(
        snapshot.profiles.profiles["type of job"], steps_per_epoch=100, global_batch=32
    )
    snapshot = replace(snapshot, profiles=snapshot.profiles.with_profile(recorded))
    spec = replace(first.spec, length=Length(LengthUnit.EPOCHS, 2.0), global_batch=32)
    first_job, equal = (replace(first, id=JobId(name), spec=spec) for name in ("first", "equal"))
    changed = replace(spec, **of_spec)  # type: ignore[arg-type]
    other = replace(first, id=JobId("other"), spec=changed, sizes=changed.optional_gpus)
    excluded = replace(first, id=JobId("excluded"), spec=spec, sizes=(2, 4))
    predictor = Predictor(snapshot)
    estimates = [predictor.estimate(job) for job in (first_job, equal, other, excluded)]
    assert [entry is estimates[0] for entry in estimates] == [True, True, False, False]
    alone = Predictor(snapshot)
    for job in (other, excluded):
        work = predictor.queued_work(job, ("V100",))
        assert work == alone.queued_work(replace(job, place=7), ("V100",))


def test_a_shared_estimate_is_renewed_for_all_jobs() -> None:
    snapshot = ClusterIndex().follow(Cluster().waits("job", speed={1: 1.0}).snapshot(), {})
    jobs = [replace(one(snapshot), id=JobId(name)) for name in ("a", "b")]
    before = [Predictor(snapshot).queued_work(job, ("V100",)) for job in jobs]
    slower = Learned("type of job", speed=(Measured("V100", 1, 3.0),))
    later = replace(snapshot, profiles=snapshot.profiles.with_learned(slower))
    after = [Predictor(later).queued_work(job, ("V100",)) for job in jobs]
    assert before[0] is before[1]
    assert after[0] is after[1]
    assert after[0].durations_ms[0] == 3 * before[0].durations_ms[0]
    assert [Predictor(snapshot).queued_work(job, ("V100",)) for job in jobs] == before


def test_the_end_of_a_running_job_follows_the_new_speeds_of_its_type() -> None:
    snapshot = Cluster().runs("job", 1, speed={1: 1.0}).snapshot()
    job = one(snapshot)
    slower = Learned("type of job", speed=(Measured("V100", 1, 3.0),))
    later = replace(snapshot, profiles=snapshot.profiles.with_learned(slower))
    now_ms = to_ms(snapshot.now_s)
    before, after = (Predictor(view).end_of(job) for view in (snapshot, later))
    assert before[1]
    assert after == (now_ms + 3 * (before[0] - now_ms), True)
