"""The policy ``ffdl`` and ``reshape experiment ffdl``: gangs, lost hosts, and the world without."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from reshape_controller.cli.replays import ffdl_runs
from reshape_controller.core.model import HostId, JobSpec, Length, LengthUnit, Mechanism, Spans
from reshape_controller.policies import UnknownPolicy, make_policy
from reshape_controller.policies.ffdl import Ffdl
from reshape_controller.replay import ffdl
from reshape_controller.replay.bounds import makespan_bound_s
from reshape_controller.replay.ffdl import Shape
from reshape_controller.replay.inputs import WorkJob, Workload
from reshape_controller.replay.shell import HostLoss, Result, Scene, replay
from tests.support.replay_bed import reshape


def scene(*jobs: tuple[float, int, int], hosts: int = 2) -> Scene:
    """Jobs of ten minutes, by submission, learners and GPUs of each, on hosts of four."""
    base = ffdl.gang_scene(Shape(1, 1))
    made = []
    for number, (at_s, learners, gpus) in enumerate(jobs):
        spec = JobSpec(
            f"job-{number}",
            ("x",),
            (learners * gpus,),
            Length(LengthUnit.STEPS, 10.0),
            job_type="learner",
            workers=learners,
            span=Spans.ANY if learners > 1 else Spans.NEVER,
        )
        made.append(WorkJob(at_s, spec))
    cluster = replace(base.cluster, hosts=base.cluster.hosts[:hosts])
    points = {
        (gpus, on): replace(base.profiles[0].speed[0], gpus=gpus, hosts=on)
        for learners, gpus in {(job[1], job[1] * job[2]) for job in jobs}
        for on in range(1, learners + 1)
    }
    profiles = (replace(base.profiles[0], speed=tuple(points.values())),)
    truth = replace(base.truth, book=base.truth.book.with_profile(profiles[0]))
    workload = Workload("test", tuple(made))
    return replace(base, workload=workload, cluster=cluster, profiles=profiles, truth=truth)


def played(given: Scene, policy: str = "ffdl") -> Result:
    return replay(given, make_policy(policy), Mechanism.SIDECAR, keep=True, check=True)


def starts(result: Result) -> list[float]:
    assert all(job.started_s is not None for job in result.jobs)
    return [round(job.started_s or 0.0) for job in result.jobs]


def test_a_gang_larger_than_a_host_trains_on_two() -> None:
    result = played(scene((0.0, 2, 4)))
    assert starts(result) == [0]
    assert any("host-0000 and host-0001" in event.text for event in result.events)


def test_a_gang_trains_at_the_speed_of_its_type_on_as_many_hosts() -> None:
    given = scene((0.0, 2, 4))
    points = tuple(
        replace(point, seconds_per_step=90.0) if point.hosts == 2 else point
        for point in given.profiles[0].speed
    )
    profile = replace(given.profiles[0], speed=points)
    book = given.truth.book.with_profile(profile)
    result = played(replace(given, profiles=(profile,), truth=replace(given.truth, book=book)))
    assert result.metrics.makespan_s == 900.0


def test_the_lower_bound_takes_the_speed_on_the_several_hosts_that_a_job_needs() -> None:
    given = scene((0.0, 2, 4))
    points = tuple(replace(p, seconds_per_step=90.0) for p in given.profiles[0].speed)
    slower = tuple(p for p in points if p.hosts == 2) + given.profiles[0].speed[:1]
    profile = replace(given.profiles[0], speed=slower)
    truth = replace(given.truth, book=given.truth.book.with_profile(profile))
    slow = replace(given, profiles=(profile,), truth=truth)
    assert (makespan_bound_s(given), makespan_bound_s(slow)) == (600.0, 900.0)
    assert played(slow).metrics.makespan_s == 900.0


def test_of_jobs_that_come_together_the_largest_gang_is_first() -> None:
    assert starts(played(scene((0.0, 1, 1), (0.0, 2, 4)))) == [600, 0]


def test_a_gang_waits_whole_and_later_jobs_pass_it_unless_the_head_blocks() -> None:
    jobs = ((0.0, 1, 4), (1.0, 2, 4), (2.0, 1, 4))
    assert starts(played(scene(*jobs))) == [0, 602, 2]
    assert starts(played(scene(*jobs), "ffdl:head=block")) == [0, 600, 1200]
    assert starts(played(scene(*jobs), "ffdl:hold_after_s=0")) == [0, 600, 1200]


def test_a_gang_that_loses_a_host_starts_again_on_others_without_a_failure() -> None:
    given = scene((0.0, 2, 4), hosts=3)
    result = played(replace(given, losses=(HostLoss(HostId("host-0001"), 300.0, 1000.0),)))
    (job,) = result.jobs
    assert job.state == "completed"
    assert job.container_restarts == 1
    assert result.metrics.makespan_s == 900.0, "it begins again at 300 s: it has no checkpoint"


def test_a_gang_waits_until_a_lost_host_is_back_if_no_other_can_hold_it() -> None:
    given = scene((0.0, 2, 4), (0.0, 1, 4))
    result = played(replace(given, losses=(HostLoss(HostId("host-0001"), 300.0, 1000.0),)))
    assert result.metrics.makespan_s == 1600.0
    assert result.metrics.jobs == 2


def test_with_gangs_no_learner_waits_for_another() -> None:
    for shape, at_once in zip(ffdl.SHAPES, (30, 15, 15), strict=True):
        result = replay(ffdl.gang_scene(shape), Ffdl(), Mechanism.NONE)
        assert sum(job.started_s == 0.0 for job in result.jobs) == at_once
        assert len(result.jobs) == ffdl.GANG_JOBS


def test_without_gangs_learners_deadlock_the_more_the_less_pods_keep_their_order() -> None:
    for shape in ffdl.SHAPES:
        runs = [
            [ffdl.deadlocked_learners(shape, disorder, seed) for seed in range(ffdl.GANG_RUNS)]
            for disorder in (0.0, 8.0, 200.0)
        ]
        clean = [each.count(0) / len(each) for each in runs]
        assert clean[0] == 1.0
        assert clean[1] < 0.5
        assert clean[2] == 0.0
        assert fmean(runs[0]) < fmean(runs[1]) < fmean(runs[2])


def test_at_a_load_spread_makes_more_jobs_late_than_pack() -> None:
    row = ffdl_runs._load("block", 0.75, 2.0, 0)
    assert row.spread_late_ratio >= 3.0 * row.pack_late_ratio
    assert row.spread_late_ratio > 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ffdl:head=first", "head is 'first'; use one of skip, block"),
        ("ffdl:placement=flat", "placement is 'flat'; use one of pack, spread"),
        ("ffdl:hold_after_s=-1", "hold_after_s is -1, and must be 0 or more"),
    ],
)
def test_a_wrong_setting_is_named(text: str, message: str) -> None:
    with pytest.raises(UnknownPolicy, match=message):
        make_policy(text)


def test_the_command_prints_ours_beside_the_printed_figures(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("experiment", "ffdl", "--seeds", "2", "--days", "0.1", "--out", str(out))
    found = reshape(*words, "-o", "json")
    assert found.exit_code == 0, found.output
    document = json.loads((out / "experiment.json").read_text())
    assert document == json.loads(found.stdout)
    assert document["many"]["completed"] == 700
    assert document["many"]["gpus"] == 680
    assert [row["running_with_gangs"] for row in document["gangs"][::6]] == [30, 15, 15]
    assert len(document["contradictions"]) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cluster", "2*4xK80"), "hosts of its own"),
        (("--days", "0"), "not a number of days from 0.1 to 60"),
    ],
)
def test_a_wrong_option_is_named(words: tuple[str, ...], message: str) -> None:
    found = reshape("experiment", "ffdl", *words)
    assert found.exit_code != 0
    assert message in str(found.exception) + found.output
