"""The workers of a job as one SideCar: the desired state of each, and their merged report."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reshape_controller.live.worker_group import WorkerGroup
from reshape_sidecar.wire import (
    Desired,
    Meeting,
    Mode,
    Observed,
    OnSaveTimeout,
    Outcome,
    OutcomeKind,
    Phase,
    Progress,
    Standby,
    StandbyState,
)
from tests.support.gate import examples

GPUS = ("a", "b", "c", "d")


def desired(generation: int, *devices: str, mode: Mode = Mode.RUN) -> Desired:
    return Desired(1, "job", 1, generation, mode, devices)


@dataclass
class Worker:
    """One SideCar as a value: takes up its desired state at once, and trains on it."""

    number: int
    seen: Observed
    started: tuple[int, tuple[str, ...], tuple[str, ...]] | None = None
    """Generation, devices and peers of the process that runs."""
    ports: int = 0

    def says(self, **changes: object) -> Observed:
        address = f"10.0.0.{self.number}:{self.ports}"
        self.seen = replace(self.seen, sequence=self.seen.sequence + 1, address=address, **changes)  # type: ignore[arg-type]
        return self.seen

    def take_up(self, goal: Desired, workers: int) -> None:
        seen = self.seen
        self.says(meeting=goal.meeting, peers=goal.peers, epoch=goal.epoch)
        if goal.generation > seen.generation:
            outcome = Outcome(goal.generation, OutcomeKind.STOPPING, seen.progress.step)
            self.started = None
            self.says(
                generation=goal.generation,
                outcome=outcome,
                stopped_generation=goal.generation,
                phase=Phase.INITIALIZED,
                devices=(),
                pid=None,
            )
        if goal.mode is Mode.RUN and self.started is None and len(goal.peers) == workers:
            self.started = (goal.generation, goal.devices, goal.peers)
            self.ports += 1
            self.says(phase=Phase.RUNNING, devices=goal.devices, pid=100 + self.number)


def make(workers: int, first: Desired) -> tuple[WorkerGroup, list[Worker]]:
    group = WorkerGroup(first, workers)
    made = [
        Worker(n, Observed("job", 1, 0, 0, Phase.INITIALIZED, worker=n)) for n in range(workers)
    ]
    for worker in made:
        group.take(worker.number, worker.says())
    return group, made


def settle(group: WorkerGroup, workers: list[Worker]) -> None:
    """Everybody talks until nobody has anything to say."""
    for _ in range(10):
        for worker in workers:
            goal = group.desired_of(worker.number)
            if goal is not None:
                worker.take_up(goal, len(workers))
            group.take(worker.number, worker.seen)


def trained(workers: int = 2, size: int = 4) -> tuple[WorkerGroup, list[Worker]]:
    group, made = make(workers, desired(1, *GPUS[:size]))
    settle(group, made)
    return group, made


def merged_of(group: WorkerGroup) -> Observed:
    merged = group.merged_report(1)
    assert merged is not None
    return merged


def test_one_worker_alone_is_passed_through_as_it_is() -> None:
    group, (worker,) = make(1, desired(3, "a"))
    assert group.desired_of(0) is group.desired
    assert group.merged_report(77) is worker.seen


def test_nothing_is_said_of_a_gang_before_each_worker_has_said_a_word() -> None:
    group = WorkerGroup(desired(1), 2)
    group.take(0, Observed("job", 1, 1, 1, Phase.INITIALIZED))
    assert group.merged_report(1) is None
    assert group.desired_of(1) is None


def test_a_gang_is_initialised_when_each_worker_is() -> None:
    group, workers = make(3, desired(1, mode=Mode.SAVE_AND_STOP))
    settle(group, workers)
    assert merged_of(group).phase is Phase.INITIALIZED
    group.take(2, workers[2].says(phase=Phase.INITIALIZING))
    assert merged_of(group).phase is Phase.INITIALIZING


def test_a_gang_imports_while_any_worker_does() -> None:
    ready, imports = Standby(StandbyState.READY), Standby(StandbyState.STARTING)
    group, (chief, other) = make(2, desired(1, mode=Mode.SAVE_AND_STOP))
    group.take(0, chief.says(standby=ready))
    group.take(1, other.says(standby=imports))
    assert merged_of(group).standby == imports
    group.take(1, other.says(standby=Standby(StandbyState.OFF, "switched off")))
    assert merged_of(group).standby == ready


def test_a_start_of_several_is_as_silent_as_the_one_that_works() -> None:
    group, (chief, other) = make(2, desired(1, *GPUS))
    assert merged_of(group).silent_s is None
    group.take(0, chief.says(silent_s=600.0))
    assert merged_of(group).silent_s == 600.0
    group.take(1, other.says(silent_s=0.0))
    assert merged_of(group).silent_s == 0.0


def test_gpus_are_shared_equally_and_addresses_go_to_all_in_the_workers_order() -> None:
    _, workers = trained()
    peers = ("10.0.0.0:0", "10.0.0.1:0")
    assert [worker.started for worker in workers] == [
        (1, ("a", "b"), peers),
        (1, ("c", "d"), peers),
    ]


def test_each_start_has_addresses_of_its_own() -> None:
    group, workers = trained()
    group.desired = desired(2, "a", "b")
    settle(group, workers)
    assert workers[1].started == (2, ("b",), ("10.0.0.0:1", "10.0.0.1:1"))


def test_a_worker_that_says_no_address_yet_holds_up_the_start_of_all() -> None:
    group, workers = make(2, desired(1, *GPUS))
    workers[1].says()
    for _ in range(5):
        for worker in workers:
            goal = group.desired_of(worker.number)
            if goal is not None:
                worker.take_up(goal, 2)
            silent = replace(worker.seen, address=None) if worker.number == 1 else worker.seen
            group.take(worker.number, silent)
    assert [worker.started for worker in workers] == [None, None]


def test_the_chief_alone_is_asked_to_save_and_the_others_hear_when_it_stops() -> None:
    group, workers = trained()
    group.desired = desired(2, "a", "b")
    chief, other = group.desired_of(0), group.desired_of(1)
    assert chief is not None
    assert other is not None
    assert (chief.generation, chief.on_save_timeout, chief.fresh) == (
        2,
        OnSaveTimeout.REFUSE,
        False,
    )
    assert (other.generation, other.devices) == (1, ("c", "d")), "it trains on as before"
    group.take(0, workers[0].says(generation=2, outcome=Outcome(2, OutcomeKind.STOPPING, 7)))
    other = group.desired_of(1)
    assert other is not None
    assert (other.generation, other.devices, other.fresh) == (2, ("b",), True)
    assert other.on_save_timeout is OnSaveTimeout.KILL


def test_others_never_hear_of_a_request_that_the_chief_refuses() -> None:
    group, workers = trained()
    group.desired = desired(2, "a", "b")
    group.take(0, workers[0].says(generation=2, outcome=Outcome(2, OutcomeKind.REFUSED)))
    other = group.desired_of(1)
    assert other is not None
    assert other.generation == 1
    merged = merged_of(group)
    assert (merged.phase, merged.generation) == (Phase.RUNNING, 2)
    assert merged.devices == GPUS
    assert merged.stopped_generation == 1, "what a worker still runs is not released"


def test_a_step_to_save_after_reaches_the_others_before_the_chief_hears_that_it_did() -> None:
    group, workers = trained(3, size=3)
    group.desired = desired(2, mode=Mode.SAVE_AND_STOP)
    meeting = Meeting(1, 12)
    group.take(0, workers[0].says(generation=2, asks=meeting))
    goals = [group.desired_of(n) for n in range(3)]
    assert [one.meeting for one in goals if one] == [None, meeting, meeting]
    group.take(1, workers[1].says(meeting=meeting))
    chief = group.desired_of(0)
    assert chief is not None
    assert chief.meeting is None, "one does not know yet"
    group.take(2, workers[2].says(meeting=meeting))
    chief = group.desired_of(0)
    assert chief is not None
    assert chief.meeting == meeting


@pytest.mark.parametrize("dead", [0, 1], ids=["chief", "other"])
def test_a_worker_that_dies_fails_all_and_all_start_anew_on_the_same_gpus(dead: int) -> None:
    group, workers = trained()
    group.take(dead, workers[dead].says(phase=Phase.CRASHED, pid=None, devices=(), error="no"))
    workers[dead].started = None
    merged = merged_of(group)
    assert (merged.phase, merged.generation) == (Phase.CRASHED, 1)
    assert merged.error == f"worker {dead}: no"
    group.desired = desired(2, *GPUS)
    survivor = group.desired_of(1 - dead)
    assert survivor is not None
    assert (survivor.generation, survivor.fresh, survivor.save_deadline_s) == (
        2,
        True,
        0.0 if dead else 10.0,
    )
    settle(group, workers)
    assert merged_of(group).phase is Phase.RUNNING
    assert [worker.started[0] for worker in workers if worker.started] == [2, 2]


def test_a_worker_that_dies_because_the_chief_has_left_is_no_failure() -> None:
    group, workers = trained()
    group.desired = desired(2, "a", "b")
    group.take(0, workers[0].says(generation=2, phase=Phase.SAVING))
    group.take(1, workers[1].says(phase=Phase.CRASHED, pid=None, devices=()))
    assert merged_of(group).phase is Phase.SAVING
    chief = group.desired_of(0)
    assert chief is not None
    assert chief.on_save_timeout is OnSaveTimeout.KILL, "it may wait for the dead: not for long"


def test_the_end_of_the_chief_is_the_end_of_all() -> None:
    group, workers = trained()
    group.take(0, workers[0].says(phase=Phase.FINISHED, progress=Progress(step=9)))
    group.take(1, workers[1].says(phase=Phase.CRASHED))
    assert merged_of(group).phase is Phase.FINISHED


def test_another_controller_goes_on_with_the_addresses_that_some_started_with() -> None:
    group, workers = make(2, desired(1, *GPUS))
    for _ in range(3):
        for worker in workers:
            goal = group.desired_of(worker.number)
            if goal is not None and not (worker.number == 1 and goal.peers):
                worker.take_up(goal, 2)
            group.take(worker.number, worker.seen)
    assert workers[0].started is not None
    assert workers[1].started is None
    after = WorkerGroup(group.desired, 2)
    for worker in workers:
        after.take(worker.number, worker.says())
    settle(after, workers)
    assert workers[1].started is not None
    assert workers[1].started[2] == workers[0].started[2]


@settings(max_examples=examples(200), deadline=None)
@given(
    workers=st.integers(2, 4),
    turns=st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from([False] * 7 + [True])),
        max_size=80,
    ),
    changes=st.lists(st.integers(0, 2), max_size=6),
)
def test_in_any_order_all_processes_of_a_start_know_the_same_and_share_no_gpu(
    workers: int, turns: list[tuple[int, bool, bool]], changes: list[int]
) -> None:
    """``turns``: whose report comes next, whether the answer to it is lost, and whether something
    else is wanted then."""
    group, made = make(workers, desired(1, mode=Mode.SAVE_AND_STOP))
    gpus = tuple(str(n) for n in range(2 * workers))
    todo = list(changes)
    initialised = False
    for who, lost, changed in turns:
        worker = made[who % workers]
        goal = group.desired_of(worker.number)
        if goal is not None and not lost:
            worker.take_up(goal, workers)
        group.take(worker.number, worker.seen)
        running = [one.started for one in made if one.started is not None]
        assert len({start[2] for start in running if start[0] == group.desired.generation}) <= 1
        newest = [start for start in running if start[0] == group.desired.generation]
        if newest:
            assert len(newest) == len(running), "nobody starts while an earlier process runs"
        shares = [device for start in newest for device in start[1]]
        assert len(shares) == len(set(shares))
        merged = group.merged_report(1)
        ready = merged is not None and merged.phase is Phase.INITIALIZED
        if ready and merged is not None and merged.generation == group.desired.generation == 1:
            assert all(one.seen.generation == 1 for one in made)
            initialised = True
        if todo and initialised and changed:
            size = todo.pop() * workers
            mode = Mode.RUN if size else Mode.SAVE_AND_STOP
            group.desired = desired(group.desired.generation + 1, *gpus[:size], mode=mode)
    settle(group, made)
    wanted = group.desired
    starts = [one.started for one in made]
    if wanted.mode is Mode.RUN:
        assert {start[0] for start in starts if start} == {wanted.generation}
        assert tuple(d for start in starts if start for d in start[1]) == wanted.devices
    else:
        assert starts == [None] * workers
