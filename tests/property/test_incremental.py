"""Caches between decisions change no decision: forecasts and plans equal those without a cache.

The views of jobs and hosts, the index, estimates and the answers of a profile book are cached. A
state that was dumped and loaded has none of them.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import JobId, Mechanism
from reshape_controller.core.plan import Snapshot
from reshape_controller.core.state import State
from reshape_controller.policies import make_policy
from reshape_controller.scheduling.cluster_index import ClusterIndex
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.predictor import Predictor
from reshape_profiles.schema import Overhead, Profile, SpeedPoint
from reshape_sidecar.wire import Phase, PhaseTimes, Standby, StandbyState, StartKind
from tests.property.random_clusters import clusters
from tests.property.test_handover import JOBS, OFTEN, RARELY, SIZES, SOMETIMES, Chaos
from tests.support.gate import examples

KINDS = ("quick", "slow", None)
POLICIES = tuple(
    make_policy(name) for name in ("adaptive", "adaptive-v1", "paper", "optimus", "default")
)
LEARNS = (
    "speed",
    "speed",
    "speed",
    "standby",
    "start",
    "profile",
    "pin",
    "decide",
    "decide",
    "wait",
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(OFTEN + LEARNS * 8 + SOMETIMES + RARELY),
        st.sampled_from(JOBS),
        st.integers(0, 29),
    ),
    min_size=20,
    max_size=60,
)


class LearningChaos(Chaos):
    """Jobs of two types that report speeds, and plans of a policy."""

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

    def standby(self, job: str, number: int) -> None:
        """A SideCar offers another start than before."""
        for container in list(self.world.containers.values()):
            if container.job == job:
                container.standby = Standby(tuple(StandbyState)[number % 4])
                container.can_prepare = number % 3 == 0
                self.world.report(container)

    def start(self, job: str, number: int) -> None:
        """The next start of a job takes another time, by one of the kinds."""
        for container in list(self.world.containers.values()):
            if container.job == job:
                how = tuple(StartKind)[number % 3]
                container.times = PhaseTimes(0.1, first_step_s=0.2 * number, how=how)

    def profile(self, job: str, number: int) -> None:
        """A user records other figures of a type, or of jobs without one."""
        points = tuple(SpeedPoint("V100", n, (1.0 + number) / n) for n in (1, 4))
        cost = Overhead(3.1, 1.7, 0.3 + number, 0.9, 2.3)
        kind = KINDS[number % 3] or "default"
        self.world.event(ev.ProfileRecorded(Profile(kind, speed=points, overhead=cost)))

    def pin(self, job: str, number: int) -> None:
        self.world.event(ev.PinRequested(JobId(job), (None, 1, 2, 4)[number % 4], "somebody"))

    def decide(self, job: str, number: int) -> None:
        """The engine applies a plan of ``adaptive``."""
        engine = self.world.engine
        if engine.state.observing:
            return
        plan = POLICIES[0].decide(engine.snapshot())
        try:
            self.world.apply(plan)
        except PlanRejected as refused:
            raise AssertionError(f"a plan of adaptive is refused: {refused}") from refused


def assert_equal_to_uncached(state: State, index: ClusterIndex) -> None:
    """Compare views, forecast and decisions of the state with those of a state that was loaded,
    which has no index."""
    fresh = State.load(state.dump())
    changed = state.snapshot(), state.snapshot_builder.drain_changed_views()
    snapshots = index.follow(*changed), fresh.snapshot()
    assert snapshots[0] == snapshots[1]
    cached, built = (Forecast(snapshot, Predictor(snapshot)) for snapshot in snapshots)
    for job, other in zip(snapshots[0].running, snapshots[1].running, strict=True):
        assert cached.end_ms(job) == built.end_ms(other)
    assert cached.latest == built.latest
    assert (cached.ends_sum_ms, cached.free_sum_ms) == (built.ends_sum_ms, built.free_sum_ms)
    assert cached.free.counts == built.free.counts
    for host in range(len(snapshots[0].hosts)):
        assert cached.free.of_host(host) == built.free.of_host(host)
    for kind in range(len(cached.types)):
        assert cached.free.first_free_times(kind, 5) == built.free.first_free_times(kind, 5)
    assert (cached.head_ids, cached.head, cached.tail_area_ms) == (
        built.head_ids,
        built.head,
        built.tail_area_ms,
    )
    assert cached.queue[1] == built.queue[1]
    for policy in POLICIES:
        plan = policy.decide(snapshots[1])
        assert policy.decide(snapshots[0]) == plan
        unexplained = policy.decide(replace(snapshots[0], explain=False))
        assert (unexplained.targets, unexplained.wake_at_s) == (plan.targets, plan.wake_at_s)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    mechanism=st.sampled_from([Mechanism.SIDECAR, Mechanism.TERMINATE]),
    at_once=st.booleans(),
    steps=STEPS,
)
def test_caches_between_decisions_change_no_decision(
    mechanism: Mechanism, at_once: bool, steps: list[tuple[str, str, int]]
) -> None:
    """``at_once``: each command is done before anything else happens."""
    chaos = LearningChaos(mechanism)
    chaos.world.auto = True
    for number, job in enumerate(JOBS):
        chaos.act("submit", job, 3 * number)
        chaos.act("decide", job, 0)
    chaos.world.auto, index = at_once, ClusterIndex()
    for what, job, number in steps:
        chaos.act(what, job, number)
        assert_equal_to_uncached(chaos.world.engine.state, index)


IDLE = st.lists(st.integers(0, 8), min_size=3, max_size=3)
LATER = st.lists(st.tuples(st.floats(0.0, 400.0), IDLE), min_size=2, max_size=5)


@settings(max_examples=examples(1000), deadline=None)
@given(
    snapshot=st.one_of(clusters(queued=0), clusters(queued=0, few_types=True)),
    later=LATER,
    gain=st.sampled_from([0.0, 0.05, 0.5]),
)
def test_a_pruned_growth_is_evaluated_again_when_it_can_save_enough(
    snapshot: Snapshot, later: list[tuple[float, list[int]]], gain: float
) -> None:
    """The views stay the same, while time passes and other numbers of GPUs are idle."""
    policy = make_policy(f"adaptive:gain={gain}")
    snapshot = ClusterIndex().follow(snapshot, {})
    for after_s, idle in later:
        hosts = tuple(
            replace(host, idle=min(gpus, host.total), usable=host.total)
            for host, gpus in zip(snapshot.hosts, idle, strict=False)
        )
        snapshot = replace(snapshot, now_s=snapshot.now_s + after_s, hosts=hosts)
        uncached = replace(snapshot, index=None)
        unexplained = policy.decide(replace(snapshot, explain=False))
        assert unexplained.targets == policy.decide(uncached).targets
