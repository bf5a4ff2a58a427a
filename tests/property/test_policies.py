"""Properties that hold for the plans of every policy, on random clusters."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reshape_controller.core.model import JobId
from reshape_controller.core.plan import JobView, Plan, Policy, Snapshot
from reshape_controller.policies import make_policy
from tests.property.random_clusters import clusters, fit_hosts
from tests.support.clusters import COSTS, Cluster, with_lengths
from tests.support.gate import examples

ADAPTIVE = (
    *("adaptive", "adaptive:objective=balanced", "adaptive:objective=jct"),
    "adaptive:objective=balanced,preempt=overdue",
)
OTHERS = ("adaptive-v1", "paper", "optimus", "default", "fifo", "srtf", "tiresias")
SCALING = ("dragon:up_after_s=0", "weighted", "weighted:utility=printed,admission=oasis")
NAMES = (*ADAPTIVE, *OTHERS, *SCALING)
MOVE_DOWN = ADAPTIVE
"""The policies that may move a running job to fewer GPUs if they are of another type."""
GIVE_TOO_MUCH = SCALING
"""The policies that start a job at one size only, so that several donors may give too much."""
POLICIES: dict[str, Policy] = {name: make_policy(name) for name in NAMES}


def job_that_moves_down() -> Snapshot:
    """A job that trains faster on one GPU of another type than on its own two."""
    speeds = {"V100": {1: 0.25, 2: 0.5}, "P100": {1: 0.25, 2: 0.25}}
    cluster = Cluster({"h0": ("V100", 2), "h1": ("P100", 1)})
    return cluster.runs("run", 2, on="h0", speeds=speeds, sizes=(1, 2), left=1).snapshot()


def follow(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the cluster after the plan, as the engine shows it: its jobs are frozen."""
    wanted = {target.job: target for target in plan.targets}
    hosts = {host.id: host for host in snapshot.hosts}
    running = []
    for job in (*snapshot.running, *(job for job in snapshot.queued if job.id in wanted)):
        target = wanted.get(job.id)
        if target is not None:
            if job.size and target.host != job.host:
                assert job.host is not None
                here = hosts[job.host]
                hosts[job.host] = replace(here, idle=here.idle + job.size)
                used = target.size
            else:
                used = target.size - job.size
            there = hosts[target.host]
            hosts[target.host] = replace(there, idle=there.idle - used)
            kind = there.gpu_type
            job = replace(job, size=target.size, host=target.host, gpu_type=kind, frozen=True)
        running.append(job)
    queued = tuple(job for job in snapshot.queued if job.id not in wanted)
    return replace(snapshot, queued=queued, running=tuple(running), hosts=tuple(hosts.values()))


def settle(snapshot: Snapshot) -> Snapshot:
    """Return the cluster once every hand-over is done."""
    return replace(snapshot, running=tuple(replace(job, frozen=False) for job in snapshot.running))


def check(
    snapshot: Snapshot, plan: Plan, *, moves_down: bool = False, gives_too_much: bool = False
) -> None:
    """Check the rules of the engine for plans, written independently of it. ``moves_down``: a
    running job may move to fewer GPUs of another type (docs/policies.md); ``gives_too_much``: so
    may several donors."""
    jobs = {job.id: job for job in (*snapshot.queued, *snapshot.running)}
    idle = {host.id: host.idle for host in snapshot.hosts}
    kinds = {host.id: host.gpu_type for host in snapshot.hosts}
    starts = [target for target in plan.targets if jobs[target.job].size == 0]
    releases = []
    for target in plan.targets:
        before = jobs[target.job]
        assert target.size in before.sizes
        assert before.only_host in (None, target.host)
        if before.size == 0:
            assert target.host in [host.id for host in fit_hosts(snapshot, before)]
        elif target.host != before.host:
            assert target.host not in before.unfit_on
        assert not before.frozen
        if before.size == 0:
            idle[target.host] -= target.size
        elif target.host == before.host:
            idle[target.host] -= target.size - before.size
            releases += [before.size - target.size] if target.size < before.size else []
        else:
            idle[target.host] -= target.size
        if before.size > target.size and target.host == before.host:
            assert len(starts) == 1
            assert starts[0].host == target.host
        elif before.size > target.size:
            assert moves_down, "this policy moves no job to fewer GPUs"
            assert kinds[target.host] != before.gpu_type, "fewer GPUs of the same type gain nothing"
    if releases:
        # The last donor may release too much, but no donor is superfluous.
        assert sum(releases[:-1]) < starts[0].size
        assert gives_too_much or len(releases) == 1 or sum(releases) <= starts[0].size
    assert all(left >= 0 for left in idle.values())
    assert len({target.job for target in plan.targets}) == len(plan.targets)


@pytest.mark.parametrize("name", NAMES)
@given(snapshot=clusters())
@example(snapshot=job_that_moves_down())
@settings(max_examples=examples(150), deadline=None)
def test_a_plan_names_only_sizes_of_its_jobs_and_gpus_that_are_there(
    name: str, snapshot: Snapshot
) -> None:
    plan = POLICIES[name].decide(snapshot)
    check(snapshot, plan, moves_down=name in MOVE_DOWN, gives_too_much=name in GIVE_TOO_MUCH)
    if plan.chosen is not None:
        assert plan.options[plan.chosen].targets == plan.targets


@pytest.mark.parametrize("name", NAMES)
@given(snapshot=clusters())
@settings(max_examples=examples(80), deadline=None)
def test_a_plan_without_explanation_does_the_same(name: str, snapshot: Snapshot) -> None:
    explained = POLICIES[name].decide(snapshot)
    unexplained = POLICIES[name].decide(replace(snapshot, explain=False))
    assert (unexplained.targets, unexplained.wake_at_s) == (explained.targets, explained.wake_at_s)
    about = next((job for job in snapshot.queued if job.id == explained.about), None)
    if explained.targets or about is not None:
        assert (unexplained.about, unexplained.reason_code) == (
            explained.about,
            explained.reason_code,
        )
        assert unexplained.weighed == explained.weighed
    if not explained.targets and about is not None:
        assert unexplained.text == explained.text, "the text says why the job waits"


@pytest.mark.parametrize("name", NAMES)
@given(snapshot=clusters())
@example(snapshot=job_that_moves_down())
@settings(max_examples=examples(80), deadline=None)
def test_a_fixed_set_of_jobs_is_decided_in_finitely_many_plans(
    name: str, snapshot: Snapshot
) -> None:
    """Between two plans every hand-over is done at once and nothing trains on."""
    comes_to_rest(name, snapshot)


@pytest.mark.parametrize("name", GIVE_TOO_MUCH)
@given(snapshot=clusters(), priorities=st.lists(st.integers(0, 2), min_size=1, max_size=9))
@settings(max_examples=examples(80), deadline=None)
def test_scaling_for_jobs_of_any_priorities_comes_to_rest_too(
    name: str, snapshot: Snapshot, priorities: list[int]
) -> None:
    def with_priority(job: JobView) -> JobView:
        priority = priorities[job.place % len(priorities)]
        return replace(job, spec=replace(job.spec, priority=priority))

    queued, running = map(with_priority, snapshot.queued), map(with_priority, snapshot.running)
    comes_to_rest(name, replace(snapshot, queued=tuple(queued), running=tuple(running)))


@pytest.mark.parametrize("name", ["dragon:up_after_s=0", "weighted", "weighted:utility=printed"])
@given(snapshot=clusters(), factor=st.sampled_from([0.5, 2.0, None]))
@settings(max_examples=examples(50), deadline=None)
def test_dragon_and_weighted_decide_the_same_for_wrong_or_unknown_lengths(
    name: str, snapshot: Snapshot, factor: float | None
) -> None:
    policy = make_policy(name)
    assert policy.decide(with_lengths(snapshot, factor)) == policy.decide(snapshot)


@given(snapshot=clusters(), factor=st.sampled_from([0.5, 2.0, None]))
@settings(max_examples=examples(50), deadline=None)
def test_admission_by_price_comes_to_rest_for_wrong_or_unknown_lengths(
    snapshot: Snapshot, factor: float | None
) -> None:
    comes_to_rest("weighted:utility=printed,admission=oasis", with_lengths(snapshot, factor))


def comes_to_rest(name: str, snapshot: Snapshot) -> None:
    """Follow the policy's plans, and check each, until it wants nothing more."""
    policy = POLICIES[name]
    for _ in range(200):
        plan = policy.decide(snapshot)
        check(snapshot, plan, moves_down=name in MOVE_DOWN, gives_too_much=name in GIVE_TOO_MUCH)
        if not plan.targets:
            return
        snapshot = settle(follow(snapshot, plan))
    raise AssertionError("the policy never comes to rest")


def test_a_move_to_fewer_gpus_happens_once_and_by_adaptive_alone() -> None:
    snapshot = job_that_moves_down()
    (target,) = POLICIES["adaptive"].decide(snapshot).targets
    assert (target.size, target.host) == (1, "h1")
    moved = settle(follow(snapshot, POLICIES["adaptive"].decide(snapshot)))
    assert POLICIES["adaptive"].decide(moved).targets == ()
    assert POLICIES["adaptive-v1"].decide(snapshot).targets == ()


@given(snapshot=clusters())
@settings(max_examples=examples(150), deadline=None)
def test_optimus_and_default_never_take_a_gpu_from_a_running_job(snapshot: Snapshot) -> None:
    sizes = {job.id: job.size for job in snapshot.running}
    for name in ("optimus", "default"):
        for target in POLICIES[name].decide(snapshot).targets:
            assert target.size > sizes.get(target.job, 0)


@given(snapshot=clusters())
@settings(max_examples=examples(150), deadline=None)
def test_a_newcomer_that_fits_on_idle_gpus_is_never_left_waiting(snapshot: Snapshot) -> None:
    plan = POLICIES["adaptive"].decide(snapshot)
    overdue = any(job.spec.max_wait_s is not None for job in snapshot.queued)
    fits = [
        job
        for job in snapshot.queued
        if any(host.idle >= min(job.sizes) for host in fit_hosts(snapshot, job))
    ]
    if fits and not overdue:
        assert plan.targets
        assert plan.targets[0].job in {job.id for job in snapshot.queued}


def test_decisions_do_not_depend_on_the_hash_seed() -> None:
    """The same random clusters in processes with other hash seeds give the same plans."""
    code = "from tests.property.test_policies import digest_of_plans; print(digest_of_plans())"
    root = Path(__file__).resolve().parents[2]
    paths = ("controller", "sidecar", "launcher", "profiles", ".")
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 64


def digest_of_plans() -> str:
    """Return a digest of plans for clusters drawn from a fixed seed."""
    import hashlib
    import random

    from reshape_sidecar import codec

    draw = random.Random(7)
    digest = hashlib.sha256()
    for _ in range(30):
        cluster = Cluster({"a": ("V100", 8), "b": ("P100", 8)}, COSTS)
        for host in ("a", "b"):
            for _ in range(3):
                speed = {size: draw.uniform(0.5, 9.0) for size in (1, 2, 4)}
                cluster.runs(f"r{cluster.place}", draw.choice([1, 2]), on=host, speed=speed)
        for _ in range(4):
            speed = {size: draw.uniform(0.5, 9.0) for size in (1, 2, 4)}
            cluster.waits(f"n{cluster.place}", speed=speed, left=draw.randint(10, 2000))
        for policy in POLICIES.values():
            digest.update(codec.dumps(policy.decide(cluster.snapshot())).encode())
    return digest.hexdigest()


def test_job_ids_break_the_last_ties() -> None:
    """Two jobs differ in their names only: the one that sorts first is the donor."""
    cluster = Cluster({"a": ("V100", 8)})
    for name in ("b", "a"):
        cluster.runs(name, 4, speed={2: 1.25, 4: 1.0})
    cluster.waits("new", speed={2: 1.0})
    plan = POLICIES["adaptive"].decide(cluster.snapshot())
    assert [target.job for target in plan.targets] == [JobId("new"), JobId("a")]
