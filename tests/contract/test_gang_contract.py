"""The promises of a launcher that places gangs (``no_gang`` is None): one attempt on two hosts.

On pods of two real nodes the same is tested in tests/kubernetes/test_gangs.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_launcher.spec import ContainerStatus, HostShare, LaunchError
from reshape_sidecar.init.look import init_of
from reshape_sidecar.wire import Mode, Phase
from tests.support import training_programs as programs
from tests.support.hosts_bed import FIRST, SECOND, HostsBed
from tests.support.sidecar_bed import DEVICES, bed, eventually

BOTH = {FIRST: True, SECOND: True}


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[HostsBed]:
    with bed(tmp_path, HostsBed) as made:
        assert isinstance(made, HostsBed)
        yield made


def test_each_host_of_a_gang_has_a_status_with_its_name(gang: HostsBed) -> None:
    assert gang.launcher.no_gang() is None
    gang.begun()
    statuses = asyncio.run(gang.launcher.containers())
    assert [(one.job, one.attempt, one.host, one.running) for one in statuses] == [
        ("job-1", 1, FIRST, True),
        ("job-1", 1, SECOND, True),
    ]


def test_the_workers_have_one_sidecar_each_with_its_own_token_number_and_devices(
    gang: HostsBed,
) -> None:
    spec = gang.gang()
    shares = (HostShare(FIRST, 1, DEVICES[:2]), HostShare(SECOND, 2, DEVICES[2:]))
    gang.begun(replace(spec, host_devices=DEVICES[:2], shares=shares))
    eventually("three addresses", lambda: len(set(gang.addresses)) == 3)
    assert gang.coordinator.refused == 0, "each worker has its own token"
    here, other, third = gang.folders(FIRST)
    there, _, beside = gang.folders(SECOND)
    assert not other.path.exists()
    assert not third.path.exists()
    specs = [folder.spec() for folder in (here, there, beside)]
    assert [one.worker for one in specs] == [0, 1, 2]
    assert [one.host_devices for one in specs] == [DEVICES[:2], DEVICES[2:], DEVICES[2:]]
    assert {one.workers for one in specs} == {3}


def test_a_gang_is_reshaped_down_and_up_in_its_living_containers(gang: HostsBed) -> None:
    gang.begun()
    inits = [init_of(folder.run) for host in BOTH for folder in gang.folders(host)]
    before = gang.trains(2)
    assert all(not gang.released(before, host).empty for host in BOTH)
    down = gang.trains(1)
    assert all(gang.released(before, host).empty for host in BOTH), "their old processes ended"
    assert all(not gang.released(down, host).empty for host in BOTH)
    up = gang.trains(2)
    assert all(gang.released(down, host).empty for host in BOTH)
    assert [init_of(folder.run) for host in BOTH for folder in gang.folders(host)] == inits
    assert len([one for one in inits if one is not None]) == 3
    pids = {seen.pid for seen in gang.coordinator.reports if seen.generation in (before, down, up)}
    assert len(pids - {None}) == 9, "a process of each worker for each number of GPUs"


def test_a_release_is_refused_by_the_host_that_still_has_a_process_and_by_no_other(
    gang: HostsBed,
) -> None:
    gang.begun()
    generation = gang.trains(1)
    (pid,) = [
        s.pid
        for s in gang.coordinator.reports
        if s.worker == 2 and s.generation == generation and s.pid
    ][:1]
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # it will not leave
    try:
        last = gang.coordinator.want(Mode.SAVE_AND_STOP, save_deadline_s=60.0, kill_after_s=60.0)

        def others_stopped() -> bool:
            reports = gang.coordinator.reports
            return {s.worker for s in reports if s.stopped_generation == last} == {0, 1}

        eventually("the others stopped", others_stopped)
        assert gang.released(generation, FIRST).empty
        check = gang.released(generation, SECOND)
        assert not check.empty
        assert str(pid) in check.reason
        assert not gang.released(generation, "").empty, "asked for any host"
    finally:
        os.kill(pid, signal.SIGKILL)


def test_removing_a_gang_ends_every_process_on_all_hosts_and_may_be_repeated(
    gang: HostsBed,
) -> None:
    gang.begun()
    gang.trains(1)
    gang.remove()
    assert gang.running() == {FIRST: False, SECOND: False}
    assert gang.left() == []
    gang.remove()
    assert gang.running() == {FIRST: False, SECOND: False}


def test_the_first_workers_host_ends_first_wherever_it_is(gang: HostsBed) -> None:
    gang.begun(gang.gang({SECOND: 1, FIRST: 1}))
    assert gang.logs() == gang.folders(SECOND)[0].logs, "the logs are those of the first worker"
    ended: list[str] = []
    for name, launcher in gang.hosts._launchers.items():
        remove = launcher.remove

        async def noted(*words: object, name: str = name, remove: object = remove) -> None:
            ended.append(name)
            await remove(*words)  # type: ignore[operator]

        launcher.remove = noted  # type: ignore[method-assign,assignment]
    gang.remove()
    assert ended == [SECOND, FIRST]


def test_removing_a_gang_on_one_host_leaves_the_others(gang: HostsBed) -> None:
    gang.begun()
    asyncio.run(gang.launcher.remove("job-1", 1, 0.5, (SECOND,)))
    assert gang.running() == {FIRST: True, SECOND: False}
    assert gang.left_on(SECOND) == []
    assert gang.left_on(FIRST)


def test_a_worker_that_ends_takes_along_those_of_its_host_and_no_other(gang: HostsBed) -> None:
    gang.begun()
    init = init_of(gang.folders(SECOND)[2].run)
    assert init is not None
    os.kill(init.pid, signal.SIGKILL)
    eventually("its end is seen", lambda: gang.running() == {FIRST: True, SECOND: False})
    assert gang.left_on(SECOND) == []
    assert gang.left_on(FIRST)


def test_launching_a_gang_that_runs_starts_nothing(gang: HostsBed) -> None:
    gang.begun()
    before = gang.left()
    gang.launch(gang.gang())
    assert gang.left() == before


def test_a_gang_of_which_one_host_cannot_start_leaves_nothing_on_the_others(
    gang: HostsBed,
) -> None:
    gang.folder.path.mkdir(parents=True)
    gang.folder.logs.touch()  # no folder can be made there; the other host starts before
    with pytest.raises(LaunchError, match="cannot be started") as caught:
        gang.launch(gang.gang())
    assert caught.value.retryable
    assert gang.left() == []
    statuses: tuple[ContainerStatus, ...] = asyncio.run(gang.launcher.containers())
    assert not any(one.running for one in statuses)


def test_a_gang_on_a_host_that_does_not_exist_is_refused_by_name(gang: HostsBed) -> None:
    spec = replace(gang.gang(), shares=(HostShare(FIRST, 1), HostShare("host-9", 2)))
    with pytest.raises(LaunchError, match="host-9 is not one of host-0, host-1") as caught:
        gang.launch(spec)
    assert not caught.value.retryable


def test_what_is_on_a_silent_host_counts_as_running_and_the_rest_of_the_gang_can_end(
    gang: HostsBed,
) -> None:
    gang.begun()
    generation = gang.trains(1)
    gang.silence(SECOND)
    with pytest.raises(OSError, match="host host-1 does not answer"):
        gang.released(generation, SECOND)
    assert not gang.released(generation, FIRST).empty, "the other host answers"
    for pid in gang.left_on(SECOND):  # the machine is without power
        os.kill(pid, signal.SIGKILL)
    asyncio.run(gang.launcher.remove("job-1", 1, 0.5, (FIRST,)))
    assert gang.running() == {FIRST: False, SECOND: True}, "its processes may live"
    assert gang.released(generation, FIRST).empty
    with pytest.raises(LaunchError, match="does not answer") as caught:
        asyncio.run(gang.launcher.remove("job-1", 1, 0.5))
    assert caught.value.retryable
    with pytest.raises(LaunchError, match="does not answer"):
        gang.launch(replace(gang.gang(), attempt=2))
    gang.remove()
    assert gang.running() == {FIRST: False, SECOND: False}


def test_a_job_on_one_host_only_is_seen_on_that_host(gang: HostsBed) -> None:
    gang.coordinator.want(Mode.SAVE_AND_STOP)
    gang.launch(replace(gang.spec(programs.PLAIN), host=SECOND))
    gang.coordinator.until("initialised", lambda seen: seen.phase is Phase.INITIALIZED)
    assert gang.running() == {SECOND: True}
    assert not gang.folder.path.exists()
