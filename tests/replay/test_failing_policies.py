"""A replay ends where its policy fails: its figures would be those of other decisions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import HostId, Mechanism
from reshape_controller.core.plan import Plan, Snapshot, Target
from reshape_controller.policies import make_policy
from reshape_controller.policies.adaptive import Adaptive
from reshape_controller.replay.continuation import QueueChange, continue_queue
from reshape_controller.replay.hindsight import judge
from reshape_controller.replay.inputs import PolicyError
from reshape_controller.replay.shell import replay
from tests.support.replay_bed import job, reshape, scene
from tests.support.world import World

COMMANDS = ("replay -w two --jobs 5 --policy", "compare -w two --jobs 5 --seeds 1 --policies")
Decide = Callable[[Snapshot], Plan]
ADAPTIVE = make_policy("adaptive")
JOBS = [job("a", 0.0, 100), job("b", 50.0, 100)]


class Wrong:
    """As ``adaptive`` until the second job comes; then it fails its own way."""

    name = "wrong"

    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    def decide(self, snapshot: Snapshot) -> Plan:
        return (self._decide if snapshot.now_s >= 50.0 else ADAPTIVE.decide)(snapshot)


def fails(snapshot: Snapshot) -> Plan:
    raise RuntimeError("a bug")


def breaks_a_rule(snapshot: Snapshot) -> Plan:
    named = (*snapshot.queued, *snapshot.running)[0]
    return Plan((Target(named.id, 3, HostId("host-1")),), "no such size")


@pytest.mark.parametrize(
    ("decide", "text", "cause"),
    [
        (fails, r"at 50\.0 s the policy wrong fails: RuntimeError\('a bug'\)", RuntimeError),
        (
            breaks_a_rule,
            r"at 50\.0 s the policy wrong makes a plan that breaks a rule: .*3 is not in its GPU",
            PlanRejected,
        ),
    ],
)
def test_a_replay_ends_with_the_policy_the_time_and_the_error(
    decide: Decide, text: str, cause: type[Exception]
) -> None:
    with pytest.raises(PolicyError, match=text) as caught:
        replay(scene(JOBS), Wrong(decide), Mechanism.SIDECAR)
    assert isinstance(caught.value.__cause__, cause), "the author sees the traceback"
    with pytest.raises(PolicyError, match=text):
        judge(scene(JOBS), Wrong(decide), Mechanism.SIDECAR, 0)


@pytest.mark.parametrize("decide", [fails, breaks_a_rule])
def test_the_continuation_of_a_live_queue_ends_the_same_way(decide: Decide) -> None:
    world = World().boot(4)
    world.submit("a", 2, 4)
    change = QueueChange(Wrong(decide), Mechanism.SIDECAR)
    with pytest.raises(PolicyError, match="the policy wrong"):
        continue_queue(world.engine.state.dump(), change, 60.0)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("decide", [fails, breaks_a_rule])
def test_the_command_fails_and_blames_the_policy(
    monkeypatch: pytest.MonkeyPatch, command: str, decide: Decide
) -> None:
    monkeypatch.setattr(Adaptive, "decide", lambda self, snapshot: decide(snapshot))
    error = reshape(*command.split(), "adaptive").exception
    assert isinstance(error, CliError)
    assert error.code is Exit.FAILED
    (problem,) = error.problems
    assert problem.what.startswith("at ")
    assert "the policy adaptive" in problem.what
    assert (problem.where, problem.remedy) == (
        "--policy",
        "use another policy, or correct yours",
    )
