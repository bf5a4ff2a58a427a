"""Random workloads with gangs, replayed under every policy: each plan keeps the engine's rules.

A plan that the engine rejects ends its replay, and the invariants are checked after each round. A
decision is the same without the planner's index and without an explanation. No step is lost while
no host is. ``python -m tests.property.random_gangs SEEDS`` tries many (``seeds``).
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace

from reshape_controller.core.model import HostId, JobSpec, Mechanism, Placement, Spans
from reshape_controller.core.plan import Plan, Policy, Snapshot
from reshape_controller.policies import make_policy
from reshape_controller.replay.inputs import Cluster, cluster_of
from reshape_controller.replay.shell import HostLoss, Result, replay
from tests.property import seeds
from tests.support.gang_scenes import gang_job, gang_scene

ADAPTIVE = (
    *("adaptive", "adaptive:objective=balanced", "adaptive:objective=jct"),
    *("adaptive:preempt=ratio", "adaptive:preempt=overdue,max_wait_s=60"),
)
OTHERS = (
    *("adaptive-v1", "paper", "optimus", "default", "fifo", "srtf", "tiresias:service_s=100"),
    *(
        "dragon:up_after_s=0,down_after_s=30",
        "weighted",
        "weighted:utility=printed,admission=oasis",
    ),
    *("ffdl", "ffdl:placement=spread"),
)
POLICIES = (*ADAPTIVE, *OTHERS)
CLUSTERS = ("2*4xV100", "3*4xV100", "2*8xV100", "2*4xV100+2*4xP100", "4xV100+8xV100", "4*2xV100")
KINDS: tuple[tuple[int, tuple[int, ...]], ...] = (
    *((2, (2, 4, 8)), (2, (4, 8)), (2, (4,)), (2, (8,)), (2, (2, 4, 6, 8)), (3, (3, 6))),
    *((3, (3, 6, 12)), (4, (4, 8)), (1, (1, 2, 4)), (1, (2,)), (1, (4,)), (1, (1,))),
)
"""Workers and sizes of a job."""
SPANS = (Spans.ANY, Spans.IF_NEEDED, Spans.IF_NEEDED, Spans.NEVER)


class Compared:
    """A policy that decides twice: with the planner's index, and from nothing and unexplained."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = policy.name
        self.may_preempt = getattr(policy, "may_preempt", False)

    def decide(self, snapshot: Snapshot) -> Plan:
        plan = self._policy.decide(snapshot)
        again = self._policy.decide(replace(snapshot, index=None, explain=not snapshot.explain))
        assert again.targets == plan.targets, f"{again.targets} without the index"
        assert again.wake_at_s == plan.wake_at_s, f"wakes at {again.wake_at_s} without the index"
        return plan


def job(rng: random.Random, number: int) -> JobSpec:
    """Return a record; half of all jobs may be on several hosts."""
    workers, sizes = rng.choice(KINDS)
    span = rng.choice(SPANS) if workers > 1 else Spans.NEVER
    spread = span is not Spans.NEVER and rng.random() < 0.3
    return gang_job(
        f"job-{number}",
        *sizes,
        steps=rng.choice((10, 50, 200, 1000)),
        workers=workers,
        span=span,
        placement=Placement.SPREAD if spread else Placement.PACK,
        priority=rng.choice((0, 0, 0, 1, 2)),
        max_wait_s=rng.choice((None, None, None, 0.0, 100.0)),
        min_runtime_s=rng.choice((0.0, 300.0)),
    )


def fits(spec: JobSpec, cluster: Cluster, *, gangs: bool) -> bool:
    """Whether the hosts can hold a job at its smallest size; ``gangs``: on several of them too."""
    size = spec.optional_gpus[0]
    if any(host.gpus >= size for host in cluster.hosts):
        return True
    each, slots = size // spec.workers, dict[str, int]()
    for host in cluster.hosts:
        slots[host.gpu_type] = slots.get(host.gpu_type, 0) + host.gpus // each
    return gangs and spec.span is not Spans.NEVER and max(slots.values()) >= spec.workers


def play(seed: int) -> Result:
    """Replay the workload of a seed, under a policy that follows from it too."""
    rng = random.Random(seed)
    name = rng.choice(ADAPTIVE) if rng.random() < 0.6 else rng.choice(OTHERS)
    mechanism = rng.choice((Mechanism.SIDECAR, Mechanism.SIDECAR, Mechanism.TERMINATE))
    cluster = cluster_of(rng.choice(CLUSTERS))
    at_s, jobs = 0.0, []
    for number in range(rng.randint(2, 7)):
        spec = job(rng, number)
        if fits(spec, cluster, gangs=name != "adaptive-v1"):
            jobs.append((at_s, spec))
        at_s += rng.choice((0.0, 1.0, 60.0, 300.0))
    scene = gang_scene(
        *jobs or [(0.0, gang_job("one", 1, steps=1, workers=1))], cluster=cluster.text
    )
    if rng.random() < 0.2:
        from_s = rng.choice((50.0, 400.0))
        loss = HostLoss(rng.choice(cluster.hosts).id, from_s, from_s + 200.0)
        scene = replace(scene, losses=(loss,))
    result = replay(scene, Compared(make_policy(name)), mechanism, keep=True, check=True)
    if not scene.losses:
        assert result.metrics.steps_lost == 0, f"{result.metrics.steps_lost} steps lost"
    return result


def reshapes_of_gangs(result: Result) -> int:
    """Return how often a job on several hosts gave or got GPUs in place."""
    gangs: dict[str, tuple[HostId, ...]] = {}
    count = 0
    for decision in result.decisions:
        for target in decision.plan.targets:
            count += bool(target.shares) and gangs.get(target.job) == target.all_hosts
            gangs[target.job] = target.all_hosts
    return count


def run(seed: int) -> int:
    """Try one seed. Returns the number of reshapes in place on several hosts."""
    return reshapes_of_gangs(play(seed))


if __name__ == "__main__":
    command = "tests.property.random_gangs"
    sys.exit(seeds.main(command, run, "reshapes of gangs"))
