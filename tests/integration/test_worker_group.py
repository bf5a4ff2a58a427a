"""A job of several workers on a real daemon: a SideCar each, reshaped and ended together."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reshape_launcher.local import processes
from reshape_launcher.local.launcher import folder_of
from reshape_sidecar import checkpoints
from reshape_sidecar.init.look import init_of, training_of
from reshape_sidecar.init.processes import Marker
from tests.support.daemon_bed import Bed, eventually, start_of
from tests.support.daemon_bed import bed as make_bed
from tests.support.gang_program import LOCKSTEP

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def submit(bed: Bed, name: str, steps: int, *, every: int = 10**9, **fields: Any) -> str:
    """A job of two workers in lock-step."""
    command = ["python", f"{name}.py", str(steps), "0.02", str(every)]
    return bed.submit(name, LOCKSTEP, steps=steps, workers=2, command=command, **fields)


def with_a_save(bed: Bed, name: str, **env: str) -> str:
    """A daemon with a job of two workers on four GPUs, whose checkpoint of step 20 is there."""
    bed.up()
    job = submit(bed, name, 100_000, every=10, env=env)
    bed.reaches(job, "running", size=4)
    eventually(lambda: 30 in saved(output(bed, job, 0)), text="a save after that of step 20")
    return job


def marker(bed: Bed, job: str, worker: int, attempt: int = 1) -> Marker:
    folder = bed.home / "jobs" / job / f"attempt-{attempt}"
    own = folder / f"worker-{worker}" if worker else folder
    return Marker(job, attempt, str(own / "run" / "agent.sock"))


def output(bed: Bed, job: str, worker: int, attempt: int = 1) -> str:
    path = folder_of(marker(bed, job, worker, attempt)).logs / "training.log"
    return path.read_text() if path.exists() else ""


def begun(text: str) -> list[tuple[int, str, str]]:
    """Of each start: step, devices, address."""
    found = re.findall(r"begins after step (\d+) on (\S+) at (\S+)", text)
    return [(int(step), devices, address) for step, devices, address in found]


def starts_of(
    bed: Bed, job: str, worker: int, least: int, attempt: int = 1
) -> list[tuple[int, str, str]]:
    """Wait until a worker began so often: a process that is there may not have said a word yet."""

    def look() -> list[tuple[int, str, str]] | None:
        found = begun(output(bed, job, worker, attempt))
        return found if len(found) >= least else None

    return eventually(look, text=f"worker {worker} begins {least} times")


def saved(text: str) -> list[int]:
    return [int(step) for step in re.findall(r"saves step (\d+)", text)]


def training(bed: Bed, job: str, worker: int, attempt: int = 1) -> int:
    """Pid of a worker's training process."""

    def look() -> int | None:
        found = training_of(folder_of(marker(bed, job, worker, attempt)).run)
        alive = found is not None and start_of(found.pid) == found.start_time
        return found.pid if found is not None and alive else None

    return int(eventually(look, text=f"worker {worker} of {job} trains") or 0)


def test_both_workers_are_reshaped_down_and_up_at_one_and_the_same_step(bed: Bed) -> None:
    bed.up("--preset", "paper")
    job = submit(bed, "gang", 100_000)
    before = bed.reaches(job, "running", size=4)
    newcomer = bed.submit("newcomer", steps=100_000, optional_gpus=[2], max_wait_s=1)
    bed.reaches(job, "running", size=2)
    bed.reshape("cancel", "newcomer")
    bed.reaches(newcomer, "cancelled")
    after = bed.reaches(job, "running", size=4)
    assert (after["reshape_downs"], after["reshape_ups"]) == (1, 1)
    assert (after["attempt"], after["container_restarts"]) == (before["attempt"], 0)
    assert after["steps_lost"] == 0
    logs = [output(bed, job, worker) for worker in (0, 1)]
    assert saved(logs[0]) == saved(logs[1])
    starts = [begun(log) for log in logs]
    assert [[len(devices.split(",")) for _, devices, _ in start] for start in starts] == [
        [2, 1, 2]
    ] * 2
    assert [step for step, _, _ in starts[0]] == [0, *saved(logs[0])]
    assert [step for step, _, _ in starts[1]] == [0, *saved(logs[0])]
    addresses = [address for start in starts for _, _, address in start]
    assert len(set(addresses)) == 6, "every start has addresses of its own"
    held = [start[1].split(",") for start in zip(*starts, strict=True) for start in start]
    assert all(set(a).isdisjoint(b) for a, b in zip(held[::2], held[1::2], strict=True))
    assert "out of step" not in "".join(logs)
    bed.reshape("cancel", "gang")
    bed.reaches(job, "cancelled")
    markers = [marker(bed, job, worker) for worker in (0, 1)]
    eventually(lambda: not any(processes.living(markers).values()), text="nothing is left")


def test_workers_train_on_while_the_checkpoint_folder_takes_nothing(bed: Bed) -> None:
    """The chief saves to no avail, for the other worker is in the save and waits."""
    job = with_a_save(bed, "full")
    folder = bed.home / "jobs" / job / "checkpoints"
    away = folder.rename(folder.with_name("away"))
    folder.touch()
    eventually(lambda: output(bed, job, 0).count("reshape: ") >= 3, text="saves that fail")
    failed = bed.job(job)["step"]
    folder.unlink()
    away.rename(folder)

    def later() -> bool:
        newest = checkpoints.newest(folder)
        return newest is not None and newest.manifest.step > failed

    eventually(later, text="a save after that")
    now = bed.job(job)
    assert (now["failures"], now["process_restarts"], now["steps_lost"]) == (0, 0, 0)
    assert "out of step" not in output(bed, job, 0) + output(bed, job, 1)


def test_a_job_of_two_workers_ends_when_its_last_step_is_done(bed: Bed) -> None:
    bed.up()
    job = submit(bed, "short", 30)
    done = bed.reaches(job, "completed")
    assert (done["failures"], done["step"]) == (0, 30)
    assert saved(output(bed, job, 0))[-1] == saved(output(bed, job, 1))[-1] == 30


@pytest.mark.parametrize("when", ["last save", "after it", "before the other ends"])
def test_both_start_again_when_the_chief_fails_though_the_other_has_nothing_left_to_do(
    bed: Bed, when: str
) -> None:
    """Only the chief can say that training is over: it waits for the other when it starts again."""
    bed.up()
    job = submit(bed, "late", 30, every=10, env={"CHIEF_FAILS": when})
    done = bed.reaches(job, "completed")
    assert (done["failures"], done["step"], done["attempt"]) == (1, 30, 1)
    again = 20 if when == "last save" else 30
    for worker in (0, 1):
        assert [step for step, _, _ in begun(output(bed, job, worker))] == [0, again]


@pytest.mark.parametrize("worker", [0, 1], ids=["chief", "other"])
def test_both_start_again_from_the_checkpoint_when_the_process_of_one_is_killed(
    bed: Bed, worker: int
) -> None:
    job = with_a_save(bed, "killed")
    pids = [training(bed, job, number) for number in (0, 1)]
    os.kill(pids[worker], signal.SIGKILL)
    again = eventually(
        lambda: (found := bed.job(job))["failures"] == 1 and found["state"] == "running" and found,
        text="it runs again",
    )
    assert (again["attempt"], again["container_restarts"]) == (1, 0)
    starts = [starts_of(bed, job, number, 2) for number in (0, 1)]
    assert [len(start) for start in starts] == [2, 2]
    assert starts[0][1][0] == starts[1][1][0] >= 20
    assert starts[0][1][0] % 10 == 0
    for pid, number in zip(pids, (0, 1), strict=True):
        assert training(bed, job, number) != pid


@pytest.mark.parametrize("worker", [0, 1], ids=["chief", "other"])
def test_a_container_killed_ends_the_attempt_and_another_goes_on_from_the_checkpoint(
    bed: Bed, worker: int
) -> None:
    job = with_a_save(bed, "lost")
    init = init_of(folder_of(marker(bed, job, worker)).run)
    assert init is not None
    os.kill(init.pid, signal.SIGKILL)
    again = eventually(
        lambda: (found := bed.job(job))["attempt"] == 2 and found["state"] == "running" and found,
        text="another attempt runs",
    )
    assert again["failures"] == 1, "also if the other's process failed for it first"
    starts = [starts_of(bed, job, number, 1, attempt=2) for number in (0, 1)]
    assert starts[0][0][0] == starts[1][0][0] >= 20
    first = [marker(bed, job, number) for number in (0, 1)]
    assert not any(processes.living(first).values()), "nothing of the first attempt is left"
    assert {gpu["state"] for gpu in bed.json("gpus")["gpus"]} == {"in use"}


def test_a_worker_killed_while_the_gang_is_asked_to_shrink_leaves_a_job_that_goes_on(
    bed: Bed,
) -> None:
    job = with_a_save(bed, "unlucky")
    pid = training(bed, job, 1)
    os.kill(pid, signal.SIGSTOP)  # it will not hear of the step after which all save
    newcomer = bed.submit("newcomer", steps=20, optional_gpus=[2], max_wait_s=1)
    bed.reaches(job, "adjusting")
    os.kill(pid, signal.SIGKILL)
    bed.reaches(newcomer, "completed")
    bed.reaches(job, "running", size=4)
    begins = max(len(begun(output(bed, job, number))) for number in (0, 1))
    starts = [starts_of(bed, job, number, max(begins, 2)) for number in (0, 1)]
    assert [step for step, _, _ in starts[0]] == [step for step, _, _ in starts[1]]
    assert starts[0][-1][0] >= 20


@pytest.mark.parametrize("worker", [0, 1], ids=["chief", "other"])
def test_both_start_once_more_when_the_process_of_one_is_killed_before_its_first_step(
    bed: Bed, worker: int
) -> None:
    bed.up()
    job = submit(bed, "stillborn", 100_000, env={"START_S": "5"})
    pids = [training(bed, job, number) for number in (0, 1)]
    os.kill(pids[worker], signal.SIGKILL)
    for number in (0, 1):
        assert [step for step, _, _ in starts_of(bed, job, number, 1, attempt=2)] == [0]
    again = bed.reaches(job, "running", size=4)
    assert (again["attempt"], again["failures"], again["signal"]) == (2, 1, "SIGKILL")


@pytest.mark.parametrize("worker", [0, 1], ids=["chief", "other"])
def test_a_worker_killed_in_the_middle_of_a_save_costs_no_step_of_an_earlier_one(
    bed: Bed, worker: int
) -> None:
    job = with_a_save(bed, "torn", SAVE_S="0.5")
    newcomer = bed.submit("newcomer", steps=20, optional_gpus=[2], max_wait_s=1)
    bed.reaches(job, "adjusting")
    done = saved(output(bed, job, 0))[-1]
    eventually(lambda: saved(output(bed, job, 1))[-1] > done, text="the save of the request")
    os.kill(training(bed, job, worker), signal.SIGKILL)
    bed.reaches(newcomer, "completed")
    bed.reaches(job, "running", size=4)
    begins = max(len(begun(output(bed, job, number))) for number in (0, 1))
    starts = [starts_of(bed, job, number, max(begins, 2)) for number in (0, 1)]
    assert [step for step, _, _ in starts[0]] == [step for step, _, _ in starts[1]]
    assert starts[0][1][0] >= done - 10
    assert starts[0][1][0] in saved(output(bed, job, 0))


def test_a_controller_killed_and_started_again_finds_the_gang_at_work_and_reshapes_it(
    bed: Bed,
) -> None:
    bed.up()
    job = submit(bed, "steady", 100_000)
    bed.reaches(job, "running", size=4)
    pids = [training(bed, job, number) for number in (0, 1)]
    bed.stop(signal.SIGKILL)
    bed.up()
    again = bed.reaches(job, "running", size=4)
    assert (again["attempt"], again["process_restarts"]) == (1, 0)
    assert [training(bed, job, number) for number in (0, 1)] == pids
    bed.submit("newcomer", steps=100_000, optional_gpus=[2], max_wait_s=1)
    bed.reaches(job, "running", size=2)
    assert saved(output(bed, job, 0)) == saved(output(bed, job, 1)) != []
