"""The workers of a job as one SideCar: what each is told, and what they are together."""

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
)
from tests.support.gate import examples

GPUS = ("a", "b", "c", "d")


def desired(generation: int, *devices: str, mode: Mode = Mode.RUN) -> Desired:
    return Desired(1, "job", 1, generation, mode, devices)


@dataclass
class Worker:
    """One SideCar as a value: takes up what it is told at once, and trains on it."""

    number: int
    seen: Observed
    started: tuple[int, tuple[str, ...], tuple[str, ...]] | None = None
    """Generation, devices and peers of the process that runs."""
    ports: int = 0

    def says(self, **changes: object) -> Observed:
        address = f"10.0.0.{self.number}:{self.ports}"
        self.seen = replace(self.seen, sequence=self.seen.sequence + 1, address=address, **changes)  # type: ignore[arg-type]
        return self.seen

    def hears(self, told: Desired, workers: int) -> None:
        seen = self.seen
        self.says(meeting=told.meeting, peers=told.peers, epoch=told.epoch)
        if told.generation > seen.generation:
            outcome = Outcome(told.generation, OutcomeKind.STOPPING, seen.progress.step)
            self.started = None
            self.says(
                generation=told.generation,
                outcome=outcome,
                stopped_generation=told.generation,
                phase=Phase.INITIALIZED,
                devices=(),
                pid=None,
            )
        if told.mode is Mode.RUN and self.started is None and len(told.peers) == workers:
            self.started = (told.generation, told.devices, told.peers)
            self.ports += 1
            self.says(phase=Phase.RUNNING, devices=told.devices, pid=100 + self.number)


def make(workers: int, first: Desired) -> tuple[WorkerGroup, list[Worker]]:
    gang = WorkerGroup(first, workers)
    made = [
        Worker(n, Observed("job", 1, 0, 0, Phase.INITIALIZED, worker=n)) for n in range(workers)
    ]
    for worker in made:
        gang.take(worker.number, worker.says())
    return gang, made


def settle(gang: WorkerGroup, workers: list[Worker]) -> None:
    """Everybody talks until nobody has anything to say."""
    for _ in range(10):
        for worker in workers:
            told = gang.told(worker.number)
            if told is not None:
                worker.hears(told, len(workers))
            gang.take(worker.number, worker.seen)


def trained(workers: int = 2, size: int = 4) -> tuple[WorkerGroup, list[Worker]]:
    gang, made = make(workers, desired(1, *GPUS[:size]))
    settle(gang, made)
    return gang, made


def together(gang: WorkerGroup) -> Observed:
    folded = gang.folded(1)
    assert folded is not None
    return folded


def test_one_worker_alone_is_passed_through_as_it_is() -> None:
    gang, (worker,) = make(1, desired(3, "a"))
    assert gang.told(0) is gang.desired
    assert gang.folded(77) is worker.seen


def test_nothing_is_said_of_a_gang_before_each_worker_has_said_a_word() -> None:
    gang = WorkerGroup(desired(1), 2)
    gang.take(0, Observed("job", 1, 1, 1, Phase.INITIALIZED))
    assert gang.folded(1) is None
    assert gang.told(1) is None


def test_a_gang_is_initialised_when_each_worker_is() -> None:
    gang, workers = make(3, desired(1, mode=Mode.SAVE_AND_STOP))
    settle(gang, workers)
    assert together(gang).phase is Phase.INITIALIZED
    gang.take(2, workers[2].says(phase=Phase.INITIALIZING))
    assert together(gang).phase is Phase.INITIALIZING


def test_gpus_are_shared_equally_and_addresses_go_to_all_in_the_workers_order() -> None:
    _, workers = trained()
    peers = ("10.0.0.0:0", "10.0.0.1:0")
    assert [worker.started for worker in workers] == [
        (1, ("a", "b"), peers),
        (1, ("c", "d"), peers),
    ]


def test_each_start_has_addresses_of_its_own() -> None:
    gang, workers = trained()
    gang.desired = desired(2, "a", "b")
    settle(gang, workers)
    assert workers[1].started == (2, ("b",), ("10.0.0.0:1", "10.0.0.1:1"))


def test_a_worker_that_says_no_address_yet_holds_up_the_start_of_all() -> None:
    gang, workers = make(2, desired(1, *GPUS))
    workers[1].says()
    for _ in range(5):
        for worker in workers:
            told = gang.told(worker.number)
            if told is not None:
                worker.hears(told, 2)
            silent = replace(worker.seen, address=None) if worker.number == 1 else worker.seen
            gang.take(worker.number, silent)
    assert [worker.started for worker in workers] == [None, None]


def test_the_chief_alone_is_asked_to_save_and_the_others_hear_when_it_stops() -> None:
    gang, workers = trained()
    gang.desired = desired(2, "a", "b")
    chief, other = gang.told(0), gang.told(1)
    assert chief is not None
    assert other is not None
    assert (chief.generation, chief.on_save_timeout, chief.fresh) == (
        2,
        OnSaveTimeout.REFUSE,
        False,
    )
    assert (other.generation, other.devices) == (1, ("c", "d")), "it trains on as it was told"
    gang.take(0, workers[0].says(generation=2, outcome=Outcome(2, OutcomeKind.STOPPING, 7)))
    other = gang.told(1)
    assert other is not None
    assert (other.generation, other.devices, other.fresh) == (2, ("b",), True)
    assert other.on_save_timeout is OnSaveTimeout.KILL


def test_others_never_hear_of_a_request_that_the_chief_refuses() -> None:
    gang, workers = trained()
    gang.desired = desired(2, "a", "b")
    gang.take(0, workers[0].says(generation=2, outcome=Outcome(2, OutcomeKind.REFUSED)))
    other = gang.told(1)
    assert other is not None
    assert other.generation == 1
    folded = together(gang)
    assert (folded.phase, folded.generation) == (Phase.RUNNING, 2)
    assert folded.devices == GPUS
    assert folded.stopped_generation == 1, "what a worker still runs is not released"


def test_a_step_to_save_after_reaches_the_others_before_the_chief_hears_that_it_did() -> None:
    gang, workers = trained(3, size=3)
    gang.desired = desired(2, mode=Mode.SAVE_AND_STOP)
    meeting = Meeting(1, 12)
    gang.take(0, workers[0].says(generation=2, asks=meeting))
    told = [gang.told(n) for n in range(3)]
    assert [one.meeting for one in told if one] == [None, meeting, meeting]
    gang.take(1, workers[1].says(meeting=meeting))
    chief = gang.told(0)
    assert chief is not None
    assert chief.meeting is None, "one does not know yet"
    gang.take(2, workers[2].says(meeting=meeting))
    chief = gang.told(0)
    assert chief is not None
    assert chief.meeting == meeting


@pytest.mark.parametrize("dead", [0, 1], ids=["chief", "other"])
def test_a_worker_that_dies_fails_all_and_all_start_anew_on_the_same_gpus(dead: int) -> None:
    gang, workers = trained()
    gang.take(dead, workers[dead].says(phase=Phase.CRASHED, pid=None, devices=(), error="no"))
    workers[dead].started = None
    folded = together(gang)
    assert (folded.phase, folded.generation) == (Phase.CRASHED, 1)
    assert folded.error == f"worker {dead}: no"
    gang.desired = desired(2, *GPUS)
    survivor = gang.told(1 - dead)
    assert survivor is not None
    assert (survivor.generation, survivor.fresh, survivor.save_deadline_s) == (
        2,
        True,
        0.0 if dead else 10.0,
    )
    settle(gang, workers)
    assert together(gang).phase is Phase.RUNNING
    assert [worker.started[0] for worker in workers if worker.started] == [2, 2]


def test_a_worker_that_dies_because_the_chief_has_left_is_no_failure() -> None:
    gang, workers = trained()
    gang.desired = desired(2, "a", "b")
    gang.take(0, workers[0].says(generation=2, phase=Phase.SAVING))
    gang.take(1, workers[1].says(phase=Phase.CRASHED, pid=None, devices=()))
    assert together(gang).phase is Phase.SAVING
    chief = gang.told(0)
    assert chief is not None
    assert chief.on_save_timeout is OnSaveTimeout.KILL, "it may wait for the dead: not for long"


def test_the_end_of_the_chief_is_the_end_of_all() -> None:
    gang, workers = trained()
    gang.take(0, workers[0].says(phase=Phase.FINISHED, progress=Progress(step=9)))
    gang.take(1, workers[1].says(phase=Phase.CRASHED))
    assert together(gang).phase is Phase.FINISHED


def test_another_controller_goes_on_with_the_addresses_that_some_started_with() -> None:
    gang, workers = make(2, desired(1, *GPUS))
    for _ in range(3):
        for worker in workers:
            told = gang.told(worker.number)
            if told is not None and not (worker.number == 1 and told.peers):
                worker.hears(told, 2)
            gang.take(worker.number, worker.seen)
    assert workers[0].started is not None
    assert workers[1].started is None
    after = WorkerGroup(gang.desired, 2)
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
    gang, made = make(workers, desired(1, mode=Mode.SAVE_AND_STOP))
    gpus = tuple(str(n) for n in range(2 * workers))
    todo = list(changes)
    initialised = False
    for who, lost, changed in turns:
        worker = made[who % workers]
        told = gang.told(worker.number)
        if told is not None and not lost:
            worker.hears(told, workers)
        gang.take(worker.number, worker.seen)
        running = [one.started for one in made if one.started is not None]
        assert len({start[2] for start in running if start[0] == gang.desired.generation}) <= 1
        newest = [start for start in running if start[0] == gang.desired.generation]
        if newest:
            assert len(newest) == len(running), "nobody starts while an earlier process runs"
        shares = [device for start in newest for device in start[1]]
        assert len(shares) == len(set(shares))
        folded = gang.folded(1)
        ready = folded is not None and folded.phase is Phase.INITIALIZED
        if ready and folded is not None and folded.generation == gang.desired.generation == 1:
            assert all(one.seen.generation == 1 for one in made)
            initialised = True
        if todo and initialised and changed:
            size = todo.pop() * workers
            mode = Mode.RUN if size else Mode.SAVE_AND_STOP
            gang.desired = desired(gang.desired.generation + 1, *gpus[:size], mode=mode)
    settle(gang, made)
    wanted = gang.desired
    starts = [one.started for one in made]
    if wanted.mode is Mode.RUN:
        assert {start[0] for start in starts if start} == {wanted.generation}
        assert tuple(d for start in starts if start for d in start[1]) == wanted.devices
    else:
        assert starts == [None] * workers
