"""A successor under a real SideCar: prepared, adopted, dropped, and killed in each state.

The program is hooked and uses the session API, so it is held where it begins a session, without a
framework.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.processes import MarkedProcess
from reshape_sidecar.wire import Mode, Observed, Phase, PrepareStage, Shortcut, StartKind
from tests.support import training_programs as programs
from tests.support.sidecar_bed import DEVICES, Bed, bed, eventually

TWO, ONE = DEVICES[:2], DEVICES[:1]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made


def training(job: Bed) -> Observed:
    seen = job.training(programs.SESSION, framework="keras", standby=Shortcut.OFF)
    assert seen.can_prepare
    return job.coordinator.until("steps", lambda o: o.progress.step > 3)


def marked(job: Bed) -> list[MarkedProcess]:
    found = proc.marked_processes(proc.snapshot())
    return [entry for entry in found if entry.marker == job.marker]


def successors(job: Bed) -> list[int]:
    """Pids of the processes that wait: children of init that are neither the agent nor training."""
    children = [one for one in proc.snapshot().values() if one.parent == job.init().pid]
    others = {job.agent(), job.process().pid if job.alive() else 0}
    return [one.pid for one in children if not one.zombie and one.pid not in others]


def prepare(job: Bed, devices: tuple[str, ...] | None, generation_devices: tuple[str, ...]) -> None:
    """Repeat the newest generation with ``devices`` to prepare for."""
    newest = job.coordinator.desired
    assert newest is not None
    job.coordinator.want(
        Mode.RUN, *generation_devices, generation=newest.generation, prepare=devices
    )


def prepared(job: Bed, devices: tuple[str, ...] = TWO) -> int:
    """Have a successor prepared while four devices train; return its pid."""
    prepare(job, devices, DEVICES)
    seen = job.coordinator.until(
        "prepared",
        lambda o: (
            o.prepared is not None
            and o.prepared.devices == devices
            and o.prepared.stage is PrepareStage.EFFECT_BARRIER
        ),
    )
    assert seen.prepared is not None
    assert seen.prepared.reason == "it uses a session"
    assert seen.prepared.ready_after_s is not None
    assert seen.phase is Phase.RUNNING
    (pid,) = successors(job)
    return pid


def gone(pid: int) -> bool:
    found = proc.read(pid)
    return found is None or found.zombie


class Watch:
    """Looks all the time at how many processes count as training."""

    def __init__(self, job: Bed) -> None:
        self.most = 0
        self._job = job
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.is_set():
            generations = [e for e in marked(self._job) if e.generation is not None]
            self.most = max(self.most, len(generations))


def test_a_prepared_successor_becomes_the_training_process_of_the_next_generation(
    job: Bed,
) -> None:
    before = training(job)
    with Watch(job) as watch:
        pid = prepared(job)
        assert not gone(before.pid or 0), "its predecessor trains on"
        generation = job.coordinator.want(Mode.RUN, *TWO)
        after = job.started(generation)
        job.coordinator.until("its first step", lambda o: o.phase is Phase.RUNNING)
    assert (after.pid, after.devices, after.prepared) == (pid, TWO, None)
    assert after.times.how is StartKind.SUCCESSOR
    assert after.times.prepare_s is not None
    assert after.process_restarts == 1
    assert after.outcome is not None
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert f"RESHAPE_DEVICES={','.join(TWO)}".encode() in environment
    assert watch.most == 1, "one process trains at a time"
    entry = next(entry for entry in marked(job) if entry.proc.pid == pid)
    assert entry.generation == generation


def test_a_successor_for_other_devices_is_dropped_and_the_start_is_cold(job: Bed) -> None:
    training(job)
    pid = prepared(job)
    generation = job.coordinator.want(Mode.RUN, *ONE)
    after = job.started(generation)
    assert after.pid != pid
    assert after.devices == ONE
    assert after.times.how is not StartKind.SUCCESSOR
    eventually("the successor is gone", lambda: gone(pid))


def test_a_plan_that_is_given_up_drops_its_successor_and_training_goes_on(job: Bed) -> None:
    before = training(job)
    pid = prepared(job)
    prepare(job, None, DEVICES)
    seen = job.coordinator.until("dropped", lambda o: o.prepared is None)
    assert seen.pid == before.pid
    eventually("the successor is gone", lambda: gone(pid))
    assert successors(job) == []
    assert prepared(job, ONE) != pid


def test_a_killed_successor_is_no_failure_of_the_job_and_the_start_is_cold(job: Bed) -> None:
    before = training(job)
    pid = prepared(job)
    os.kill(pid, signal.SIGKILL)
    seen = job.coordinator.until(
        "it has failed",
        lambda o: o.prepared is not None and o.prepared.stage is PrepareStage.FAILED,
    )
    assert (seen.pid, seen.phase) == (before.pid, Phase.RUNNING)
    generation = job.coordinator.want(Mode.RUN, *TWO)
    after = job.started(generation)
    assert after.times.how is not StartKind.SUCCESSOR
    assert after.exit_code != 128 + signal.SIGKILL


def test_a_killed_agent_loses_no_successor(job: Bed) -> None:
    training(job)
    pid = prepared(job)
    job.kill_agent()
    generation = job.coordinator.want(Mode.RUN, *TWO)
    assert job.started(generation).pid == pid


def test_an_agent_that_is_killed_during_the_hand_over_adopts_the_same_process(job: Bed) -> None:
    training(job)
    pid = prepared(job)
    generation = job.coordinator.want(Mode.RUN, *TWO)
    for _ in range(3):
        job.kill_agent()
    assert job.started(generation).pid == pid


def test_the_end_of_the_container_ends_its_successor(job: Bed) -> None:
    training(job)
    pid = prepared(job)
    job.coordinator.want(Mode.EXIT)
    job.gone()
    assert gone(pid)


def test_after_a_crash_of_training_its_successor_for_other_devices_is_not_used(job: Bed) -> None:
    before = training(job)
    pid = prepared(job)
    os.kill(before.pid or 0, signal.SIGKILL)
    job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    generation = job.coordinator.want(Mode.RUN, *DEVICES)
    after = job.started(generation)
    assert after.pid not in (before.pid, pid)
    eventually("the successor is gone", lambda: gone(pid))


def test_a_successor_that_is_killed_after_its_release_is_a_crash_like_any_other(job: Bed) -> None:
    training(job)
    pid = prepared(job)
    generation = job.coordinator.want(Mode.RUN, *TWO)
    assert job.started(generation).pid == pid
    os.kill(pid, signal.SIGKILL)
    seen = job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    assert seen.exit_code == 128 + signal.SIGKILL
    after = job.started(job.coordinator.want(Mode.RUN, *TWO))
    assert after.times.how is not StartKind.SUCCESSOR


def test_a_program_without_the_hook_prepares_nothing(job: Bed) -> None:
    assert not job.training(programs.STEPS).can_prepare


def test_a_job_that_may_not_overlap_prepares_nothing_even_if_it_is_asked_to(job: Bed) -> None:
    """As on real GPUs: two of its processes must not be on one of them."""
    seen = job.training(
        programs.SESSION, framework="keras", standby=Shortcut.OFF, overlap=Shortcut.OFF
    )
    assert not seen.can_prepare
    prepare(job, TWO, DEVICES)
    job.coordinator.until("its answer", lambda o: o.prepare == TWO)
    job.coordinator.until("steps after that", lambda o: o.progress.step > 10)
    assert successors(job) == []
    after = job.started(job.coordinator.want(Mode.RUN, *TWO))
    assert after.times.how is StartKind.COLD


Moment = Callable[[Bed], int]
"""Brings the job into a state; returns the generation that is to train next."""


def while_it_imports(job: Bed) -> int:
    newest = job.coordinator.desired
    assert newest is not None
    prepare(job, TWO, DEVICES)
    eventually("a successor", lambda: successors(job))
    return newest.generation


def while_its_predecessor_saves(job: Bed) -> int:
    prepared(job)
    generation = job.coordinator.want(Mode.RUN, *TWO)
    eventually("the request", lambda: f"for generation {generation}" in job.log("init.log"))
    return generation


def while_it_waits(job: Bed) -> int:
    prepared(job)
    assert job.coordinator.desired is not None
    return job.coordinator.desired.generation


def once_it_is_released(job: Bed) -> int:
    prepared(job)
    generation = job.coordinator.want(Mode.RUN, *TWO)
    job.started(generation)
    return generation


@pytest.mark.parametrize(
    "moment",
    [while_it_imports, while_it_waits, while_its_predecessor_saves, once_it_is_released],
)
def test_the_death_of_init_in_a_hand_over_leaves_no_process(job: Bed, moment: Moment) -> None:
    training(job)
    moment(job)
    os.kill(job.init().pid, signal.SIGKILL)
    eventually("all are gone", lambda: job.left() == [])


@pytest.mark.parametrize("moment", [while_it_imports, while_its_predecessor_saves])
@pytest.mark.parametrize("victim", ["agent", "successor", "training"])
def test_a_death_in_a_hand_over_leaves_one_process_that_trains(
    job: Bed, moment: Moment, victim: str
) -> None:
    before = training(job)
    with Watch(job) as watch:
        generation = moment(job)
        waiting = successors(job)
        pids = {"agent": [job.agent()], "training": [before.pid or 0], "successor": waiting}
        with contextlib.suppress(ProcessLookupError):  # it may just have left, or gone on
            for pid in pids[victim]:
                os.kill(pid, signal.SIGKILL)
        if moment is while_it_imports:
            generation = job.coordinator.want(Mode.RUN, *TWO)
        after = job.started(generation)
        job.coordinator.until("its first step", lambda o: o.phase is Phase.RUNNING)
    assert after.devices == TWO
    assert watch.most == 1, "one process trains at a time"
    assert [e.generation for e in marked(job) if e.generation is not None] == [generation]
