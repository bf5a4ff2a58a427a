"""The forecast and the bounds against the definition of the makespan, on random clusters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from heapq import nsmallest
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import JobView, Snapshot, Target
from reshape_controller.policies import make_policy
from reshape_controller.scheduling import candidates, gang_moves, gang_options, legal_moves
from reshape_controller.scheduling.bounds import DonorBounds, GrowthBounds
from reshape_controller.scheduling.candidates import Candidate
from reshape_controller.scheduling.donors import Donors
from reshape_controller.scheduling.evaluation import (
    EvaluatedOptions,
    Evaluation,
    evaluate_growths,
    evaluate_shrinks,
)
from reshape_controller.scheduling.forecast import Forecast, Outlook
from reshape_controller.scheduling.predictor import Predictor
from reshape_controller.scheduling.rules import V1, Objective, Rules
from tests.property.random_clusters import alike, clusters, fit_hosts
from tests.support.clusters import Cluster, Reference
from tests.support.gate import examples

HEAD_MAX = st.sampled_from([1, 3, 64])
"""How many queued jobs are list-scheduled; the others count as an area."""
RULES = st.sampled_from(
    [
        V1,
        Rules(moves_to_any_size=True),
        Rules(moves_to_any_size=True, lends=True),
        Rules(moves_to_any_size=True, lends=True, objective=Objective.SUM),
    ]
)


def best_of_all(snapshot: Snapshot, newcomer: JobView) -> tuple[Target, ...]:
    """Return what ``adaptive`` has to choose for a newcomer, by the definition alone."""
    reference = Reference(snapshot, newcomer.id)
    forecast = Forecast(snapshot, Predictor(snapshot))
    hosts = fit_hosts(snapshot, newcomer)
    allowed = [host.id for host in hosts]
    idle = list(candidates.idle_starts(forecast, newcomer, hosts))
    single = single_donor_targets(snapshot, newcomer)
    shrinks = [targets for targets in single if targets[0].host in allowed]
    overdue = newcomer.spec.max_wait_s is not None
    if not idle and not shrinks:
        several = candidates.multi_donor_starts(
            forecast, newcomer, hosts, legal_moves.donors(snapshot)
        )
        shrinks = list(map(targets_of, several))
    idle_starts = [(*reference.evaluate(t), order(snapshot, t), t) for t in map(targets_of, idle)]
    base = min(idle_starts) if idle_starts else (*reference.evaluate(()), (), ())
    ends = {job.id: reference.predictor.unchanged(job).total_s for job in snapshot.running}
    found = [base]
    for targets in shrinks:
        makespan, total = reference.evaluate(targets)
        left_ms = max(round(ends[target.job] * 1000) for target in targets[1:])
        if overdue or saves_enough((makespan, total), base[:2], left_ms):
            found.append((makespan, total, order(snapshot, targets), targets))
    if overdue and (idle_starts or shrinks):
        found = [entry for entry in found if entry[3]] + idle_starts
    return min(found)[3]


def saves_enough(option: tuple[int, int], base: tuple[int, int], left_ms: int) -> bool:
    """Whether an option saves a twentieth of the remaining time: in the makespan, or in the sum of
    completion times at the same makespan."""
    least = max(1, math.ceil(left_ms / 20))
    assert V1.min_saving_ms(left_ms) == least
    return base[0] - option[0] >= least or (base[0] >= option[0] and base[1] - option[1] >= least)


def order(snapshot: Snapshot, targets: tuple[Target, ...]) -> tuple[object, ...]:
    first, *others = targets
    shrinks = tuple((target.job, target.size) for target in others)
    sizes = {job.id: job.size for job in snapshot.running}
    given = sum(sizes[target.job] - target.size for target in others)
    return (max(first.size, given), first.job, first.size, first.host, shrinks)


def single_donor_targets(snapshot: Snapshot, newcomer: JobView) -> list[tuple[Target, ...]]:
    """Return the starts with one donor, by brute force over every host, donor, size, and size of
    the donor. A donor that can release exactly enough does so; another releases as little more as
    it can."""
    found: list[tuple[Target, ...]] = []
    if snapshot.mechanism is Mechanism.NONE:
        return found
    for host, donor in itertools.product(snapshot.hosts, snapshot.running):
        if donor.host != host.id or donor.frozen:
            continue
        enough = [
            (size, keeps, donor.size - keeps)
            for size, keeps in itertools.product(newcomer.sizes, donor.sizes)
            if keeps < donor.size and 0 < size - host.idle <= donor.size - keeps
        ]
        if any(gives <= size for size, _, gives in enough):
            enough = [entry for entry in enough if entry[2] <= entry[0]]
        else:
            least = {n: min(g for size, _, g in enough if size == n) for n, _, _ in enough}
            enough = [entry for entry in enough if entry[2] == least[entry[0]]]
        for size, keeps, _ in enough:
            found.append((Target(newcomer.id, size, host.id), Target(donor.id, keeps, host.id)))
    return found


@given(snapshot=clusters(queued=3))
@settings(max_examples=examples(400), deadline=None)
def test_the_choice_is_that_of_the_full_definition(snapshot: Snapshot) -> None:
    """Only the first newcomer is compared; overdue ones come first."""
    late = [job for job in snapshot.queued if job.spec.max_wait_s is not None]
    queue = [*late, *(job for job in snapshot.queued if job not in late)]
    if not queue:
        return
    wanted = best_of_all(snapshot, queue[0])
    plan = make_policy("adaptive-v1").decide(snapshot)
    if wanted:
        assert plan.targets == wanted
    else:
        assert all(target.job != queue[0].id for target in plan.targets)


@given(
    snapshot=st.one_of(clusters(queued=8), clusters(queued=8, spans=True)),
    rules=RULES,
    head_max=HEAD_MAX,
)
@settings(max_examples=examples(400), deadline=None)
def test_the_forecast_evaluates_every_option_as_the_definition_does(
    snapshot: Snapshot, rules: Rules, head_max: int
) -> None:
    """``head_max``: how many queued jobs are list-scheduled."""
    forecast = Forecast(snapshot, Predictor(snapshot), rules, head_max)
    hosts = list(snapshot.hosts)
    for newcomer in snapshot.queued:
        reference = Reference(snapshot, newcomer.id, head_max, rules)
        if not reference.fits(newcomer):
            continue
        outlook = forecast.outlook(newcomer)
        assert outlook.without_change() == reference.evaluate(())
        donors = legal_moves.donors(snapshot)
        for option in (
            *candidates.idle_starts(forecast, newcomer, hosts),
            *candidates.single_donor_starts(forecast, newcomer, hosts, donors),
            *candidates.multi_donor_starts(forecast, newcomer, hosts, donors),
        ):
            check_evaluation(outlook, reference, option)
        bounds = DonorBounds(Donors(forecast, [], lambda left: 1))
        options = evaluate_shrinks(
            outlook, newcomer, hosts, bounds, outlook.without_change(), prune=False
        )
        ranked = sorted(options.worthwhile + options.others)
        single = {
            targets_of(option): option
            for option in candidates.single_donor_starts(forecast, newcomer, hosts, donors)
        }
        again = [single[rank.targets].ranked(*reference.evaluate(rank.targets)) for rank in ranked]
        assert again == ranked
        pending = map(targets_of, options.pending)
        assert {*(rank.targets for rank in ranked), *pending} == set(single)
        assert all(rank[:2] < outlook.without_change() for rank in options.worthwhile)
    grown = forecast.outlook()
    reference = Reference(snapshot, None, head_max, rules)
    for option in candidates.growths(forecast, hosts):
        assert grown.evaluate(option.ends, option.changes) == reference.evaluate(targets_of(option))
    options = evaluate_growths(
        grown, hosts, growth_of(forecast, lambda left: 1), grown.without_change()
    )
    pruned = evaluate_pruned(options)
    assert not pruned.worthwhile
    ranked = options.worthwhile + options.others + pruned.others
    wanted = {targets_of(option): option for option in candidates.growths(forecast, hosts)}
    again = [wanted[rank.targets].ranked(*reference.evaluate(rank.targets)) for rank in ranked]
    assert again == ranked
    assert {*(rank.targets for rank in ranked), *map(targets_of, options.pending)} == set(wanted)


@given(snapshot=clusters(queued=4, spans=True), rules=RULES, head_max=HEAD_MAX)
@settings(max_examples=examples(400), deadline=None)
def test_options_on_several_hosts_are_evaluated_as_the_definition_does(
    snapshot: Snapshot, rules: Rules, head_max: int
) -> None:
    forecast = Forecast(snapshot, Predictor(snapshot), rules, head_max)
    hosts = list(snapshot.hosts)
    gangs = gang_moves.donors(snapshot, [job for job in snapshot.running if job.shares])
    donors = [job for each in legal_moves.donors(snapshot).values() for job in each]
    for newcomer in snapshot.queued:
        reference = Reference(snapshot, newcomer.id, head_max, rules)
        if not reference.fits(newcomer):
            continue
        outlook = forecast.outlook(newcomer)
        for option in (
            *gang_options.idle_starts(forecast, newcomer, hosts),
            *gang_options.donor_starts(forecast, newcomer, hosts, donors, gangs),
            *gang_options.several_donors_starts(forecast, newcomer, hosts, [*gangs, *donors]),
        ):
            check_evaluation(outlook, reference, option)
    grown, reference = forecast.outlook(), Reference(snapshot, None, head_max, rules)
    moves = gang_options.move_targets(snapshot, snapshot.running, hosts)
    for option in (
        *gang_options.growths(forecast, gangs, hosts),
        *(gang_options.move(forecast, target) for target in moves),
    ):
        assert grown.evaluate(option.ends, option.changes) == reference.evaluate(targets_of(option))


def check_evaluation(outlook: Outlook, reference: Reference, option: Candidate) -> None:
    """An option is evaluated as the definition does, and its bound is not above that."""
    evaluated = outlook.evaluate(option.ends, option.changes)
    assert evaluated == reference.evaluate(targets_of(option)), targets_of(option)
    bound = outlook.lower_bound(option.ends, option.changes)
    assert bound[0] <= evaluated[0]
    assert bound[1] <= evaluated[1]


def growth_of(forecast: Forecast, min_saving_ms: Callable[[int], int]) -> GrowthBounds:
    return GrowthBounds(forecast.snapshot, forecast.predictor, min_saving_ms, forecast.rules)


def targets_of(option: Candidate) -> tuple[Target, ...]:
    """Return the targets of a plan that takes the option; they do not depend on its evaluation."""
    return option.ranked(0, 0).targets


def evaluate_pruned(options: EvaluatedOptions) -> EvaluatedOptions:
    """Evaluate every option of the pruned jobs."""
    return (
        options.pruned.evaluator.evaluate([job for _, job in options.pruned.jobs])
        if options.pruned
        else EvaluatedOptions()
    )


@given(
    snapshot=st.one_of(
        clusters(queued=8), clusters(queued=4, few_types=True), clusters(queued=8, spans=True)
    ),
    least=st.sampled_from([1, 100, 5000]),
    rules=RULES,
    head_max=HEAD_MAX,
)
@settings(max_examples=examples(1500), deadline=None)
def test_donors_are_pruned_only_if_none_of_their_options_saves_enough(
    snapshot: Snapshot, least: int, rules: Rules, head_max: int
) -> None:
    """``least``: what a reshape has to save (ms), and a twentieth of what its job has left."""

    def min_saving_ms(left_ms: int) -> int:
        return least + left_ms // 20

    forecast = Forecast(snapshot, Predictor(snapshot), rules, head_max)
    hosts = list(snapshot.hosts)
    bounds = DonorBounds(Donors(forecast, [], min_saving_ms))
    for newcomer in snapshot.queued:
        if not Reference(snapshot).fits(newcomer):
            continue
        outlook = forecast.outlook(newcomer)
        idle = list(candidates.idle_starts(forecast, newcomer, hosts))
        base = Evaluation(outlook, min_saving_ms, "wait", idle).baseline[:2]
        every = evaluate_shrinks(outlook, newcomer, hosts, bounds, base, prune=False)
        options = evaluate_shrinks(outlook, newcomer, hosts, bounds, base, prune=True)
        pruned = evaluate_pruned(options)
        assert not pruned.worthwhile
        assert not pruned.pending
        assert sorted(options.worthwhile) == sorted(every.worthwhile)
        assert sorted(options.others + pruned.others) == sorted(every.others)
        assert set(map(targets_of, options.pending)) == set(map(targets_of, every.pending))


@given(
    snapshot=st.one_of(alike(), clusters(queued=4, few_types=True)),
    least=st.sampled_from([1, 5000]),
    rules=RULES,
    head_max=HEAD_MAX,
    shown=st.sampled_from([1, 3]),
    explain=st.booleans(),
)
@settings(max_examples=examples(1500), deadline=None)
def test_an_evaluation_that_ends_early_has_the_best_options_and_counts_the_others(
    snapshot: Snapshot, least: int, rules: Rules, head_max: int, shown: int, explain: bool
) -> None:
    """``shown``: how many options a plan shows."""

    def min_saving_ms(left_ms: int) -> int:
        return least + left_ms // 20

    snapshot = replace(snapshot, explain=explain)
    forecast = Forecast(snapshot, Predictor(snapshot), rules, head_max)
    hosts = [host for host in snapshot.hosts if not host.idle]  # elsewhere no donor is left out
    bounds = DonorBounds(Donors(forecast, [], min_saving_ms))
    for newcomer in snapshot.queued if hosts else ():
        if not Reference(snapshot).fits(newcomer):
            continue
        outlook = forecast.outlook(newcomer)
        base = Evaluation(outlook, min_saving_ms, "wait", []).baseline[:2]
        every = evaluate_shrinks(outlook, newcomer, hosts, bounds, base, prune=False)
        with patch.object(legal_moves, "OPTIONS_MAX", shown):
            options = evaluate_shrinks(outlook, newcomer, hosts, bounds, base, prune=True)
            pruned = evaluate_pruned(options)
        assert min(options.worthwhile, default=None) == min(every.worthwhile, default=None)
        assert set(map(targets_of, options.pending)) == set(map(targets_of, every.pending))
        if explain:
            found = options.worthwhile + options.others + pruned.others
            assert nsmallest(shown, found) == nsmallest(shown, every.worthwhile + every.others)
            pruned_jobs = len(options.pruned.jobs) if options.pruned else 0
            assert options.count - pruned_jobs + pruned.count == every.count


@given(
    snapshot=st.one_of(
        clusters(queued=0), clusters(queued=0, few_types=True), clusters(queued=0, spans=True)
    ),
    least=st.sampled_from([1, 100, 5000]),
    rules=RULES,
)
@settings(max_examples=examples(1500), deadline=None)
def test_growths_are_pruned_only_if_none_saves_enough(
    snapshot: Snapshot, least: int, rules: Rules
) -> None:
    forecast = Forecast(snapshot, Predictor(snapshot), rules)
    outlook, hosts = forecast.outlook(), list(snapshot.hosts)
    growth = growth_of(forecast, lambda left: least + left // 20)
    options = evaluate_growths(outlook, hosts, growth, outlook.without_change())
    pruned = evaluate_pruned(options)
    assert not pruned.worthwhile
    evaluated = options.worthwhile + options.others + pruned.others
    wanted = set(map(targets_of, candidates.growths(forecast, hosts)))
    assert {rank.targets for rank in evaluated} == wanted


@given(snapshot=clusters())
@settings(max_examples=examples(150), deadline=None)
def test_brute_force_finds_the_same_single_donor_targets(snapshot: Snapshot) -> None:
    forecast = Forecast(snapshot, Predictor(snapshot))
    donors = legal_moves.donors(snapshot)
    for newcomer in snapshot.queued:
        found = candidates.single_donor_starts(forecast, newcomer, list(snapshot.hosts), donors)
        assert set(map(targets_of, found)) == set(single_donor_targets(snapshot, newcomer))


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
    _, schedule = Forecast(snapshot, Predictor(snapshot)).queue
    assert schedule.ends_ms == [1000 * end for end in ends]
    assert (schedule.sum_ms, schedule.last_ms) == (1000 * sum(ends), 1000 * max(ends, default=0))
    assert schedule.busy_ms == 1000 * sum(queue)


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
    quick = [Forecast(s, Predictor(s)).outlook().without_change() for s in (snapshot, worse)]
    assert quick[0] <= quick[1]
