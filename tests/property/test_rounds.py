"""Random rounds, with policies that fail at random: their records bring another engine to the same
state with the same commands, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine, Step
from reshape_controller.core.events import Event
from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import Plan, Policy, Snapshot, Target
from reshape_controller.core.record import LogRecord
from reshape_controller.policies import make_policy
from reshape_controller.scheduling import rounds
from reshape_controller.scheduling.planner import FailureKind, Planner
from reshape_sidecar import codec
from tests.support.gate import examples
from tests.support.world import World

ACTIONS = ("submit", "finish", "crash", "kill", "cancel", "drain", "undrain", "wait", "train")
MOODS = ("sound", "sound", "fails", "breaks a rule")


@dataclass
class Moody:
    """The policy ``adaptive``, which at some decisions fails, or makes a plan of another world."""

    moods: list[str]
    inner: Policy = field(default_factory=lambda: make_policy("adaptive"))
    name: str = "moody"

    def decide(self, snapshot: Snapshot) -> Plan:
        mood = self.moods.pop() if self.moods else "sound"
        if mood == "fails":
            raise RuntimeError("a bug")
        plan = self.inner.decide(snapshot)
        if mood == "breaks a rule":
            wrong = Target(JobId("no such job"), 1, HostId("host-0"))
            return Plan((*plan.targets, wrong), wake_at_s=snapshot.now_s + 5.0)
        return plan


class RoundEngine:
    """An engine for ``World`` that does a whole round for each event, and keeps the records."""

    def __init__(self, policy: Policy) -> None:
        self.engine, self.planner = Engine(), Planner(policy)
        self.records: list[LogRecord] = []
        self.failures: list[FailureKind] = []

    def step(self, event: Event, now_s: float) -> Step:
        done = rounds.run(self.engine, self.planner, (event,), now_s)
        seq, plans, commands = len(self.records) + 1, done.plans, done.commands
        record = LogRecord(seq, 1, "test", "moody", now_s, (event,), plans, commands, "")
        self.records.append(record)
        self.failures += [each.failure.kind for each in done.decisions if each.failure]
        return Step(done.commands, done.history)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


def act(world: World, action: str, number: int) -> None:
    """Let something happen to a job or host that ``number`` picks."""
    jobs = sorted({key[0] for key in world.containers if key[0] in world.engine.state.jobs})
    job = jobs[number % len(jobs)] if jobs else None
    host = HostId(f"host-{number % 2}")
    match action:
        case "submit":
            world.submit(f"job-{len(world.log)}", *((1, 2, 4), (2,), (4,))[number % 3])
        case "drain":
            world.event(ev.HostDrained(host, "op"))
        case "undrain":
            world.event(ev.HostUndrained(host, "op"))
        case "wait":
            world.wait(float(number))
        case "finish" | "crash" if job and world.container(job).running:
            getattr(world, action)(job)
        case "train" if job and world.container(job).running:
            world.train(job, 10 * number)
        case "kill" if job:
            world.kill_container(job)
        case "cancel" if job:
            world.event(ev.CancelRequested(job, "op"))
    world.settle()


MOODS_LISTS = st.lists(st.sampled_from(MOODS), max_size=40)
ACTION_LISTS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 40)), min_size=5, max_size=25
)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MOODS_LISTS, ACTION_LISTS)
def test_the_records_of_rounds_give_the_same_commands_and_state_without_the_policy(
    moods: list[str], actions: list[tuple[str, int]]
) -> None:
    engine = RoundEngine(Moody(moods))
    world = World(engine=engine)  # type: ignore[arg-type]
    world.boot(4, hosts=2)
    for action, number in (("submit", 0), ("submit", 1), *actions):
        act(world, action, number)
    again = Engine()
    for record in engine.records:
        done = rounds.redo(again, record)
        assert codec.dumps(done.commands) == codec.dumps(record.commands)
    assert again.state.dump() == engine.engine.state.dump()
    reasons = [plan.reason_code for record in engine.records for plan in record.plans]
    assert [code for code in reasons if code in set(FailureKind)] == engine.failures
