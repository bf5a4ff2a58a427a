"""What is kept between decisions changes none: forecasts and plans are those built from nothing.

Kept are the views of jobs and hosts, what was predicted of a job, and what a profile book answered.
A state that was dumped and loaded has nothing of that.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import JobId, Mechanism
from reshape_controller.core.plan import IndexCache, Snapshot
from reshape_controller.core.state import State
from reshape_controller.policies import make_policy
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.predictor import Predictor
from reshape_profiles.schema import Overhead, Profile, SpeedPoint
from reshape_sidecar.wire import Phase
from tests.property.random_clusters import clusters
from tests.property.test_handover import JOBS, OFTEN, RARELY, SIZES, SOMETIMES, Chaos
from tests.support.gate import examples

KINDS = ("quick", "slow", None)
POLICIES = tuple(make_policy(name) for name in ("adaptive", "paper", "optimus", "default"))
LEARNS = ("speed", "speed", "speed", "profile", "pin", "decide", "decide", "wait")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(OFTEN + LEARNS * 8 + SOMETIMES + RARELY),
        st.sampled_from(JOBS),
        st.integers(0, 29),
    ),
    min_size=20,
    max_size=60,
)


class Taught(Chaos):
    """Jobs of two types that report speeds, and a policy that is asked."""

    def submit(self, job: str, number: int) -> None:
        if JobId(job) not in self.world.engine.state.jobs:
            kind = KINDS[number % 3]
            self.world.submit(job, *SIZES[number % 5], job_type=kind, priority=number % 2)

    def speed(self, job: str, number: int) -> None:
        """A training process reports steps and how long they took, so often that its type learns
        from it (the third measurement counts)."""
        training = [
            container
            for container in self.world.containers.values()
            if container.job == job and container.phase is Phase.RUNNING
        ]
        for container in training * 3:
            container.step += 10
            container.sequence += 1
            seen = container.observed()
            progress = replace(seen.progress, seconds_per_step=0.3 + 0.17 * number)
            self.world.event(ev.SideCarReported(replace(seen, progress=progress)))

    def profile(self, job: str, number: int) -> None:
        """Somebody records other figures of a type, or of jobs without one."""
        points = tuple(SpeedPoint("V100", n, (1.0 + number) / n) for n in (1, 4))
        cost = Overhead(3.1, 1.7, 0.3 + number, 0.9, 2.3)
        kind = KINDS[number % 3] or "default"
        self.world.event(ev.ProfileRecorded(Profile(kind, speed=points, overhead=cost)))

    def pin(self, job: str, number: int) -> None:
        self.world.event(ev.PinRequested(JobId(job), (None, 1, 2, 4)[number % 4], "somebody"))

    def decide(self, job: str, number: int) -> None:
        """What ``adaptive`` wants is done."""
        engine = self.world.engine
        if engine.state.observing:
            return
        plan = POLICIES[0].decide(engine.snapshot())
        try:
            self.world.apply(plan)
        except PlanRejected as refused:
            raise AssertionError(f"a plan of adaptive is refused: {refused}") from refused


def same_as_from_nothing(state: State) -> None:
    """Views, forecast and decisions of the state against those of one that was loaded."""
    fresh = State.load(state.dump())
    seen = state.views.snapshot(state), fresh.views.snapshot(fresh)
    assert seen[0] == seen[1]
    kept, built = (Forecast(snapshot, Predictor(snapshot)) for snapshot in seen)
    for job, other in zip(seen[0].running, seen[1].running, strict=True):
        assert kept.end_ms(job) == built.end_ms(other)
    assert kept.latest == built.latest
    assert (kept.ends_sum_ms, kept.free_sum_ms) == (built.ends_sum_ms, built.free_sum_ms)
    assert kept.free.counts == built.free.counts
    for host in range(len(seen[0].hosts)):
        assert kept.free.of_host(host) == built.free.of_host(host)
    for kind in range(len(kept.types)):
        assert kept.free.moments(kind, 5) == built.free.moments(kind, 5)
    assert (kept.names, kept.listed, kept.rest_ms) == (built.names, built.listed, built.rest_ms)
    assert kept.queue[1] == built.queue[1]
    for policy in POLICIES:
        plan = policy.decide(seen[1])
        assert policy.decide(seen[0]) == plan
        unseen = policy.decide(replace(seen[0], explained=False))
        assert (unseen.targets, unseen.wake_at_s) == (plan.targets, plan.wake_at_s)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    mechanism=st.sampled_from([Mechanism.SIDECAR, Mechanism.TERMINATE]),
    at_once=st.booleans(),
    steps=STEPS,
)
def test_what_is_kept_between_decisions_changes_none(
    mechanism: Mechanism, at_once: bool, steps: list[tuple[str, str, int]]
) -> None:
    """``at_once``: whatever is commanded is done before anything else happens."""
    taught = Taught(mechanism)
    taught.world.auto = True
    for number, job in enumerate(JOBS):
        taught.act("submit", job, 3 * number)
        taught.act("decide", job, 0)
    taught.world.auto = at_once
    for what, job, number in steps:
        taught.act(what, job, number)
        same_as_from_nothing(taught.world.engine.state)


IDLE = st.lists(st.integers(0, 8), min_size=3, max_size=3)
LATER = st.lists(st.tuples(st.floats(0.0, 400.0), IDLE), min_size=2, max_size=5)


@settings(max_examples=examples(1000), deadline=None)
@given(
    snapshot=st.one_of(clusters(queued=0), clusters(queued=0, alike=True)),
    later=LATER,
    gain=st.sampled_from([0.0, 0.05, 0.5]),
)
def test_a_job_that_was_not_worth_growing_is_looked_at_again_when_it_may_be(
    snapshot: Snapshot, later: list[tuple[float, list[int]]], gain: float
) -> None:
    """The same views again and again, while time passes and other numbers of GPUs are idle."""
    policy, kept = make_policy(f"adaptive:gain={gain}"), IndexCache()
    kept.show(snapshot.queued, snapshot.running)
    snapshot = replace(snapshot, kept=kept, kept_numbering=snapshot.numbering)
    for after_s, idle in later:
        hosts = tuple(
            replace(host, idle=min(gpus, host.total), usable=host.total)
            for host, gpus in zip(snapshot.hosts, idle, strict=False)
        )
        snapshot = replace(snapshot, now_s=snapshot.now_s + after_s, hosts=hosts)
        anew = replace(snapshot, running=tuple(replace(job) for job in snapshot.running), kept=None)
        unseen = policy.decide(replace(snapshot, explained=False))
        assert kept.index is not None or not any(host.idle for host in hosts)
        assert unseen.targets == policy.decide(anew).targets
