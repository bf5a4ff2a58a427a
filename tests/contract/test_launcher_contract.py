"""The promises of every launcher (``reshape_launcher.spec.Launcher``), on each of them.

A launcher joins by a subclass of Bed that puts its own in place of the local one. The Kubernetes
launcher takes the same tests in tests/kubernetes/test_launcher_contract.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from examples.slurm.fake_slurm import FakeSlurm
from examples.slurm.slurm_launcher import SlurmLauncher
from reshape_launcher.declared_costs import ContainerCosts, DeclaredLauncher
from reshape_launcher.spec import ContainerStatus, LaunchError, ReleaseCheck
from reshape_sidecar.wire import Mode, OnSaveTimeout, Phase
from tests.support import training_programs as programs
from tests.support.hosts_bed import HostsBed
from tests.support.sidecar_bed import DEVICES, Bed, bed, eventually


class SlowedBed(Bed):
    """The local launcher behind declared costs, which are too short to be noticed here."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        costs = ContainerCosts("assumed:test", start_s=0.1, stop_s=0.1)
        self.launcher = DeclaredLauncher(self.launcher, costs)


class SlurmBed(Bed):
    """The skeleton of docs/another-orchestrator.md, on a Slurm of this machine."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        slurm = FakeSlurm(tmp_path / "slurm")
        self.launcher = SlurmLauncher(self.root, slurm, reads_memory=False)


@pytest.fixture(
    params=[Bed, SlowedBed, SlurmBed, HostsBed], ids=["local", "slowed", "slurm", "hosts"]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path, request.param) as made:
        yield made


def containers(world: Bed) -> tuple[ContainerStatus, ...]:
    return asyncio.run(world.launcher.containers())


def released(world: Bed, generation: int) -> ReleaseCheck:
    """As the controller asks: once more if nobody can be asked (a node may not know a new pod)."""

    def look() -> ReleaseCheck | None:
        with contextlib.suppress(OSError):
            return asyncio.run(world.launcher.check_release("job-1", 1, generation, DEVICES))
        return None

    return eventually("somebody who can be asked for a release", look)


def test_there_is_nothing_before_the_first_launch(world: Bed) -> None:
    assert containers(world) == ()
    assert world.launcher.log_path("job-1", 1) is None


def test_a_launched_container_runs_and_has_no_training_process(world: Bed) -> None:
    world.launch(world.spec(programs.PLAIN))
    (status,) = containers(world)
    assert (status.job, status.attempt, status.running) == ("job-1", 1, True)
    assert status.exit_code is None
    assert released(world, 0).empty


def test_a_program_imports_the_session_api_that_its_image_need_not_have(world: Bed) -> None:
    world.training(programs.SESSION, size=2)
    log = world.logs() / "training.log"
    eventually("its output", lambda: "trains on 2 with" in log.read_text())
    assert "/python/reshape_sidecar/__init__.py" in log.read_text()


def test_launching_what_runs_is_no_error_and_starts_nothing(world: Bed) -> None:
    before = world.training(programs.PLAIN)
    world.launch(world.spec(programs.PLAIN))
    assert len(containers(world)) == 1
    assert world.process().pid == before.pid


def test_two_launches_at_the_same_time_make_one_container(world: Bed) -> None:
    spec = world.spec(programs.PLAIN)

    async def both() -> None:
        await asyncio.gather(*(world.launcher.launch(spec, "secret") for _ in range(3)))

    asyncio.run(both())
    assert len(containers(world)) == 1
    assert world.count() == 1


def test_launching_what_has_ended_is_no_error_and_starts_nothing(world: Bed) -> None:
    world.launch(world.spec(programs.PLAIN))
    world.remove()
    world.launch(world.spec(programs.PLAIN))
    (status,) = containers(world)
    assert not status.running


def test_attempts_of_one_job_are_containers_of_their_own(world: Bed) -> None:
    spec = world.spec(programs.PLAIN)
    world.launch(spec)
    world.launch(replace(spec, attempt=2))
    try:
        world.remove()
        assert [(c.attempt, c.running) for c in containers(world)] == [(1, False), (2, True)]
    finally:
        asyncio.run(world.launcher.remove("job-1", 2, 0.0))


def test_removing_ends_every_process_and_may_be_repeated(world: Bed) -> None:
    world.training(programs.DOUBLE_FORKS)
    world.remove(grace_s=0.5)
    (status,) = containers(world)
    assert not status.running
    assert world.left() == []
    world.remove()
    assert containers(world) == (status,)


def test_removing_what_never_was_is_no_error(world: Bed) -> None:
    asyncio.run(world.launcher.remove("job-9", 1, 0.1))
    assert containers(world) == ()


def test_a_program_that_ignores_term_is_killed_when_its_grace_period_is_over(world: Bed) -> None:
    world.training(programs.IGNORES)
    world.remove(grace_s=0.3)
    assert world.left() == []


def test_a_release_is_refused_while_a_process_of_that_generation_is_alive(world: Bed) -> None:
    seen = world.training(programs.PLAIN)
    check = released(world, seen.generation)
    assert not check.empty
    assert str(seen.pid) in check.reason
    assert released(world, seen.generation - 1).empty


def test_a_release_is_confirmed_once_the_process_is_gone(world: Bed) -> None:
    seen = world.training(programs.PLAIN)
    generation = world.coordinator.want(Mode.SAVE_AND_STOP)
    world.coordinator.until("stopped", lambda o: o.stopped_generation == generation)
    assert released(world, seen.generation).empty


def test_the_restart_on_fewer_devices_does_not_hold_up_the_release(world: Bed) -> None:
    seen = world.training(programs.PLAIN)
    after = world.started(world.coordinator.want(Mode.RUN, *DEVICES[:2]))
    assert after.pid != seen.pid
    assert released(world, seen.generation).empty
    assert not released(world, after.generation).empty


@pytest.mark.parametrize("words", [(), ("clean",)], ids=["marked", "without environment"])
def test_a_daemon_that_training_left_behind_holds_up_the_release(
    world: Bed, words: tuple[str, ...]
) -> None:
    seen = world.training(programs.DOUBLE_FORKS, *words)
    daemon = (world.code / "daemon").read_text()
    world.coordinator.want(
        Mode.SAVE_AND_STOP, kill_after_s=60.0, on_save_timeout=OnSaveTimeout.KILL
    )
    world.coordinator.until("no main process", lambda o: o.pid is None)
    check = released(world, seen.generation)
    assert not check.empty
    assert daemon in check.reason


def gang(world: Bed) -> None:
    """Launch a container for each of two workers and wait until both are initialised."""
    world.coordinator.want(Mode.SAVE_AND_STOP)
    world.launch(world.spec(programs.PLAIN, workers=2))

    def both() -> bool:
        reports = world.coordinator.reports
        ready = {seen.worker for seen in reports if seen.phase is Phase.INITIALIZED}
        return ready == {0, 1}

    eventually("both workers initialised", both)


def test_each_of_several_workers_has_a_sidecar_and_an_address_of_its_own(world: Bed) -> None:
    gang(world)
    (status,) = containers(world)
    assert status.running
    reports = world.coordinator.reports
    eventually("two addresses", lambda: len({s.address for s in reports if s.address}) == 2)
    assert world.coordinator.refused == 0, "each has its own token"


def test_removing_several_workers_ends_all_of_them(world: Bed) -> None:
    gang(world)
    world.remove()
    (status,) = containers(world)
    assert not status.running
    assert world.left() == []


def test_a_release_is_refused_while_a_process_of_any_worker_is_alive(world: Bed) -> None:
    gang(world)
    generation = world.coordinator.want(Mode.RUN, *DEVICES[:1], peers=("a:1", "b:2"))
    reports = world.coordinator.reports

    def running() -> set[int]:
        return {seen.worker for seen in reports if seen.pid and seen.generation == generation}

    eventually("both train", lambda: running() == {0, 1})
    assert not released(world, generation).empty
    last = world.coordinator.want(Mode.SAVE_AND_STOP)
    eventually(
        "both stopped",
        lambda: len({s.worker for s in reports if s.stopped_generation == last}) == 2,
    )
    assert released(world, generation).empty


def test_log_files_are_readable_while_it_runs_and_afterwards(world: Bed) -> None:
    world.training(programs.PLAIN)
    log = world.logs() / "training.log"
    eventually("output", lambda: "works on" in log.read_text())
    world.remove()
    assert "works on" in log.read_text()


def test_a_launch_that_cannot_be_done_is_one_clear_error(world: Bed) -> None:
    with pytest.raises(LaunchError, match="is not a valid folder name") as caught:
        world.launch(world.spec(programs.PLAIN, job="../job-1"))
    assert not caught.value.retryable
