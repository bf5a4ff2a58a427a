"""A controller's state goes on in virtual time: as it would have gone on, and otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import HostId, JobId, Mechanism, Stage
from reshape_controller.policies import make_policy
from reshape_controller.replay.continuation import QueueChange, continue_queue
from reshape_controller.replay.inputs import HostSpec, ReplayError
from reshape_controller.replay.metrics import job_rows
from reshape_controller.replay.shell import Scene, Shell
from tests.support.replay_bed import job, scene

JOBS = (
    job("a", 0.0, 400),
    job("b", 50.0, 200, (2, 4)),
    job("c", 100.0, 150, (1, 2)),
    job("d", 120.0, 90, (4,)),
)
ADAPTIVE = QueueChange(make_policy("adaptive"), Mechanism.SIDECAR)


def shell_of(given: Scene, what: QueueChange) -> Shell:
    """A replay that has begun, its submissions still to come."""
    shell = Shell(given, what.policy, what.mechanism, 0)
    for entry in given.workload.jobs:
        name = JobId(entry.spec.name)
        shell.world.add_job(name, entry.spec)
        shell.world.schedule(entry.submit_s, ev.JobSubmitted(name, entry.spec))
    shell.round(shell._first_events(), 0.0)
    return shell


def until(shell: Shell, at_s: float) -> None:
    while (next_s := shell._next_s()) is not None and next_s <= at_s:
        shell.round(shell.world.advance(next_s), next_s)


@pytest.mark.parametrize("mechanism", [Mechanism.SIDECAR, Mechanism.TERMINATE])
@pytest.mark.parametrize("policy", ["adaptive", "paper", "optimus"])
@pytest.mark.parametrize("at_s", [121.0, 150.0, 163.5, 164.5, 200.0, 300.0, 400.0, 700.0])
def test_a_state_that_goes_on_as_it_is_ends_when_the_replay_ends(
    policy: str, mechanism: Mechanism, at_s: float
) -> None:
    what = QueueChange(make_policy(policy), mechanism)
    whole = shell_of(scene(JOBS), what)
    until(whole, at_s)
    parts, stages = whole.engine.state.dump(), [j.stage for j in whole.engine.state.jobs.values()]
    whole.run_on(at_s)
    ends = {row.job: row.finished_s for row in job_rows(whole.account) if row.finished_s > at_s}
    found = continue_queue(parts, what)
    assert found.left == ()
    again = {row.job: row.finished_s for row in found.rows if row.finished_s > at_s}
    assert set(ends) == set(again)
    # What is under way (a start, a save) begins anew at most once; a step or a report is lost, and
    # a step more at each of two later reshapes that come at another moment.
    slack_s = 8.0 + 100.0 * sum(s not in (Stage.NONE, Stage.TRAINING) for s in stages)
    for name, end_s in ends.items():
        assert again[name] == pytest.approx(end_s, abs=slack_s), (name, at_s)


def test_nothing_of_the_controllers_own_state_is_changed() -> None:
    shell = shell_of(scene(JOBS), ADAPTIVE)
    until(shell, 200.0)
    before = shell.engine.state.dump()
    continue_queue(before, ADAPTIVE)
    assert shell.engine.state.dump() == before


def test_time_has_gone_on_since_the_last_event_of_jobs_that_report_nothing() -> None:
    shell = shell_of(scene(JOBS[:1]), ADAPTIVE)
    until(shell, 100.0)
    state = shell.engine.state
    assert state.now_s < 100.0
    parts = state.dump()
    told, later = continue_queue(parts, ADAPTIVE), continue_queue(parts, ADAPTIVE, 300.0)
    assert later.now_s == 300.0
    assert later.rows[0].finished_s == pytest.approx(told.rows[0].finished_s, abs=8.0)
    assert later.makespan_s == pytest.approx(told.makespan_s - 300.0 + told.now_s, abs=8.0)


def test_more_gpus_and_another_host_end_the_queue_earlier_and_fewer_later() -> None:
    shell = shell_of(scene(JOBS), ADAPTIVE)
    until(shell, 200.0)
    parts = shell.engine.state.dump()
    as_it_is = continue_queue(parts, ADAPTIVE)
    wider = continue_queue(parts, replace(ADAPTIVE, more_gpus=4))
    more = continue_queue(parts, replace(ADAPTIVE, hosts=(HostSpec(HostId("new"), "V100", 4),)))
    assert wider.makespan_s < as_it_is.makespan_s
    assert more.makespan_s < as_it_is.makespan_s
    assert {row.job for row in wider.rows} == {row.job for row in as_it_is.rows}


def test_jobs_leave_a_host_that_is_taken_away_and_go_on_elsewhere() -> None:
    shell = shell_of(scene(JOBS, cluster="4xV100+4xV100"), ADAPTIVE)
    until(shell, 150.0)
    parts = shell.engine.state.dump()
    found = continue_queue(parts, replace(ADAPTIVE, drained=(HostId("host-0000"),)))
    assert found.left == ()
    assert found.makespan_s > continue_queue(parts, ADAPTIVE).makespan_s


def test_jobs_that_nothing_is_left_for_are_named_with_the_reason() -> None:
    shell = shell_of(scene(JOBS), ADAPTIVE)
    until(shell, 200.0)
    live = set(shell.engine.state.jobs)
    nowhere = replace(ADAPTIVE, drained=(HostId("host-0000"),))
    found = continue_queue(shell.engine.state.dump(), nowhere)
    assert {one.job for one in found.left} | {row.job for row in found.rows} == live
    assert found.left
    assert all(one.reason for one in found.left)


def test_a_halted_job_stays_where_it_is() -> None:
    shell = shell_of(scene(JOBS), ADAPTIVE)
    until(shell, 200.0)
    shell.round([ev.HaltRequested(JobId("a"))], 200.0)
    until(shell, 400.0)
    found = continue_queue(shell.engine.state.dump(), ADAPTIVE)
    assert [one.job for one in found.left] == ["a"]
    assert JobId("a") not in {row.job for row in found.rows}


def test_a_job_that_is_over_and_whose_container_still_ends_is_no_job_to_run() -> None:
    shell = shell_of(scene((job("a", 0.0, 40), job("b", 1.0, 200))), ADAPTIVE)
    state = shell.engine.state
    while "a" not in state.jobs or not state.jobs[JobId("a")].state.terminal:
        next_s = shell._next_s()
        assert next_s is not None
        until(shell, next_s)
    assert state.jobs[JobId("a")].stage is Stage.ENDING
    found = continue_queue(state.dump(), ADAPTIVE)
    assert [row.job for row in found.rows] == ["b"]
    assert found.left == ()


def test_a_controller_without_jobs_has_nothing_to_go_on_with() -> None:
    shell = shell_of(scene(JOBS), ADAPTIVE)
    until(shell, 10_000.0)
    with pytest.raises(ReplayError, match="no unfinished job"):
        continue_queue(shell.engine.state.dump(), ADAPTIVE)
