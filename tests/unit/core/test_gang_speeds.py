"""Speeds of gangs: what they teach, on how many hosts, and what is predicted of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.knowledge import Measured, Trend
from reshape_controller.core.model import HostId, JobId, Length, LengthUnit, Share, Spans
from reshape_controller.core.plan import Plan, Target
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.core.state import State
from reshape_controller.policies import make_policy
from reshape_controller.scheduling.assumed_inputs import HOST_TEXT
from reshape_controller.scheduling.planner import Planner
from reshape_controller.scheduling.predictor import Predictor
from reshape_profiles.schema import Profile, SpeedPoint
from reshape_sidecar.wire import Progress
from tests.support.world import World

A, B = HostId("host-0"), HostId("host-1")
KIND = Profile(
    "kind",
    speed=(
        SpeedPoint("V100", 4, 2.0),
        SpeedPoint("V100", 8, 1.0),
        SpeedPoint("V100", 8, 1.4, hosts=2),
    ),
)


def gang() -> World:
    """A job of a known type, which trains with four GPUs on each of two hosts."""
    world = World().boot(4, hosts=2)
    world.event(ev.ProfileRecorded(KIND))
    world.submit("job", 4, 8, workers=2, span=Spans.ANY, job_type="kind")
    shares = (Share(A, 1), Share(B, 1))
    world.apply(Plan((Target(JobId("job"), 8, A, shares),), "test", about=JobId("job")))
    return world


def report(world: World, step: int, seconds: float) -> None:
    container = world.container("job")
    container.step, container.sequence = step, container.sequence + 1
    progress = Progress(step=step, total_steps=1000, seconds_per_step=seconds)
    world.event(ev.SideCarReported(replace(container.observed(), progress=progress)))


def test_a_gang_measures_its_speed_on_as_many_hosts_beside_the_profile_of_these() -> None:
    world = gang()
    report(world, 10, 1.6)
    assert world.job("job").measured == (Measured("V100", 8, 1.5, 1, hosts=2),)


def test_a_type_learns_from_a_gang_on_its_hosts_and_stays_the_same_on_one() -> None:
    world = gang()
    for step in range(1, 31):
        report(world, step, 1.8)
    known = world.engine.state.profiles
    (learned,) = known.learned_of("kind").speed
    assert (learned.gpus, learned.hosts) == (8, 2)
    assert known.seconds_per_step("kind", "V100", 8, 2) == learned.seconds_per_step > 1.4
    assert known.seconds_per_step("kind", "V100", 8) == 1.0
    assert known.seconds_per_step("kind", "V100", 4) == 2.0


def test_what_a_gang_measures_is_no_speed_of_the_same_job_on_one_host() -> None:
    known = ProfileBook().with_profile(KIND)
    measured = (Measured("V100", 8, 2.8, 5, hosts=2),)
    assert known.seconds_of_job("kind", measured, "V100", 8, 2) == 2.8
    assert known.seconds_of_job("kind", measured, "V100", 8) == 1.0
    assert known.speeds_of_job("kind", measured, "V100", (4, 8)) == {4: 2.0, 8: 1.0}
    on_two = known.speeds_of_job("kind", measured, "V100", (4, 8), 2)
    assert on_two == pytest.approx({4: 2 * 2.4, 8: 2.8})


def test_a_job_that_trained_on_one_host_is_as_much_slower_on_two() -> None:
    known = ProfileBook().with_profile(KIND)
    measured = (Measured("V100", 8, 1.5, 5),)
    assert known.seconds_of_job("kind", measured, "V100", 8, 2) == pytest.approx(1.5 * 1.4)


def test_a_larger_batch_still_counts_on_one_host_after_measurements_on_two() -> None:
    known = ProfileBook().with_profile(replace(KIND, global_batch=32))
    measured = (Measured("V100", 8, 2.8, 5, hosts=2),)
    assert known.seconds_of_job("kind", measured, "V100", 8, 1, 64) == 2.0
    assert known.speeds_of_job("kind", measured, "V100", (8,), 1, 64) == {8: 2.0}


def test_a_type_without_any_speed_takes_that_of_a_gang_for_one_host_too() -> None:
    measured = (Measured("V100", 8, 0.01, 5, hosts=2),)
    alone_s = ProfileBook().seconds_of_job(None, measured, "V100", 8)
    assert alone_s < 0.01


def test_the_cost_of_several_hosts_is_known_only_with_a_pair_of_sizes_or_from_a_gang() -> None:
    one = Profile("kind", speed=(SpeedPoint("V100", 4, 2.0),))
    apart = replace(one, speed=(*one.speed, SpeedPoint("V100", 8, 1.4, hosts=2)))

    def knows(profile: Profile, gpus: int) -> bool:
        return ProfileBook().with_profile(profile).knows_hosts("kind", "V100", gpus, 2)

    assert [knows(one, 4), knows(one, 8)] == [False, False]
    assert [knows(apart, 4), knows(apart, 8)] == [False, True]
    assert [knows(KIND, 4), knows(KIND, 8)] == [True, True]
    world = gang()
    world.event(ev.ProfileRecorded(one))
    assert not world.engine.state.profiles.knows_hosts("kind", "V100", 8, 2)
    for step in range(1, 31):
        report(world, step, 1.8)
    assert world.engine.state.profiles.knows_hosts("kind", "V100", 8, 2)


def test_a_gang_straggles_only_against_its_profile_on_as_many_hosts() -> None:
    world = gang()
    for step in range(1, 9):
        report(world, step, 1.6)
    assert not world.job("job").straggling
    for step in range(9, 19):
        report(world, step, 2.8)
    assert world.job("job").straggling


def test_the_trend_of_a_job_that_became_a_gang_has_news() -> None:
    before = Trend(Progress(step=10), 100.0, (Measured("V100", 8, 1.0, 5),))
    measured = before.measured
    assert before.expects(Progress(step=20), 110.0, measured, "V100", 8)
    assert not before.expects(Progress(step=20), 110.0, measured, "V100", 8, 2)


def test_measurements_of_gangs_survive_a_dump() -> None:
    world = gang()
    report(world, 10, 1.6)
    again = State.load(world.engine.state.dump())
    assert again.jobs[JobId("job")].measured == world.job("job").measured


def test_the_end_of_a_gang_is_predicted_with_its_speed_on_its_hosts() -> None:
    world = gang()
    report(world, 1, 1.4)
    (view,) = world.engine.snapshot().running
    assert view.shares
    predictor = Predictor(world.engine.snapshot())
    left = predictor.remaining_steps(view)
    phases = dict(predictor.unchanged(view).phases)
    assert phases["training"] == pytest.approx(left * 1.4)
    in_place = dict(predictor.reshaped(view, "V100", 4).phases)
    assert in_place["training"] == pytest.approx(left * 2.4)
    on_one = dict(predictor.reshaped(view, "V100", 4, moves=True, hosts=1).phases)
    assert on_one["training"] == pytest.approx(left * 2.0)
    times = predictor.reshaped_by_size_s(view, "V100")
    assert times[4] == pytest.approx(predictor.reshaped(view, "V100", 4).total_s)
    lost = {each.keeps: each.lost_part for each in predictor.donor_times(view).smaller}
    assert lost[4] == pytest.approx(1 - 1.4 / 2.4)


def test_a_plan_names_the_time_lost_between_hosts_among_its_assumed_inputs() -> None:
    world = World().boot(4, hosts=2)
    world.event(ev.ProfileRecorded(Profile("kind", speed=(SpeedPoint("V100", 8, 1.0),))))
    length = Length(LengthUnit.STEPS, 100.0)
    world.submit("job", 8, workers=2, span=Spans.ANY, job_type="kind", length=length)
    planner = Planner(make_policy("ffdl"))
    (text,) = planner.plan(world.engine).assumed
    assert text == f"job: time lost between hosts unknown: {HOST_TEXT} assumed"
    world.event(ev.ProfileRecorded(KIND))
    assert planner.plan(world.engine).assumed == ()
