"""Each correction of ``adaptive`` beside what ``paper`` does with the same cluster, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Plan, Policy, Snapshot
from reshape_controller.policies import make_policy
from tests.support.clusters import COSTS, FLAT, LINEAR, PAPER, Cluster, sizes_by_job

ADAPTIVE = make_policy("adaptive")
V1 = make_policy("adaptive-v1")
"""For rules that lending changes: there a donor never gets its GPUs back."""
PAPERS = make_policy("paper")


def both(snapshot: Snapshot, ours: Policy = ADAPTIVE) -> tuple[dict[str, int], dict[str, int]]:
    """Return the sizes that ``paper`` and ``adaptive`` ask for."""
    paper, adaptive = (policy.decide(snapshot).targets for policy in (PAPERS, ours))
    return sizes_by_job(paper), sizes_by_job(adaptive)


def chosen_s(plan: Plan) -> float | None:
    assert plan.chosen is not None
    return plan.options[plan.chosen].makespan_s


def test_the_introductions_example_ends_after_1200_seconds_instead_of_2720() -> None:
    """Waiting: 800 * 0.85 for job1, then job2 on one GPU, its smallest size: 1000 * 2.04."""
    cluster = Cluster().runs("job1", 4, speed=PAPER, left=800).waits("job2", speed=PAPER)
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert sizes_by_job(plan.targets) == {"job2": 2, "job1": 2}
    options = [(sizes_by_job(option.targets), option.makespan_s) for option in plan.options]
    wanted: list[tuple[dict[str, int], object]] = [
        ({"job2": 2, "job1": 2}, pytest.approx(1200.0)),
        ({}, pytest.approx(680.0 + 2040.0)),
    ]
    assert options == wanted


def test_a_donor_may_give_less_than_its_smallest_size() -> None:
    cluster = Cluster({"a": ("V100", 8)})
    cluster.runs("job1", 8, speed={7: 1.2, 8: 1.0}).waits("job2", speed={1: 1.0})
    assert both(cluster.snapshot()) == ({}, {"job2": 1, "job1": 7})


def test_waiting_is_an_option_and_wins_where_the_donor_would_end_far_later() -> None:
    """job1 has 4000 s on four GPUs and 8000 on two; job2 would wait 4000 s for its 100."""
    cluster = Cluster().runs("job1", 4, left=2000).waits("job2", speed={2: 1.0}, left=100)
    assert both(cluster.snapshot(), V1) == ({"job2": 2, "job1": 2}, {})
    plan = V1.decide(cluster.snapshot())
    assert plan.reason_code == "waits-gain-too-small"
    assert plan.about == "job2"
    assert plan.options[0].targets == ()
    assert plan.options[0].makespan_s == pytest.approx(4100.0)


def test_doing_nothing_is_an_option_where_more_gpus_are_slower() -> None:
    cluster = Cluster().runs("job", 2, speed={2: 1.0, 4: 1.5})
    assert both(cluster.snapshot()) == ({"job": 4}, {})


def test_of_equal_makespans_the_sum_of_completion_times_decides() -> None:
    """``new`` ends after 9000 s either way; giving costs ``first`` 800 s and ``second`` 20."""
    cluster = Cluster({"a": ("V100", 8)})
    cluster.runs("first", 4, left=400).runs("second", 4, left=10).waits("new", speed={2: 9.0})
    assert both(cluster.snapshot()) == ({"new": 2, "first": 2}, {"new": 2, "second": 2})


def test_the_queue_counts_so_a_newcomer_leaves_gpus_for_those_behind_it() -> None:
    """Four GPUs help the first newcomer little; the paper gives them all to it."""
    speed = {1: 1.0, 2: 0.9, 4: 0.8}
    cluster = Cluster()
    for name in ("n1", "n2", "n3", "n4"):
        cluster.waits(name, speed=speed)
    assert both(cluster.snapshot()) == ({"n1": 4}, {"n1": 1})


def test_gpus_that_no_queued_job_can_use_go_to_a_running_job() -> None:
    cluster = Cluster().runs("job", 2, speed={2: 2.0, 4: 1.0}).waits("new", speed={8: 1.0})
    assert both(cluster.snapshot()) == ({}, {"job": 4})


def test_a_job_behind_one_that_does_not_fit_is_started() -> None:
    cluster = Cluster().runs("job", 3, speed={3: 1.0})
    cluster.waits("big", speed={4: 1.0}).waits("small", speed={1: 1.0})
    assert sizes_by_job(ADAPTIVE.decide(cluster.snapshot()).targets) == {"small": 1}


def test_a_reshape_has_to_save_a_twentieth_of_what_its_donor_has_left() -> None:
    """Growing saves 4 % of the job's 1000 s here, then 6 %."""
    almost = Cluster().runs("job", 2, speed={2: 1.0, 4: 0.96})
    assert both(almost.snapshot()) == ({"job": 4}, {})
    enough = Cluster().runs("job", 2, speed={2: 1.0, 4: 0.94})
    assert both(enough.snapshot()) == ({"job": 4}, {"job": 4})


def test_the_gain_may_be_in_the_sum_while_the_makespan_stays() -> None:
    """Another job lasts 100000 s; growing this job costs the other nothing and halves its time."""
    cluster = Cluster({"a": ("V100", 8)})
    cluster.runs("endless", 4, left=50000, sizes=(4,)).runs("job", 2)
    assert sizes_by_job(ADAPTIVE.decide(cluster.snapshot()).targets) == {"job": 4}


def test_costs_are_in_the_prediction_and_count_once() -> None:
    """Growing takes 25 s off the training: 200 s become 100 + 25, a gain of 37 %."""
    cluster = Cluster(overhead=COSTS).runs("job", 2, speed={2: 2.0, 4: 1.0}, left=100)
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert sizes_by_job(plan.targets) == {"job": 4}
    assert chosen_s(plan) == pytest.approx(100 + 25 + 10)


def test_a_job_that_was_reshaped_is_not_shrunk_again_within_five_times_its_cost() -> None:
    cluster = Cluster(overhead=COSTS, now_s=10_000.0)
    cluster.runs("job1", 4, speed=PAPER, reshaped_at_s=9_900.0, reshape_cost_s=30.0)
    cluster.waits("job2", speed=PAPER)
    taken, better = both(cluster.snapshot())
    assert taken
    assert better == {}
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert plan.wake_at_s == pytest.approx(9_900.0 + 5 * 30.0)
    cluster.now_s = 10_050.0
    assert sizes_by_job(ADAPTIVE.decide(cluster.snapshot()).targets) == taken


def test_a_job_that_refused_to_shrink_is_a_donor_again_when_it_may_be() -> None:
    cluster = Cluster().runs("job1", 4, speed=PAPER, no_shrink_before_s=10_050.0)
    cluster.now_s = 10_000.0
    cluster.waits("job2", speed=PAPER)
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert (plan.targets, plan.wake_at_s) == ((), 10_050.0)
    cluster.now_s = 10_050.0
    assert "job2" in sizes_by_job(ADAPTIVE.decide(cluster.snapshot()).targets)


def test_a_job_that_was_just_reshaped_may_grow() -> None:
    cluster = Cluster(overhead=COSTS).runs("job", 2, reshaped_at_s=9_999.0, reshape_cost_s=30.0)
    assert sizes_by_job(ADAPTIVE.decide(cluster.snapshot()).targets) == {"job": 4}


def test_a_job_not_worth_moving_grows_once_gpus_of_its_own_host_are_idle() -> None:
    """Eight steps: 32 s less on two GPUs, for 25 s in place or 40 s with a restart. The second
    snapshot has the same views, so the bounds of the first decision are cached."""
    cluster = Cluster({"a": ("V100", 2), "b": ("V100", 2)}, COSTS)
    alone = cluster.runs("job", 1, left=8, sizes=(1, 2)).snapshot()
    full = replace(alone.hosts[0], idle=0)
    elsewhere = replace(alone, hosts=(full, alone.hosts[1]), explain=False)
    assert ADAPTIVE.decide(elsewhere).targets == ()
    here = replace(alone, hosts=(replace(full, idle=2), alone.hosts[1]), explain=False)
    assert sizes_by_job(ADAPTIVE.decide(here).targets) == {"job": 2}


def test_a_newcomer_that_fits_on_idle_gpus_is_started() -> None:
    """Even where waiting would be no worse for the makespan."""
    cluster = Cluster({"a": ("V100", 4), "b": ("K80", 4)})
    cluster.runs("job1", 4, speed={4: 1.0}, left=10)
    cluster.waits("job2", speeds={"V100": {4: 1.0}, "K80": {4: 900.0}}, sizes=(4,))
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert [(t.job, t.host) for t in plan.targets] == [("job2", "b")]
    assert plan.reason_code == "starts-on-idle"


def test_after_its_longest_wait_a_job_is_started_whatever_the_gain() -> None:
    cluster = Cluster().runs("job1", 4, left=2000)
    cluster.waits("job2", speed={2: 1.0}, left=100, max_wait_s=60.0)
    plan = V1.decide(cluster.snapshot())
    assert plan.targets == ()
    assert plan.wake_at_s == cluster.now_s + 60.0
    cluster.now_s += 60.0
    plan = V1.decide(cluster.snapshot())
    assert sizes_by_job(plan.targets) == {"job2": 2, "job1": 2}
    assert plan.reason_code == "shrinks-for-overdue"
    unexplained = V1.decide(replace(cluster.snapshot(), explain=False))
    assert unexplained.targets == plan.targets, "also if the plan is not explained"


def test_an_overdue_job_may_take_gpus_of_several_donors() -> None:
    """Neither pair of jobs has four GPUs to give; the paper's newcomer waits for ever."""
    cluster = Cluster().runs("one", 2).runs("two", 2).waits("new", speed={2: 1.0}, max_wait_s=60)
    assert both(cluster.snapshot(), V1) == ({}, {})
    cluster.now_s += 60.0
    assert both(cluster.snapshot(), V1) == ({}, {"new": 2, "one": 1, "two": 1})


def test_gpus_are_held_for_an_overdue_job() -> None:
    """Two GPUs are idle; if ``small`` took them, ``big`` would starve behind such jobs."""
    cluster = Cluster().runs("job", 2, speed={2: 2.0, 4: 1.0}, no_shrink_before_s=1e9)
    cluster.waits("big", speed={4: 1.0}, max_wait_s=60.0).waits("small", speed={1: 1.0})
    assert sizes_by_job(ADAPTIVE.decide(cluster.snapshot()).targets) == {"small": 1}
    cluster.now_s += 60.0
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert plan.targets == ()
    assert plan.reason_code == "holds-for-overdue"
    assert plan.about == "big"


def test_hosts_that_are_too_small_for_an_overdue_job_are_not_held_for_it() -> None:
    cluster = Cluster({"big": ("V100", 4), "small": ("V100", 2)})
    cluster.runs("job", 4, on="big", speed={4: 1.0})
    cluster.waits("late", speed={4: 1.0}, max_wait_s=0.0).waits("new", speed={2: 1.0})
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert [(t.job, t.host) for t in plan.targets] == [("new", "small")]


def test_a_newcomer_and_its_donor_are_on_one_host() -> None:
    """One GPU is idle on each host: together they are no two."""
    cluster = Cluster({"a": ("V100", 3), "b": ("V100", 3)})
    cluster.runs("on a", 2, on="a", speed={2: 1.0}).runs("on b", 2, on="b", speed=FLAT)
    cluster.waits("new", speed={2: 1.0})
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert sizes_by_job(plan.targets) == {"new": 2, "on b": 1}
    assert {target.host for target in plan.targets} == {"b"}


def test_a_move_to_another_host_is_taken_if_it_is_worth_its_restart() -> None:
    """Two to four GPUs on b: 40 s of restart against 1000 s of training, then against 60 s."""
    cluster = Cluster({"a": ("V100", 2), "b": ("V100", 4)}, COSTS)
    plan = ADAPTIVE.decide(cluster.runs("job", 2, speed={2: 2.0, 4: 1.0}).snapshot())
    assert [(t.job, t.size, t.host) for t in plan.targets] == [("job", 4, "b")]
    assert plan.reason_code == "moves"
    short = Cluster({"a": ("V100", 2), "b": ("V100", 4)}, COSTS)
    short.runs("job", 2, speed={2: 2.0, 4: 1.0}, left=40)
    assert both(short.snapshot()) == ({"job": 4}, {})


def test_a_job_moves_to_faster_gpus() -> None:
    cluster = Cluster({"a": ("K80", 2), "b": ("V100", 2)})
    cluster.runs("job", 2, speeds={"K80": {2: 4.0}, "V100": {2: 1.0}}, sizes=(2,))
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert [(t.size, t.host) for t in plan.targets] == [(2, "b")]


def test_a_job_of_unknown_length_gives_and_grows_after_a_while_at_its_size() -> None:
    cluster = Cluster().runs("job", 2, left=None, speed=LINEAR, runs_since_s=9_900.0)
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert (plan.targets, plan.wake_at_s) == ((), 10_200.0)
    cluster = Cluster(now_s=10_200.0).runs("job", 2, left=None, runs_since_s=9_900.0)
    for explained in (True, False):
        plan = ADAPTIVE.decide(replace(cluster.snapshot(), explain=explained))
        assert sizes_by_job(plan.targets) == {"job": 4}
        assert plan.reason_code == "grows-length-unknown"
    cluster = Cluster().runs("job", 4, left=None, speed=PAPER).waits("new", speed=PAPER)
    assert sizes_by_job(ADAPTIVE.decide(cluster.snapshot()).targets) == {"job": 2, "new": 2}


@pytest.mark.parametrize(
    "job", [{"reshaped_at_s": 9_900.0}, {"frozen": True}, {"fixed_because": "it cannot save"}]
)
def test_a_job_of_unknown_length_keeps_a_size_that_it_may_not_or_just_got(
    job: dict[str, Any],
) -> None:
    cluster = Cluster().runs("job", 2, left=None, runs_since_s=0.0, **job)
    assert ADAPTIVE.decide(cluster.snapshot()).targets == ()


def test_a_job_of_unknown_length_leaves_gpus_to_a_queued_job_that_could_start_there() -> None:
    cluster = Cluster().runs("job", 2, left=None, runs_since_s=0.0, sizes=[2, 4])
    for size, targets in ((4, {}), (8, {"job": 4})):
        cluster.queued.clear()
        cluster.waits("new", sizes=[size], speed={4: 1.0, 8: 1.0})
        assert sizes_by_job(ADAPTIVE.decide(cluster.snapshot()).targets) == targets


def test_without_a_mechanism_no_job_is_reshaped() -> None:
    cluster = Cluster(mechanism=Mechanism.NONE).runs("job1", 2, speed=PAPER)
    cluster.waits("job2", speed={4: 1.0}, max_wait_s=0.0)
    assert ADAPTIVE.decide(cluster.snapshot()).targets == ()


def test_with_restarts_a_reshape_has_to_be_worth_a_restart() -> None:
    """2 to 4 GPUs saves 30 s of training: more than 25 s in place, less than 40 by restart."""
    in_place = Cluster(overhead=COSTS).runs("job", 2, speed={2: 2.0, 4: 1.0}, left=30)
    assert sizes_by_job(ADAPTIVE.decide(in_place.snapshot()).targets) == {"job": 4}
    restart = Cluster(overhead=COSTS, mechanism=Mechanism.TERMINATE)
    restart.runs("job", 2, speed={2: 2.0, 4: 1.0}, left=30)
    assert ADAPTIVE.decide(restart.snapshot()).targets == ()


def test_a_pinned_job_gets_its_size_as_soon_as_it_is_idle() -> None:
    cluster = Cluster().runs("job", 2, speed=FLAT, sizes=(4,), pinned=True)
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert sizes_by_job(plan.targets) == {"job": 4}
    assert plan.reason_code == "grows-to-pin"


def test_a_pinned_job_gets_its_size_also_if_its_length_is_unknown() -> None:
    cluster = Cluster().runs("job", 2, speed=FLAT, sizes=(4,), pinned=True, left=None)
    for explained in (True, False):
        plan = ADAPTIVE.decide(replace(cluster.snapshot(), explain=explained))
        assert (sizes_by_job(plan.targets), plan.reason_code) == ({"job": 4}, "grows-to-pin")


def test_an_initialised_newcomer_starts_on_its_own_host() -> None:
    cluster = Cluster({"a": ("V100", 4), "b": ("V100", 4)}, COSTS)
    cluster.runs("job", 4, on="b", speed=PAPER).waits("new", on="b", speed=PAPER)
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert {target.host for target in plan.targets} == {"b"}


def test_the_text_of_a_decision_names_the_donor_and_the_gain() -> None:
    cluster = Cluster().runs("job1", 4, speed=PAPER, left=800).waits("job2", speed=PAPER)
    assert ADAPTIVE.decide(cluster.snapshot()).text == (
        "job2 starts on 2 GPUs of a; job1 goes from 4 to 2. "
        "All jobs end in 20 min 0 s instead of 45 min 20 s if it waited (predicted)."
    )


def _flat_donor() -> Cluster:
    """``d`` gives one GPU beside the idle one, or four: either way all jobs end at the same times.
    The endless job on ``b`` holds the makespan."""
    cluster = Cluster({"a": ("V100", 6), "b": ("V100", 2)})
    cluster.runs("endless", 1, on="b", speed={1: 1.0}, left=1_000_000)
    cluster.runs("d", 5, speed=FLAT | {5: 4.0}, sizes=(1, 4, 5))
    return cluster.waits("new", speed=FLAT, sizes=(2, 4))


def test_of_equal_sums_the_option_that_moves_fewer_gpus_is_taken() -> None:
    plan = ADAPTIVE.decide(_flat_donor().snapshot())
    assert sizes_by_job(plan.targets) == {"new": 2, "d": 4}
    assert len({(o.makespan_s, o.completion_sum_s) for o in plan.options if o.targets}) == 1


def test_a_tie_is_found_also_if_an_option_needs_a_list_schedule() -> None:
    """``later`` must use the idle GPU of ``b`` if ``new`` takes that of ``a``; it ends at the same
    time, which only a list schedule shows. The cheap option with the same figures moves more."""
    cluster = _flat_donor().waits("later", speed={1: 1.0}, not_before_s=20_000.0)
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert sizes_by_job(plan.targets) == {"new": 2, "d": 4}
    assert len({(o.makespan_s, o.completion_sum_s) for o in plan.options if o.targets}) == 1


@pytest.mark.parametrize("names", [("one", "two"), ("two", "one")])
def test_of_equal_options_the_lower_job_id_gives(names: tuple[str, str]) -> None:
    cluster = Cluster({"a": ("V100", 8)})
    for name in names:
        cluster.runs(name, 4, speed=FLAT, sizes=(2, 4))
    cluster.waits("new", speed=FLAT, sizes=(2,))
    assert sizes_by_job(ADAPTIVE.decide(cluster.snapshot()).targets) == {"new": 2, "one": 2}


def test_a_gain_of_exactly_the_least_is_enough_and_a_millisecond_less_is_not() -> None:
    """Growing saves 50 of the job's 1000 s."""
    exact = Cluster().runs("job", 2, speed={2: 1.0, 4: 0.95})
    assert sizes_by_job(ADAPTIVE.decide(exact.snapshot()).targets) == {"job": 4}
    short = Cluster().runs("job", 2, speed={2: 1.0, 4: 0.950001})
    assert sizes_by_job(ADAPTIVE.decide(short.snapshot()).targets) == {}


def test_a_makespan_that_falls_by_exactly_the_least_is_enough_while_the_sum_falls_by_less() -> None:
    """Waiting: 1000 + 1010 s. Giving: ``d`` ends after 1960, which is 50 less; the sum falls by
    40. A millisecond for each step more, and the makespan falls by 49."""
    for slow, taken in ((1.96, {"new": 2, "d": 2}), (1.961, {})):
        cluster = Cluster().runs("d", 4, speed={2: slow, 4: 1.0}).waits("new", speed={2: 1.01})
        assert sizes_by_job(V1.decide(cluster.snapshot()).targets) == taken


def test_a_donor_that_can_only_release_too_much_does_so() -> None:
    """The paper takes exactly what is missing, so its newcomer waits. The rest is idle then."""
    cluster = Cluster().runs("job1", 4, speed={2: 1.1, 4: 1.0}).waits("job2", speed={1: 1.0})
    assert both(cluster.snapshot()) == ({}, {"job2": 1, "job1": 2})


def test_a_donor_that_can_release_exactly_enough_does_so() -> None:
    """``exact`` has less training left than ``loose``, and may give one GPU."""
    cluster = Cluster({"a": ("V100", 8)})
    cluster.runs("exact", 4, speed={2: 1.1, 3: 1.05, 4: 1.0}, left=900)
    cluster.runs("loose", 4, speed={2: 1.0, 4: 1.0}, left=1000).waits("new", speed={1: 1.0})
    plan = ADAPTIVE.decide(cluster.snapshot())
    sizes = [
        sizes_by_job(o.targets).get("exact")
        for o in plan.options
        if "exact" in sizes_by_job(o.targets)
    ]
    assert sizes == [3]


def test_the_longest_wait_is_over_at_its_very_end() -> None:
    cluster = Cluster().runs("job1", 4, left=2000)
    cluster.waits("job2", speed={2: 1.0}, left=100, submitted_at_s=9_940.0, max_wait_s=60.001)
    assert V1.decide(cluster.snapshot()).targets == ()
    cluster.now_s = 10_000.001
    assert V1.decide(cluster.snapshot()).reason_code == "shrinks-for-overdue"


def test_several_donors_are_named_in_one_order_however_the_index_has_them() -> None:
    cluster = Cluster({"a": ("V100", 4)})
    for name in ("y", "x"):
        cluster.runs(name, 2, speed={1: 2.0, 2: 1.0}, left=5000)
    cluster.waits("new", speed={2: 1.0}, left=20)
    snapshot = cluster.snapshot()
    turned = replace(snapshot, running=snapshot.running[::-1])
    plans = [make_policy("adaptive").decide(seen) for seen in (snapshot, turned)]
    assert [target.job for target in plans[0].targets] == ["new", "x", "y"]
    assert plans[0].targets == plans[1].targets
