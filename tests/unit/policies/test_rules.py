"""Each rule of ``adaptive`` beside what ``adaptive-v1`` does with the same cluster, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.policies import UnknownPolicy, make_policy
from reshape_controller.scheduling.decision import NEWCOMERS_MAX
from tests.support.clusters import COSTS, FLAT, LINEAR, Cluster, sizes_by_job

ADAPTIVE = make_policy("adaptive")
V1 = make_policy("adaptive-v1")
BALANCED = make_policy("adaptive:objective=balanced")
JCT = make_policy("adaptive:objective=jct")


def targets(plan: Plan) -> list[tuple[str, int, str]]:
    return [(target.job, target.size, target.host) for target in plan.targets]


def both(snapshot: Snapshot) -> tuple[list[tuple[str, int, str]], list[tuple[str, int, str]]]:
    """Return the targets of ``adaptive-v1`` and of ``adaptive``, which are the same if the plan is
    not explained."""
    plans = [policy.decide(snapshot) for policy in (V1, ADAPTIVE)]
    short = replace(snapshot, explain=False)
    assert [policy.decide(short).targets for policy in (V1, ADAPTIVE)] == [
        plan.targets for plan in plans
    ]
    return targets(plans[0]), targets(plans[1])


def vgg(gpus: int, sizes: tuple[int, ...] = (1, 2, 4, 8)) -> Cluster:
    """A job on four K80, with ``gpus`` idle V100. It has 28,340 s to go there; on four V100 15,882
    and on one, which exchanges no gradients, 11,295."""
    cluster = Cluster({"k": ("K80", 4), "v": ("V100", gpus)})
    v100 = {1: 1129.5, 2: 1400.0, 4: 1588.2, 8: 2000.0}
    k80 = {1: 5000.0, 2: 4000.0, 4: 2834.0, 8: 2000.0}
    return cluster.runs("vgg16", 4, on="k", speeds={"K80": k80, "V100": v100}, left=10, sizes=sizes)


def test_a_job_moves_to_fewer_gpus_of_a_faster_type() -> None:
    assert both(vgg(4).snapshot()) == ([("vgg16", 4, "v")], [("vgg16", 1, "v")])
    assert ADAPTIVE.decide(vgg(4).snapshot()).text == (
        "vgg16 moves from 4 GPUs of k to 1 of v, from K80 to V100. "
        "All jobs end in 3 h 8 min instead of 7 h 52 min otherwise (predicted)."
    )


def test_a_job_moves_to_the_only_idle_gpu_of_a_faster_type() -> None:
    """The bounds of growth must not count it out because it has more GPUs than are idle."""
    assert both(vgg(1).snapshot()) == ([], [("vgg16", 1, "v")])


def test_a_job_moves_to_no_size_that_it_does_not_have_and_to_no_fewer_gpus_of_its_type() -> None:
    assert both(vgg(3, sizes=(4, 8)).snapshot()) == ([], [])
    cluster = Cluster({"a": ("V100", 4), "b": ("V100", 2)})
    cluster.runs("job", 4, speed={1: 1.0, 2: 2.0, 4: 4.0})
    assert both(cluster.snapshot()) == ([], [])


def long_and_short(left: int) -> Cluster:
    """A GPU is idle beside a job with ``left`` seconds to go. ``long`` needs 10,000 s and came
    first; ``short`` needs 100 s, and has waited for five times that."""
    cluster = Cluster({"a": ("V100", 2)}).runs("job", 1, speed={1: 1.0}, left=left)
    cluster.waits("long", speed={1: 1.0}, left=10_000, submitted_at_s=9_000.0)
    return cluster.waits("short", speed={1: 1.0}, left=100, submitted_at_s=9_500.0)


def test_the_job_that_has_waited_longest_for_its_length_has_its_turn() -> None:
    """``long`` has a ratio of 1.1, ``short`` one of 6."""
    assert both(long_and_short(50_000).snapshot()) == ([("long", 1, "a")], [("short", 1, "a")])
    text = ADAPTIVE.decide(long_and_short(50_000).snapshot()).text
    assert text.endswith(" It comes before later jobs: it has waited 8 min 20 s for 100 s of work.")


def test_a_job_that_would_end_last_has_its_turn_first() -> None:
    """Two GPUs could do all work in (1,000 + 10,000 + 100) / 2 s: ``long`` needs more alone."""
    assert both(long_and_short(1_000).snapshot()) == ([("long", 1, "a")], [("long", 1, "a")])
    text = ADAPTIVE.decide(long_and_short(1_000).snapshot()).text
    assert text.endswith(
        " It comes before shorter jobs: alone it needs 2 h 46 min, and all jobs together at least "
        "92 min 30 s."
    )
    assert sizes_by_job(JCT.decide(long_and_short(1_000).snapshot()).targets) == {"short": 1}


def test_priority_comes_before_the_ratio() -> None:
    cluster = long_and_short(50_000)
    first = cluster.queued[0]
    cluster.queued[0] = replace(first, spec=replace(first.spec, priority=1))
    assert both(cluster.snapshot())[1] == [("long", 1, "a")]


def test_a_donor_lends_to_a_newcomer_that_ends_before_it() -> None:
    """The donor has 4,000 s on four GPUs and 8,000 on two. It loses a half of the newcomer's 100 s,
    with costs also two reshapes of 25 s, less the half of one in which it does not train."""
    cluster = Cluster().runs("job1", 4, left=2000).waits("job2", speed={2: 1.0}, left=100)
    lent = [("job2", 2, "a"), ("job1", 2, "a")]
    assert both(cluster.snapshot()) == ([], lent)
    assert ADAPTIVE.decide(cluster.snapshot()).text == (
        "job2 starts on 2 GPUs of a; job1 lends 2 of its 4 GPUs for 100 s and loses 50 s. "
        "All jobs end in 67 min 30 s instead of 68 min 20 s if it waited (predicted)."
    )
    costly = Cluster(overhead=COSTS).runs("job1", 4, left=2000).waits("job2", speed={2: 1.0})
    plan = ADAPTIVE.decide(costly.snapshot())
    assert "for 17 min 25 s and loses 9 min 20 s" in plan.text  # 50 + (1,045 - 25) / 2


def test_a_donor_gives_for_good_to_a_newcomer_that_ends_after_it() -> None:
    cluster = Cluster().runs("job1", 4, left=100).waits("job2", speed={2: 1.0}, left=3000)
    for policy in (V1, ADAPTIVE):
        for option in policy.decide(cluster.snapshot()).options:
            if option.targets:
                assert option.completion_sum_s == 400.0 + 3000.0


def test_several_donors_give_the_gpus_that_cost_least() -> None:
    """No single donor has two GPUs to give. ``last`` ends last and would lose most."""
    cluster = Cluster({"a": ("V100", 6)}).runs("last", 2, speed=LINEAR, left=4000, sizes=(1, 2))
    cluster.runs("flat", 2, speed=FLAT, left=2000, sizes=(1, 2))
    cluster.runs("flatter", 2, speed={1: 1.0, 2: 1.1}, left=7000, sizes=(1, 2))
    cluster.waits("new", speed={2: 1.0}, left=1000)
    old, new = both(cluster.snapshot())
    assert old == [], "what the donors lose for ever is too much"
    assert {job for job, _, _ in new} == {"new", "flat", "flatter"}


def test_one_of_several_donors_may_go_down_two_steps() -> None:
    cluster = Cluster({"a": ("V100", 6)}).runs("flat", 4, speed=FLAT, left=2000, sizes=(1, 2, 3, 4))
    cluster.runs("job", 2, speed=LINEAR, left=2000, sizes=(1, 2))
    cluster.waits("new", speed={4: 1.0}, left=1000)
    assert both(cluster.snapshot())[1] == [("new", 4, "a"), ("flat", 1, "a"), ("job", 1, "a")]


def test_the_sum_decides_if_the_objective_is_not_the_makespan() -> None:
    """``other`` leaves four GPUs after 3,900 s, and ``new`` could end with ``donor``, after 4,000.
    If it starts now, ``donor`` ends 50 s later."""
    cluster = Cluster({"a": ("V100", 8)}).runs("donor", 4, left=2000)
    cluster.runs("other", 4, speed={4: 1.0}, left=3900).waits("new", speed={2: 1.0}, left=100)
    lent = {"new": 2, "donor": 2}
    assert sizes_by_job(BALANCED.decide(cluster.snapshot()).targets) == lent
    assert sizes_by_job(JCT.decide(cluster.snapshot()).targets) == lent
    assert sizes_by_job(ADAPTIVE.decide(cluster.snapshot()).targets) == {}
    assert "All jobs end in 67 min 30 s instead of 66 min 40 s if it waited; their completion" in (
        BALANCED.decide(cluster.snapshot()).text
    )


def test_a_job_is_overdue_after_twice_its_own_time_at_the_earliest() -> None:
    """Four jobs of one GPU leave none; ``long`` needs 3,000 s alone and has waited for 3,600."""
    cluster = Cluster(now_s=13_600.0)
    for number in range(2):
        cluster.runs(f"job{number}", 2, speed={2: 1.0}, left=9000)
    cluster.waits("long", speed={4: 1.0}, left=3000, submitted_at_s=10_000.0)
    assert V1.decide(cluster.snapshot()).reason_code == "holds-for-overdue"
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert (plan.reason_code, plan.wake_at_s) == ("waits-nothing-fits", 16_000.0)
    assert JCT.decide(cluster.snapshot()).wake_at_s == 22_000.0


def test_of_overdue_jobs_the_first_that_became_so_is_held_for() -> None:
    """``short`` has the higher ratio, and would take the GPU that ``rigid`` needs for ever."""
    cluster = Cluster(now_s=20_000.0).runs("job", 3, speed={3: 1.0}, left=9000)
    cluster.waits("short", speed={1: 1.0}, left=100, submitted_at_s=15_500.0)
    cluster.waits("rigid", speed={4: 1.0}, left=1000, submitted_at_s=15_000.0)
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert (plan.targets, plan.reason_code, plan.about) == ((), "holds-for-overdue", "rigid")


def test_a_new_job_is_a_reason_to_decide_where_it_may_be_critical() -> None:
    """``keeper`` could give GPUs, and the decision examines four newcomers only."""
    cluster = Cluster().runs("keeper", 4, left=20, sizes=(1, 2, 4))
    for number in range(NEWCOMERS_MAX + 2):
        cluster.waits(f"job{number}", speed={2: 1.0}, left=4000)
    assert V1.decide(cluster.snapshot()).looked_up_to is not None
    assert ADAPTIVE.decide(cluster.snapshot()).looked_up_to is None
    rigid = Cluster().runs("rigid", 4, speed={4: 1.0})
    for number in range(3):
        rigid.waits(f"job{number}", speed={2: 1.0})
    assert ADAPTIVE.decide(rigid.snapshot()).looked_up_to == "job1"


def test_an_unknown_objective_is_refused_with_what_there_is() -> None:
    with pytest.raises(UnknownPolicy, match="use one of makespan, balanced, jct"):
        make_policy("adaptive:objective=fair")
    assert make_policy("adaptive:objective=makespan").name == "adaptive"
    assert JCT.name == "adaptive:objective=jct"
