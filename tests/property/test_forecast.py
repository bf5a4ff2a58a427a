"""The quick forecast, and what is ruled out without it, against the definition; random clusters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import JobView, Snapshot, Target
from reshape_controller.policies.adaptive import Adaptive
from reshape_controller.scheduling import candidates, legal_moves
from reshape_controller.scheduling.candidates import Candidate
from reshape_controller.scheduling.donors import Donors
from reshape_controller.scheduling.evaluation import (
    Evaluation,
    SweptOptions,
    evaluate_growths,
    evaluate_shrinks,
)
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.growth import Growth
from reshape_controller.scheduling.predictor import Predictor
from tests.property.random_clusters import clusters, fit_hosts
from tests.support.clusters import Cluster, Reference
from tests.support.gate import examples

LISTED = st.sampled_from([1, 3, 64])
"""How many queued jobs are scheduled one by one; the others are an area."""


def best_of_all(snapshot: Snapshot, newcomer: JobView) -> tuple[Target, ...]:
    """What ``adaptive`` has to choose for a newcomer, by the definition and nothing else."""
    policy = Adaptive()
    reference = Reference(snapshot, newcomer.id)
    forecast = Forecast(snapshot, Predictor(snapshot))
    hosts = fit_hosts(snapshot, newcomer)
    allowed = [host.id for host in hosts]
    idle = list(candidates.on_idle(forecast, newcomer, hosts))
    victims = single_victims(snapshot, newcomer)
    shrinks = [targets for targets in victims if targets[0].host in allowed]
    overdue = newcomer.spec.max_wait_s is not None
    if overdue and not idle and not shrinks:
        several = candidates.from_several(forecast, newcomer, hosts, legal_moves.donors(snapshot))
        shrinks = list(map(asked, several))
    quiet = [(*reference.evaluate(t), order(snapshot, t), t) for t in map(asked, idle)]
    base = min(quiet) if quiet else (*reference.evaluate(()), (), ())
    ends = {job.id: reference.predictor.unchanged(job).total_s for job in snapshot.running}
    found = [base]
    for targets in shrinks:
        makespan, total = reference.evaluate(targets)
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
    if snapshot.mechanism is Mechanism.NONE:
        return found
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
@settings(max_examples=examples(400), deadline=None)
def test_the_choice_is_that_of_the_full_definition(snapshot: Snapshot) -> None:
    """The first newcomer decides, or nobody: overdue ones first."""
    late = [job for job in snapshot.queued if job.spec.max_wait_s is not None]
    queue = [*late, *(job for job in snapshot.queued if job not in late)]
    if not queue:
        return
    wanted = best_of_all(snapshot, queue[0])
    plan = Adaptive().decide(snapshot)
    if wanted:
        assert plan.targets == wanted
    else:
        assert all(target.job != queue[0].id for target in plan.targets)


@given(snapshot=clusters(queued=8), listed=LISTED)
@settings(max_examples=examples(400), deadline=None)
def test_the_quick_forecast_weighs_every_option_as_the_definition_does(
    snapshot: Snapshot, listed: int
) -> None:
    """``listed``: how many queued jobs are scheduled one by one; the others are an area."""
    forecast = Forecast(snapshot, Predictor(snapshot), listed)
    hosts = list(snapshot.hosts)
    for newcomer in snapshot.queued:
        if all(host.usable < min(newcomer.sizes) for host in hosts):
            continue
        reference = Reference(snapshot, newcomer.id, listed)
        outlook = forecast.outlook(newcomer)
        assert outlook.waits() == reference.evaluate(())
        donors = legal_moves.donors(snapshot)
        for option in (
            *candidates.on_idle(forecast, newcomer, hosts),
            *candidates.from_one(forecast, newcomer, hosts, donors),
            *candidates.from_several(forecast, newcomer, hosts, donors),
        ):
            weighed = outlook.evaluate(option.ends, option.changes)
            assert weighed == reference.evaluate(asked(option)), asked(option)
            bound = outlook.bound(option.ends, option.changes)
            assert bound[0] <= weighed[0]
            assert bound[1] <= weighed[1]
        giving = Donors(forecast, [], lambda left: 1)
        swept = evaluate_shrinks(outlook, newcomer, hosts, giving, outlook.waits(), gate=False)
        ranked = sorted(swept.worth + swept.others)
        single = {
            asked(option): option
            for option in candidates.from_one(forecast, newcomer, hosts, donors)
        }
        again = [single[rank.targets].ranked(*reference.evaluate(rank.targets)) for rank in ranked]
        assert again == ranked
        costly = map(asked, swept.costly)
        assert {*(rank.targets for rank in ranked), *costly} == set(single)
        assert all(rank[:2] < outlook.waits() for rank in swept.worth)
    grown = forecast.outlook()
    reference = Reference(snapshot, None, listed)
    for option in candidates.growths(forecast, hosts):
        assert grown.evaluate(option.ends, option.changes) == reference.evaluate(asked(option))
    swept = evaluate_growths(grown, hosts, growth_of(forecast, lambda left: 1), grown.waits())
    ruled_out = weigh_far(swept)
    assert not ruled_out.worth
    ranked = swept.worth + swept.others + ruled_out.others
    wanted = {asked(option): option for option in candidates.growths(forecast, hosts)}
    again = [wanted[rank.targets].ranked(*reference.evaluate(rank.targets)) for rank in ranked]
    assert again == ranked
    assert {*(rank.targets for rank in ranked), *map(asked, swept.costly)} == set(wanted)


def growth_of(forecast: Forecast, least_ms: Callable[[int], int]) -> Growth:
    return Growth(forecast.snapshot, forecast.predictor, least_ms)


def asked(option: Candidate) -> tuple[Target, ...]:
    """What a plan that takes an option asks for; this does not depend on what it brings."""
    return option.ranked(0, 0).targets


def weigh_far(swept: SweptOptions) -> SweptOptions:
    """Every option of the jobs that a sweep ruled out."""
    return (
        swept.far.options.evaluate([job for _, job in swept.far.jobs])
        if swept.far
        else SweptOptions([], [], [])
    )


@given(
    snapshot=st.one_of(clusters(queued=8), clusters(queued=4, alike=True)),
    least=st.sampled_from([1, 100, 5000]),
    listed=LISTED,
)
@settings(max_examples=examples(1500), deadline=None)
def test_jobs_are_ruled_out_only_if_none_of_their_options_could_save_enough(
    snapshot: Snapshot, least: int, listed: int
) -> None:
    """``least``: what a reshape has to save (ms), and a twentieth of what its job has left."""

    def least_ms(left_ms: int) -> int:
        return least + left_ms // 20

    forecast = Forecast(snapshot, Predictor(snapshot), listed)
    hosts = list(snapshot.hosts)
    giving = Donors(forecast, [], least_ms)
    for newcomer in snapshot.queued:
        if all(host.usable < min(newcomer.sizes) for host in hosts):
            continue
        outlook = forecast.outlook(newcomer)
        idle = list(candidates.on_idle(forecast, newcomer, hosts))
        base = Evaluation(outlook, least_ms, "wait", idle).base[:2]
        every = evaluate_shrinks(outlook, newcomer, hosts, giving, base, gate=False)
        swept = evaluate_shrinks(outlook, newcomer, hosts, giving, base, gate=True)
        ruled_out = weigh_far(swept)
        assert not ruled_out.worth
        assert not ruled_out.costly
        assert sorted(swept.worth) == sorted(every.worth)
        assert sorted(swept.others + ruled_out.others) == sorted(every.others)
        assert set(map(asked, swept.costly)) == set(map(asked, every.costly))


@given(
    snapshot=st.one_of(clusters(queued=0), clusters(queued=0, alike=True)),
    least=st.sampled_from([1, 100, 5000]),
)
@settings(max_examples=examples(1500), deadline=None)
def test_jobs_do_not_grow_without_a_look_only_if_no_growth_could_save_enough(
    snapshot: Snapshot, least: int
) -> None:
    forecast = Forecast(snapshot, Predictor(snapshot))
    outlook, hosts = forecast.outlook(), list(snapshot.hosts)
    growth = growth_of(forecast, lambda left: least + left // 20)
    swept = evaluate_growths(outlook, hosts, growth, outlook.waits())
    ruled_out = weigh_far(swept)
    assert not ruled_out.worth
    weighed = swept.worth + swept.others + ruled_out.others
    wanted = set(map(asked, candidates.growths(forecast, hosts)))
    assert {rank.targets for rank in weighed} == wanted


@given(snapshot=clusters())
@settings(max_examples=examples(150), deadline=None)
def test_brute_force_finds_the_same_single_victims(snapshot: Snapshot) -> None:
    forecast = Forecast(snapshot, Predictor(snapshot))
    donors = legal_moves.donors(snapshot)
    for newcomer in snapshot.queued:
        found = candidates.from_one(forecast, newcomer, list(snapshot.hosts), donors)
        assert set(map(asked, found)) == set(single_victims(snapshot, newcomer))


@given(
    left=st.lists(st.integers(1, 60), max_size=8), queue=st.lists(st.integers(1, 60), max_size=8)
)
@settings(max_examples=examples(300), deadline=None)
def test_jobs_of_one_gpu_take_the_gpus_that_are_free_first(
    left: list[int], queue: list[int]
) -> None:
    """One host with eight GPUs; seconds."""
    cluster = Cluster(hosts={"a": ("V100", 8)})
    for number, seconds in enumerate(left):
        cluster.runs(f"run-{number}", 1, speed={1: 1.0}, left=seconds)
    for number, seconds in enumerate(queue):
        cluster.waits(f"new-{number}", speed={1: 1.0}, left=seconds)
    free = sorted([*left, *[0] * (8 - len(left))])
    ends = []
    for seconds in queue:
        ends.append(free.pop(0) + seconds)
        free = sorted([*free, ends[-1]])
    snapshot = cluster.snapshot()
    _, listed = Forecast(snapshot, Predictor(snapshot)).queue
    assert listed.ends_ms == [1000 * end for end in ends]
    assert (listed.sum_ms, listed.last_ms) == (1000 * sum(ends), 1000 * max(ends, default=0))
    assert listed.busy_ms == 1000 * sum(queue)


@given(snapshot=clusters(), steps=st.integers(1, 400))
@settings(max_examples=examples(100), deadline=None)
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
    assert Reference(snapshot).evaluate(()) <= Reference(worse).evaluate(())
    quick = [Forecast(s, Predictor(s)).outlook().waits() for s in (snapshot, worse)]
    assert quick[0] <= quick[1]
