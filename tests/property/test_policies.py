"""Policies over random clusters: what always holds, and the quick forecast against the definition.

Speeds are multiples of a quarter second and steps are whole, so that no sum is rounded and the two
ways of adding up agree to the millisecond.
"""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reshape_controller.core.model import JobId, Mechanism
from reshape_controller.core.plan import JobView, Plan, Policy, Snapshot, Target
from reshape_controller.core.prediction import candidates, moves
from reshape_controller.core.prediction import forecast as forecasts
from reshape_controller.core.prediction.candidates import targets_of
from reshape_controller.core.prediction.forecast import Forecast
from reshape_controller.core.prediction.givers import Givers
from reshape_controller.core.prediction.predictor import Predictor
from reshape_controller.core.prediction.sweep import Swept, sweep, sweep_growths
from reshape_controller.core.prediction.weighing import Weighing
from reshape_controller.policies import make_policy
from reshape_controller.policies.adaptive import Adaptive
from tests.clusters import COSTS, FREE, Cluster, Reference

NAMES = ("adaptive", "paper", "optimus", "default")
POLICIES: dict[str, Policy] = {name: make_policy(name) for name in NAMES}
SIZES = ((1,), (2,), (1, 2), (2, 4), (1, 2, 4), (3, 4), (1, 2, 3, 4), (4, 8), (1, 2, 4, 8))
SPEEDS = st.integers(1, 40).map(lambda quarters: quarters / 4)
STEPS = st.integers(1, 400)
LISTED = st.sampled_from([1, 3, 64])
"""How many queued jobs are scheduled one by one; the others are an area."""


@st.composite
def clusters(draw: st.DrawFn, queued: int = 5) -> Snapshot:
    """One to three hosts of one or two GPU types, partly used, and a queue."""
    kinds = draw(st.lists(st.sampled_from(["P100", "V100"]), min_size=1, max_size=3))
    totals = draw(st.lists(st.integers(1, 8), min_size=len(kinds), max_size=len(kinds)))
    hosts = {f"h{n}": entry for n, entry in enumerate(zip(kinds, totals, strict=True))}
    cluster = Cluster(
        hosts,
        draw(st.sampled_from([FREE, COSTS])),
        draw(st.sampled_from([Mechanism.SIDECAR, Mechanism.SIDECAR, Mechanism.TERMINATE])),
        seed=draw(st.integers(0, 9)),
    )
    for name, (_, total) in hosts.items():
        left = total
        while left and draw(st.integers(0, 4)):
            fitting = [s for sizes in SIZES for s in sizes if s <= left]
            size = draw(st.sampled_from(fitting))
            left -= size
            sizes = draw(st.sampled_from([sizes for sizes in SIZES if size in sizes]))
            more = job(draw, cluster, sizes)
            more["only_host"] = draw(st.sampled_from([None, name]))
            cluster.runs(f"run-{cluster.place:02d}", size, on=name, **more)
    for _ in range(draw(st.integers(0, queued))):
        sizes = draw(st.sampled_from(SIZES))
        more = job(draw, cluster, sizes)
        more["only_host"] = draw(st.sampled_from([None, None, *hosts, "drained"]))
        more["max_wait_s"] = draw(st.sampled_from([None, None, None, 0.0]))
        cluster.waits(f"new-{cluster.place:02d}", **more)
    return cluster.snapshot()


def job(draw: st.DrawFn, cluster: Cluster, sizes: tuple[int, ...]) -> dict[str, object]:
    kinds = {kind for kind, _ in cluster.hosts.values()}
    return {
        "speeds": {kind: {size: draw(SPEEDS) for size in sizes} for kind in sorted(kinds)},
        "sizes": sizes,
        "left": draw(STEPS),
    }


def follow(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The cluster after the plan, as the engine shows it: its parties are frozen."""
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
    """Every hand-over is done."""
    return replace(snapshot, running=tuple(replace(job, frozen=False) for job in snapshot.running))


def check(snapshot: Snapshot, plan: Plan) -> None:
    """What the engine asks of a plan, said once more and in other words."""
    jobs = {job.id: job for job in (*snapshot.queued, *snapshot.running)}
    idle = {host.id: host.idle for host in snapshot.hosts}
    starts = [target for target in plan.targets if jobs[target.job].size == 0]
    gifts = []
    for target in plan.targets:
        before = jobs[target.job]
        assert target.size in before.sizes
        assert before.only_host in (None, target.host)
        assert not before.frozen
        if before.size == 0:
            idle[target.host] -= target.size
        elif target.host == before.host:
            idle[target.host] -= target.size - before.size
            gifts += [before.size - target.size] if target.size < before.size else []
        else:
            idle[target.host] -= target.size
        if before.size > target.size:
            assert len(starts) == 1
            assert starts[0].host == target.host
    if gifts:
        # All that the last one gives may be too much, but no donor is asked for nothing.
        assert sum(gifts[:-1]) < starts[0].size
        assert len(gifts) == 1 or sum(gifts) <= starts[0].size
    assert all(left >= 0 for left in idle.values())
    assert len({target.job for target in plan.targets}) == len(plan.targets)


@pytest.mark.parametrize("name", NAMES)
@given(snapshot=clusters())
@settings(max_examples=150, deadline=None)
def test_a_plan_names_only_sizes_of_its_jobs_and_gpus_that_are_there(
    name: str, snapshot: Snapshot
) -> None:
    plan = POLICIES[name].decide(snapshot)
    check(snapshot, plan)
    if plan.chosen is not None:
        assert plan.options[plan.chosen].targets == plan.targets


@pytest.mark.parametrize("name", NAMES)
@given(snapshot=clusters())
@settings(max_examples=80, deadline=None)
def test_a_fixed_set_of_jobs_is_decided_in_finitely_many_plans(
    name: str, snapshot: Snapshot
) -> None:
    """Between two plans every hand-over is done at once and nothing trains on."""
    policy = POLICIES[name]
    for _ in range(200):
        plan = policy.decide(snapshot)
        check(snapshot, plan)
        if not plan.targets:
            return
        snapshot = settle(follow(snapshot, plan))
    raise AssertionError("the policy never comes to rest")


@given(snapshot=clusters())
@settings(max_examples=150, deadline=None)
def test_optimus_and_default_never_take_a_gpu_from_a_running_job(snapshot: Snapshot) -> None:
    sizes = {job.id: job.size for job in snapshot.running}
    for name in ("optimus", "default"):
        for target in POLICIES[name].decide(snapshot).targets:
            assert target.size > sizes.get(target.job, 0)


@given(snapshot=clusters())
@settings(max_examples=150, deadline=None)
def test_a_newcomer_that_fits_on_idle_gpus_is_never_left_waiting(snapshot: Snapshot) -> None:
    plan = POLICIES["adaptive"].decide(snapshot)
    overdue = any(job.spec.max_wait_s is not None for job in snapshot.queued)
    fits = [
        job
        for job in snapshot.queued
        if any(
            host.idle >= min(job.sizes) and job.only_host in (None, host.id)
            for host in snapshot.hosts
        )
    ]
    if fits and not overdue:
        assert plan.targets
        assert plan.targets[0].job in {job.id for job in snapshot.queued}


def best_of_all(snapshot: Snapshot, newcomer: JobView) -> tuple[Target, ...]:
    """What ``adaptive`` has to choose for a newcomer, by the definition and nothing else."""
    policy = Adaptive()
    reference = Reference(snapshot, newcomer.id)
    forecast = Forecast(snapshot, Predictor(snapshot))
    hosts = [host for host in snapshot.hosts if newcomer.only_host in (None, host.id)]
    allowed = [host.id for host in hosts]
    idle = list(candidates.on_idle(forecast, newcomer, hosts))
    victims = single_victims(snapshot, newcomer)
    shrinks = [targets for targets in victims if targets[0].host in allowed]
    overdue = newcomer.spec.max_wait_s is not None
    if overdue and not idle and not shrinks:
        several = candidates.from_several(forecast, newcomer, hosts, moves.donors(snapshot))
        shrinks = [candidate.targets for candidate in several]
    quiet = [(*reference.weigh(c.targets), order(snapshot, c.targets), c.targets) for c in idle]
    base = min(quiet) if quiet else (*reference.weigh(()), (), ())
    ends = {job.id: reference.predictor.unchanged(job).total_s for job in snapshot.running}
    found = [base]
    for targets in shrinks:
        makespan, total = reference.weigh(targets)
        left_ms = max(round(ends[target.job] * 1000) for target in targets[1:])
        if overdue or worth(policy, (makespan, total), base[:2], left_ms):
            found.append((makespan, total, order(snapshot, targets), targets))
    if overdue and (quiet or shrinks):
        found = [entry for entry in found if entry[3]] + quiet
    return min(found)[3]


def worth(policy: Adaptive, option: tuple[int, int], base: tuple[int, int], left_ms: int) -> bool:
    """A twentieth of what is left: off the makespan, or off the sum at the same makespan."""
    least = max(1, math.ceil(left_ms / 20))
    assert policy.least_ms(left_ms) == least
    return base[0] - option[0] >= least or (base[0] >= option[0] and base[1] - option[1] >= least)


def order(snapshot: Snapshot, targets: tuple[Target, ...]) -> tuple[object, ...]:
    first, *others = targets
    shrinks = tuple((target.job, target.size) for target in others)
    sizes = {job.id: job.size for job in snapshot.running}
    given = sum(sizes[target.job] - target.size for target in others)
    return (max(first.size, given), first.job, first.size, first.host, shrinks)


def single_victims(snapshot: Snapshot, newcomer: JobView) -> list[tuple[Target, ...]]:
    """Brute force over every host, victim, size, and size of the victim. A victim that can give to
    this newcomer without a rest leaves none; another leaves as small a rest as it can."""
    found: list[tuple[Target, ...]] = []
    for host, victim in itertools.product(snapshot.hosts, snapshot.running):
        if victim.host != host.id or victim.frozen:
            continue
        enough = [
            (size, keeps, victim.size - keeps)
            for size, keeps in itertools.product(newcomer.sizes, victim.sizes)
            if keeps < victim.size and 0 < size - host.idle <= victim.size - keeps
        ]
        if any(gives <= size for size, _, gives in enough):
            enough = [entry for entry in enough if entry[2] <= entry[0]]
        else:
            least = {n: min(g for size, _, g in enough if size == n) for n, _, _ in enough}
            enough = [entry for entry in enough if entry[2] == least[entry[0]]]
        for size, keeps, _ in enough:
            found.append((Target(newcomer.id, size, host.id), Target(victim.id, keeps, host.id)))
    return found


@given(snapshot=clusters(queued=3))
@settings(max_examples=400, deadline=None)
def test_the_choice_is_that_of_the_full_definition(snapshot: Snapshot) -> None:
    """The first newcomer decides, or nobody: overdue ones first."""
    late = [job for job in snapshot.queued if job.spec.max_wait_s is not None]
    queue = [*late, *(job for job in snapshot.queued if job not in late)]
    if not queue:
        return
    wanted = best_of_all(snapshot, queue[0])
    plan = POLICIES["adaptive"].decide(snapshot)
    if wanted:
        assert plan.targets == wanted
    else:
        assert all(target.job != queue[0].id for target in plan.targets)


@given(snapshot=clusters(queued=8), listed=LISTED)
@settings(max_examples=400, deadline=None)
def test_the_quick_forecast_weighs_every_option_as_the_definition_does(
    snapshot: Snapshot, listed: int
) -> None:
    """``listed``: how many queued jobs are scheduled one by one; the others are an area."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forecasts, "LISTED_MAX", listed)
        compare(snapshot, listed)


def compare(snapshot: Snapshot, listed: int) -> None:
    forecast = Forecast(snapshot, Predictor(snapshot))
    hosts = list(snapshot.hosts)
    for newcomer in snapshot.queued:
        if all(host.usable < min(newcomer.sizes) for host in hosts):
            continue
        reference = Reference(snapshot, newcomer.id, listed)
        outlook = forecast.outlook(newcomer.id)
        assert outlook.waits() == reference.weigh(())
        donors = moves.donors(snapshot)
        for option in (
            *candidates.on_idle(forecast, newcomer, hosts),
            *candidates.from_one(forecast, newcomer, hosts, donors),
            *candidates.from_several(forecast, newcomer, hosts, donors),
        ):
            weighed = outlook.weigh(option.ends, option.changes)
            assert weighed == reference.weigh(option.targets), option.targets
            bound = outlook.bound(option.ends, option.changes)
            assert bound[0] <= weighed[0]
            assert bound[1] <= weighed[1]
        giving = Givers(forecast, donors, lambda left: 1)
        swept = sweep(outlook, newcomer, hosts, giving, outlook.waits(), gate=False)
        ranked = sorted(swept.worth + swept.others)
        single = {
            option.targets: option.order
            for option in candidates.from_one(forecast, newcomer, hosts, donors)
        }
        again = [targets_of(rank) for rank in ranked]
        assert [(*reference.weigh(targets), *single[targets]) for targets in again] == ranked
        assert {*again, *(option.targets for option in swept.costly)} == set(single)
        worth = [rank[:2] for rank in swept.worth]
        assert all(rank < outlook.waits() for rank in worth)
    grown = forecast.outlook()
    reference = Reference(snapshot, None, listed)
    for option in candidates.growths(forecast, hosts):
        assert grown.weigh(option.ends, option.changes) == reference.weigh(option.targets)
    swept = sweep_growths(grown, hosts, lambda left: 1, grown.waits())
    ruled_out = weigh_far(swept)
    assert not ruled_out.worth
    ranked = swept.worth + swept.others + ruled_out.others
    wanted = {option.targets: option.order for option in candidates.growths(forecast, hosts)}
    again = [targets_of(rank) for rank in ranked]
    assert [(*reference.weigh(targets), *wanted[targets]) for targets in again] == ranked
    assert {*again, *(option.targets for option in swept.costly)} == set(wanted)


def weigh_far(swept: Swept) -> Swept:
    """Every option of the jobs that a sweep ruled out."""
    return swept.far.weigh([job for _, job in swept.far.jobs]) if swept.far else Swept([], [], [])


@given(snapshot=clusters(queued=8), least=st.sampled_from([1, 100, 5000]), listed=LISTED)
@settings(max_examples=1500, deadline=None)
def test_jobs_are_ruled_out_only_if_none_of_their_options_could_save_enough(
    snapshot: Snapshot, least: int, listed: int
) -> None:
    """``least``: what a reshape has to save (ms), and a twentieth of what its job has left."""

    def least_ms(left_ms: int) -> int:
        return least + left_ms // 20

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forecasts, "LISTED_MAX", listed)
        forecast = Forecast(snapshot, Predictor(snapshot))
        hosts = list(snapshot.hosts)
        giving = Givers(forecast, moves.donors(snapshot), least_ms)
        for newcomer in snapshot.queued:
            if all(host.usable < min(newcomer.sizes) for host in hosts):
                continue
            outlook = forecast.outlook(newcomer.id)
            idle = list(candidates.on_idle(forecast, newcomer, hosts))
            base = Weighing(outlook, least_ms, "wait", idle).base[:2]
            every = sweep(outlook, newcomer, hosts, giving, base, gate=False)
            swept = sweep(outlook, newcomer, hosts, giving, base, gate=True)
            ruled_out = weigh_far(swept)
            assert not ruled_out.worth
            assert not ruled_out.costly
            assert sorted(swept.worth) == sorted(every.worth)
            assert sorted(swept.others + ruled_out.others) == sorted(every.others)
            key = lambda option: option.order  # noqa: E731
            assert sorted(swept.costly, key=key) == sorted(every.costly, key=key)


@given(snapshot=clusters())
@settings(max_examples=150, deadline=None)
def test_brute_force_finds_the_same_single_victims(snapshot: Snapshot) -> None:
    forecast = Forecast(snapshot, Predictor(snapshot))
    donors = moves.donors(snapshot)
    for newcomer in snapshot.queued:
        found = candidates.from_one(forecast, newcomer, list(snapshot.hosts), donors)
        ours = {candidate.targets for candidate in found}
        assert ours == set(single_victims(snapshot, newcomer))


@given(snapshot=clusters(), steps=st.integers(1, 400))
@settings(max_examples=100, deadline=None)
def test_no_makespan_falls_when_a_running_job_has_more_left(snapshot: Snapshot, steps: int) -> None:
    """Monotone where it must be: without a queue, every end depends on its own job alone."""
    snapshot = replace(snapshot, queued=())
    if not snapshot.running:
        return
    job = snapshot.running[0]
    assert job.spec.length is not None
    longer = replace(job.spec.length, value=job.spec.length.value + steps)
    more = replace(job, spec=replace(job.spec, length=longer))
    worse = replace(snapshot, running=(more, *snapshot.running[1:]))
    assert Reference(snapshot).weigh(()) <= Reference(worse).weigh(())
    quick = [Forecast(s, Predictor(s)).outlook().waits() for s in (snapshot, worse)]
    assert quick[0] <= quick[1]


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
    """Of plans for clusters drawn from a fixed seed."""
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
    """Twins in everything but their name: the one that sorts first gives."""
    cluster = Cluster({"a": ("V100", 8)})
    for name in ("b", "a"):
        cluster.runs(name, 4, speed={2: 1.25, 4: 1.0})
    cluster.waits("new", speed={2: 1.0})
    plan = POLICIES["adaptive"].decide(cluster.snapshot())
    assert [target.job for target in plan.targets] == [JobId("new"), JobId("a")]
