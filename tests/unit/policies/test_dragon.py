"""``dragon`` and ``weighted`` by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import JobView, Policy, Snapshot
from reshape_controller.policies import UnknownPolicy, make_policy
from reshape_controller.scheduling.prices import weight
from tests.support.clusters import FLAT, Cluster, sizes_by_job, with_lengths

DRAGON = make_policy("dragon")
AGED = make_policy("weighted")
PRINTED = make_policy("weighted:utility=printed")
NOW_S = 10_000.0


def first_of_all(cluster: Cluster, job: str, **fields: object) -> Cluster:
    """Change fields of a job of the cluster; ``priority`` is that of its record."""
    for jobs in (cluster.queued, cluster.running):
        for number, view in enumerate(jobs):
            if view.id == job:
                priority = fields.pop("priority", view.spec.priority)
                spec = replace(view.spec, priority=priority)  # type: ignore[arg-type]
                jobs[number] = replace(view, spec=spec, **fields)  # type: ignore[arg-type]
    cluster.queued.sort(key=lambda view: (-view.spec.priority, view.place))
    return cluster


def test_dragon_starts_the_first_that_fits_and_counts_no_priority() -> None:
    cluster = Cluster().runs("job", 2, sizes=(2,))
    cluster.waits("wide", sizes=(4,)).waits("old", sizes=(2,)).waits("new", sizes=(1,))
    first_of_all(cluster, "new", priority=9)
    assert sizes_by_job(DRAGON.decide(cluster.snapshot()).targets) == {"old": 2}


def waiting(wait_s: float, *, size: int = 4, max_wait_s: float | None = None) -> Snapshot:
    """Two jobs that may shrink hold a host of eight; ``new`` has waited."""
    cluster = Cluster({"a": ("V100", 8)})
    cluster.runs("early", 4, sizes=(2, 4), runs_since_s=9_000.0)
    cluster.runs("late", 4, sizes=(1, 2, 4), runs_since_s=9_500.0)
    submitted_at_s = NOW_S - wait_s
    cluster.waits("new", sizes=(size,), submitted_at_s=submitted_at_s, max_wait_s=max_wait_s)
    cluster.waits("small", sizes=(8,))
    return cluster.snapshot()


def test_running_jobs_shrink_for_an_urgent_one_the_newest_first_and_no_further_than_needed() -> (
    None
):
    assert sizes_by_job(DRAGON.decide(waiting(300.0, size=1)).targets) == {"new": 1, "late": 2}
    assert sizes_by_job(DRAGON.decide(waiting(300.0, size=2)).targets) == {"new": 2, "late": 2}
    assert sizes_by_job(DRAGON.decide(waiting(300.0)).targets) == {"new": 4, "late": 1, "early": 2}
    too_soon = DRAGON.decide(waiting(299.0))
    assert (too_soon.targets, too_soon.wake_at_s) == ((), 10_001.0)
    assert DRAGON.decide(waiting(10.0, max_wait_s=10.0)).reason_code == "shrinks-for-urgent"


def test_a_donor_of_which_nothing_is_needed_gives_nothing() -> None:
    """late could give one, early gives both that are missing."""
    cluster = Cluster({"a": ("V100", 8)})
    cluster.runs("early", 4, sizes=(2, 4), runs_since_s=9_000.0)
    cluster.runs("late", 4, sizes=(3, 4), runs_since_s=9_500.0)
    cluster.waits("new", sizes=(2,), submitted_at_s=0.0)
    assert sizes_by_job(DRAGON.decide(cluster.snapshot()).targets) == {"new": 2, "early": 2}


def test_if_all_at_their_smallest_sizes_are_not_enough_nothing_changes() -> None:
    plan = DRAGON.decide(waiting(300.0, size=6))
    assert (plan.targets, plan.about, plan.reason_code) == ((), "new", "waits-nothing-fits")
    assert plan.text == "new is urgent, and no shrinks would free 6 GPUs of a host"


def test_while_an_urgent_job_waits_no_other_starts_unless_no_host_could_ever_hold_it() -> None:
    cluster = Cluster().runs("job", 2, sizes=(2,))
    cluster.waits("urgent", sizes=(4,), submitted_at_s=0.0).waits("new", sizes=(1,))
    assert DRAGON.decide(cluster.snapshot()).targets == ()
    wider = Cluster().waits("urgent", sizes=(8,), submitted_at_s=0.0).waits("new", sizes=(1,))
    assert sizes_by_job(DRAGON.decide(wider.snapshot()).targets) == {"new": 1}


def idle_since(seconds: float) -> Cluster:
    """Five of eight GPUs are idle, and the last start was so many seconds ago."""
    cluster = Cluster({"a": ("V100", 8)})
    cluster.runs("one", 1, sizes=(1, 2, 4), runs_since_s=NOW_S - 500.0)
    cluster.runs("two", 2, sizes=(2, 4, 8), runs_since_s=NOW_S - seconds)
    return cluster


def test_running_jobs_grow_in_turn_once_nothing_has_started_for_a_minute() -> None:
    """one 1 to 2 (4 idle left), two 2 to 4 (2 left), one 2 to 4 (0 left)."""
    assert sizes_by_job(DRAGON.decide(idle_since(60.0).snapshot()).targets) == {"one": 4, "two": 4}
    too_soon = DRAGON.decide(idle_since(59.0).snapshot())
    assert (too_soon.targets, too_soon.wake_at_s) == ((), 10_001.0)
    reshaped = first_of_all(idle_since(60.0), "one", reshaped_at_s=NOW_S - 10.0)
    assert DRAGON.decide(reshaped.snapshot()).wake_at_s == 10_050.0


def test_with_an_infinite_time_no_job_grows_and_no_wake_up_is_asked_for() -> None:
    plan = make_policy("dragon:up_after_s=inf").decide(idle_since(1e6).snapshot())
    assert (plan.targets, plan.wake_at_s) == ((), None)


def test_jobs_grow_no_further_than_there_is_room() -> None:
    """Of four idle GPUs one takes 1 and two takes 2; the next step of one needs 2."""
    cluster = idle_since(60.0)
    cluster.hosts = {"a": ("V100", 7)}
    assert sizes_by_job(DRAGON.decide(cluster.snapshot()).targets) == {"one": 2, "two": 4}


def test_a_job_of_unknown_length_grows_too() -> None:
    unknown = first_of_all(idle_since(60.0), "two", growable=False, frozen=True)
    first_of_all(unknown, "one", growable=False)
    assert sizes_by_job(DRAGON.decide(unknown.snapshot()).targets) == {"one": 4}


def test_a_job_without_room_moves_to_a_host_of_its_gpu_type() -> None:
    cluster = Cluster({"a": ("V100", 2), "b": ("K80", 8), "c": ("V100", 4)})
    cluster.runs("job", 2, sizes=(2, 4), speed=FLAT, runs_since_s=0.0)
    (target,) = DRAGON.decide(cluster.snapshot()).targets
    assert (target.size, target.host) == (4, "c")
    first_of_all(cluster, "job", only_host="a")
    assert DRAGON.decide(cluster.snapshot()).targets == ()


def test_without_a_mechanism_no_running_job_changes() -> None:
    grown = replace(idle_since(60.0).snapshot(), mechanism=Mechanism.NONE)
    shrunk = replace(waiting(300.0), mechanism=Mechanism.NONE)
    assert DRAGON.decide(grown).targets == DRAGON.decide(shrunk).targets == ()
    assert AGED.decide(grown).targets == ()


def test_weighted_takes_the_highest_priority_then_the_largest_request() -> None:
    cluster = Cluster({"a": ("V100", 8)})
    cluster.waits("old", sizes=(1,)).waits("large", sizes=(4,)).waits("first", sizes=(2,))
    first_of_all(cluster, "first", priority=1)
    order = []
    while cluster.queued:
        (target,) = PRINTED.decide(cluster.snapshot()).targets
        order.append(target.job)
        cluster.queued = [job for job in cluster.queued if job.id != target.job]
    assert order == ["first", "large", "old"]


def test_weighted_grows_running_jobs_as_soon_as_nothing_can_start() -> None:
    cluster = idle_since(0.0)
    cluster.waits("wide", sizes=(8,))
    assert sizes_by_job(PRINTED.decide(cluster.snapshot()).targets) == {"one": 4, "two": 4}


def outranking(priority: int) -> Cluster:
    """``high`` needs four GPUs of a host of eight that three jobs hold."""
    cluster = Cluster({"a": ("V100", 8)})
    for name, runs_since_s in (("equal", 100.0), ("low", 200.0)):
        cluster.runs(name, 4, sizes=(2, 4), runs_since_s=runs_since_s)
    first_of_all(cluster, "equal", priority=5)
    cluster.waits("high", sizes=(4,))
    return first_of_all(cluster, "high", priority=priority)


def test_weighted_shrinks_jobs_for_one_that_outranks_any_of_them_the_lowest_first() -> None:
    both = {"high": 4, "low": 2, "equal": 2}
    assert sizes_by_job(PRINTED.decide(outranking(5).snapshot()).targets) == both
    assert sizes_by_job(AGED.decide(outranking(6).snapshot()).targets) == both
    assert AGED.decide(outranking(5).snapshot()).targets == (), "its equal gives nothing"
    assert PRINTED.decide(outranking(0).snapshot()).targets == (), "it outranks none"


def test_while_a_high_job_waits_no_other_starts() -> None:
    cluster = Cluster({"a": ("V100", 8)}).runs("low", 4, sizes=(3, 4)).runs("rigid", 2, sizes=(2,))
    cluster.waits("high", sizes=(4,)).waits("small", sizes=(1,))
    first_of_all(cluster, "high", priority=1)
    assert (
        PRINTED.decide(cluster.snapshot()).targets == AGED.decide(cluster.snapshot()).targets == ()
    )
    first_of_all(cluster, "low", sizes=(4,))
    assert sizes_by_job(PRINTED.decide(cluster.snapshot()).targets) == {"small": 1}


@pytest.mark.parametrize("policy", [AGED, PRINTED])
def test_while_a_high_job_waits_no_running_job_takes_the_idle_gpus(policy: Policy) -> None:
    """Six of eight GPUs are held; ``high`` needs four, ``low`` cannot give two."""
    cluster = Cluster({"a": ("V100", 8)})
    cluster.runs("higher", 1, sizes=(1, 2)).runs("low", 3, sizes=(2, 3)).runs(
        "rigid", 2, sizes=(2,)
    )
    cluster.waits("high", sizes=(4,)).waits("small", sizes=(1,))
    for job, priority in (("higher", 9), ("high", 5)):
        first_of_all(cluster, job, priority=priority)
    plan = policy.decide(cluster.snapshot())
    assert (plan.targets, plan.about, plan.text) == ((), "high", "high waits for 4 GPUs")


def test_waiting_raises_the_rank_and_a_reshaped_job_cools_down_only_if_aged() -> None:
    old = first_of_all(outranking(0), "high", submitted_at_s=NOW_S - 6 * 3600.0)
    assert sizes_by_job(AGED.decide(old.snapshot()).targets) == {"high": 4, "low": 2, "equal": 2}
    assert PRINTED.decide(old.snapshot()).targets == ()
    young = AGED.decide(outranking(0).snapshot())
    assert (young.targets, young.wake_at_s) == ((), NOW_S + 3600.0)
    cools = first_of_all(outranking(6), "low", reshaped_at_s=NOW_S - 40.0, reshape_cost_s=10.0)
    assert (AGED.decide(cools.snapshot()).targets, AGED.decide(cools.snapshot()).wake_at_s) == (
        (),
        NOW_S + 10.0,
    )
    assert sizes_by_job(PRINTED.decide(cools.snapshot()).targets)["low"] == 2


def test_a_job_outranks_all_after_its_own_max_wait_if_aged() -> None:
    both = {"new": 4, "late": 1, "early": 2}
    assert sizes_by_job(AGED.decide(waiting(10.0, max_wait_s=10.0)).targets) == both
    assert AGED.decide(waiting(9.0, max_wait_s=10.0)).wake_at_s == NOW_S + 1.0
    assert PRINTED.decide(waiting(10.0, max_wait_s=10.0)).targets == ()


def test_the_printed_weight_falls_with_criticality() -> None:
    assert weight(100) == 50.0
    assert weight(60) == 30.0
    assert weight(100, 1.0) == pytest.approx(26.894, abs=1e-3)
    assert weight(0) == weight(1) == 0.5


def priced(busy: int, left: int = 900) -> Snapshot:
    """On a host of four, ``cheap`` needs 3,600 s of one GPU and ``dear`` 100 s, each for a weight
    of 0.5; ``busy`` GPUs train as long as ``cheap`` would."""
    cluster = Cluster()
    if busy:
        cluster.runs("job", busy, speed={busy: 4.0}, left=left, runs_since_s=NOW_S)
    cluster.waits("cheap", speed={1: 4.0}, left=900).waits("dear", speed={1: 1.0}, left=100)
    return cluster.snapshot()


def test_prices_let_every_job_pass_on_idle_gpus_and_the_most_valuable_alone_later() -> None:
    """cheap is worth 0.5 / 3,600 per GPU-second, dear 0.5 / 100. With 3 of 4 GPUs allocated to a
    job worth 0.5 / 10,800, the price is that times 108 to the power of 3 / 4: 0.5 / 322."""
    policy = make_policy("weighted:admission=oasis")
    assert sizes_by_job(policy.decide(priced(0)).targets) == {"cheap": 1}
    plan = policy.decide(priced(3))
    assert sizes_by_job(plan.targets) == {"dear": 1}
    alone = replace(priced(3), queued=priced(3).queued[:1])
    waits = policy.decide(alone)
    assert sizes_by_job(waits.targets) == {"cheap": 1}, "none known is worth more"
    rich = replace(priced(3), queued=tuple(map(never_starts_dear, priced(3).queued)))
    assert (policy.decide(rich).targets, policy.decide(rich).about) == ((), "cheap")


def test_a_job_starts_at_any_price_after_its_own_max_wait() -> None:
    policy = make_policy("weighted:admission=oasis")
    queued = tuple(map(never_starts_dear, priced(3).queued))
    patient = replace(queued[0], spec=replace(queued[0].spec, max_wait_s=0.0))
    plan = policy.decide(replace(priced(3), queued=(patient, queued[1])))
    assert sizes_by_job(plan.targets) == {"cheap": 1}


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_common_error_of_all_lengths_changes_no_admission(factor: float) -> None:
    """Without costs, the values of all jobs and the price change by the same factor."""
    policy = make_policy("weighted:admission=oasis")
    for snapshot in (priced(0), priced(3), replace(priced(3), queued=priced(3).queued[:1])):
        wrong = with_lengths(snapshot, factor)
        assert policy.decide(wrong).targets == policy.decide(snapshot).targets


def test_without_lengths_the_smaller_start_is_worth_more_per_gpu_second() -> None:
    """Each job counts as 3,600 s on one GPU, so equal priorities and sizes are worth the same."""
    policy = make_policy("weighted:admission=oasis")
    unknown = with_lengths(priced(3), None)
    assert sizes_by_job(policy.decide(unknown).targets) == {"cheap": 1}


def never_starts_dear(job: JobView) -> JobView:
    """A job of four GPUs is known, and does not fit."""
    if job.id != "dear":
        return job
    return replace(job, sizes=(4,), spec=replace(job.spec, priority=100))


def test_a_wrong_setting_is_named_with_the_choices() -> None:
    assert make_policy("weighted:admission=oasis,utility=printed").name == (
        "weighted:utility=printed,admission=oasis"
    )
    assert make_policy("dragon:up_after_s=0").name == "dragon:up_after_s=0"
    for text, message in (
        ("weighted:utility=fair", "utility is 'fair', and must be one of aged, printed"),
        ("weighted:admission=none", "must be one of all, oasis"),
        ("dragon:down_after_s=-1", "down_after_s is -1, and must be 0 or more"),
        ("dragon:up_after_s=soon", "could not convert"),
    ):
        with pytest.raises(UnknownPolicy, match=message):
            make_policy(text)
