"""Each rule of ``adaptive`` beside what ``adaptive-v1`` does with the same cluster, by hand."""

from __future__ import annotations

from dataclasses import replace

from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.policies import make_policy
from tests.support.clusters import Cluster

ADAPTIVE = make_policy("adaptive")
V1 = make_policy("adaptive-v1")


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
