"""How long a job waits at most: once it is the first overdue one, for the jobs that hold the GPUs.

The test computes who is overdue by itself, from the snapshots that the policy gets, and the ends of
the jobs are those of the replay. Speeds are as predicted: if a prediction of own best times is
corrected, two overdue jobs may change their turns.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reshape_controller.core.limits import EQUAL_PREEMPTION_EVERY_S
from reshape_controller.core.model import JobId, Mechanism
from reshape_controller.core.plan import JobView, Plan, Policy, Snapshot
from reshape_controller.policies import make_policy
from reshape_controller.replay.inputs import WorkJob
from reshape_controller.replay.shell import Scene, replay
from reshape_controller.scheduling import legal_moves
from reshape_controller.scheduling.alone import AloneTimes
from reshape_controller.scheduling.predictor import Predictor
from tests.support.gate import examples
from tests.support.replay_bed import job, scene

GUARD_LENGTHS = {"makespan": 2.0, "balanced": 2.0, "jct": 4.0}
HAND_OVER_S = 100.0
"""More than a hand-over with the costs of ``replay_bed.ROUND`` takes, and the step under way."""


@dataclass
class Watch:
    """A policy that notes who is overdue after each decision, and decides as another one."""

    policy: Policy
    lengths: float
    name: str = "watch"
    may_preempt: bool = True
    first_s: dict[JobId, float] = field(default_factory=dict)
    """When a job was the first overdue one, of all that may start."""
    holders: dict[JobId, list[list[JobId]]] = field(default_factory=dict)
    """The jobs on each host that could hold it, at that time."""
    starts_s: dict[JobId, float] = field(default_factory=dict)
    """The first start after that time."""

    def decide(self, snapshot: Snapshot) -> Plan:
        plan = self.policy.decide(snapshot)
        for target in plan.targets:
            if target.job in self.first_s:
                self.starts_s.setdefault(target.job, snapshot.now_s)
        if not plan.targets and snapshot.queued:
            self._note_first(snapshot)
        return plan

    def _note_first(self, snapshot: Snapshot) -> None:
        due_s, first = min((self._due_s(snapshot, one), one.id) for one in snapshot.queued)
        if due_s > snapshot.now_s or first in self.first_s:
            return
        view = next(one for one in snapshot.queued if one.id == first)
        hosts = [h for h in legal_moves.hosts_for(snapshot, view) if h.usable >= view.sizes[0]]
        self.first_s[first] = snapshot.now_s
        self.holders[first] = [
            [one.id for one in snapshot.running if one.host == host.id] for host in hosts
        ]

    def _due_s(self, snapshot: Snapshot, view: JobView) -> float:
        if not legal_moves.may_start(snapshot, view):
            return inf
        best_s = AloneTimes(snapshot, Predictor(snapshot)).best_s(view)
        return view.waits_since_s + max(3600.0, self.lengths * best_s)


def crowd(seed: int) -> Scene:
    """Jobs of several sizes that come faster than the GPUs do them, most of them rigid."""
    draw = random.Random(seed)
    sizes = [(1,), (2,), (4,), (1, 2), (1, 2, 4), (2, 4)]
    jobs: list[WorkJob] = [
        job(f"job-{n:02d}", draw.uniform(0.0, 3000.0), draw.randint(50, 700), draw.choice(sizes))
        for n in range(draw.randint(8, 20))
    ]
    cluster = draw.choice(["4xV100", "4xV100+2xP100", "2*4xV100"])
    return scene(jobs, cluster=cluster, seed=seed)


def watched(objective: str, preempt: str, crowded: Scene) -> tuple[Watch, dict[JobId, float]]:
    """Return the watch after a replay, and the ends of the jobs."""
    policy = make_policy("adaptive", objective=objective, preempt=preempt)
    watch = Watch(policy, GUARD_LENGTHS[objective])
    result = replay(crowded, watch, Mechanism.SIDECAR, check=True)
    return watch, {row.job: row.finished_s for row in result.jobs}


@pytest.mark.parametrize("objective", GUARD_LENGTHS)
@given(seed=st.integers(0, 100_000))
@example(seed=1)
@settings(max_examples=examples(30), deadline=None)
def test_the_first_overdue_job_starts_once_those_that_hold_its_gpus_have_ended(
    objective: str, seed: int
) -> None:
    watch, ends_s = watched(objective, "priority", crowd(seed))
    for first, hosts in watch.holders.items():
        last_s = min(max((ends_s[one] for one in on_host), default=0.0) for on_host in hosts)
        assert watch.starts_s[first] <= max(last_s, watch.first_s[first]) + HAND_OVER_S


@given(seed=st.integers(0, 100_000))
@settings(max_examples=examples(30), deadline=None)
def test_with_preemption_of_equals_it_starts_within_an_hour(seed: int) -> None:
    """An equal has to have run for half an hour, and is preempted once in an hour."""
    watch, _ = watched("makespan", "overdue", crowd(seed))
    for first, at_s in watch.first_s.items():
        assert watch.starts_s[first] - at_s <= EQUAL_PREEMPTION_EVERY_S + HAND_OVER_S


def test_random_crowds_have_overdue_jobs() -> None:
    """The properties above are about something."""
    waited = [len(watched("makespan", "priority", crowd(seed))[0].first_s) for seed in range(10)]
    assert sum(waited) > 10
