"""Jobs of several workers, and a model-parallel one, reshaped in the living pods of a real cluster.

Each test has a daemon and a namespace of its own; at its end nothing of its jobs is left.
"""

from __future__ import annotations

import re

import pytest

from tests.kubernetes.namespace import eventually
from tests.kubernetes.pod_daemon import JOB_TYPE, TENSORFLOW_S, PodDaemon
from tests.support.daemon_bed import ROOT

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]

GANG = (ROOT / "examples" / "multi_worker" / "train.py").read_text()
"""A loop of its own under MultiWorkerMirroredStrategy."""
SPREAD = (ROOT / "examples" / "model_parallel" / "train.py").read_text()
"""Its layers lie on all visible devices; no batch is divided."""


def submit_gang(daemon: PodDaemon, steps: int) -> str:
    return daemon.submit_record(
        "gang",
        GANG,
        command=["python", "gang.py", "--steps", str(steps)],
        framework="tensorflow",
        optional_gpus=[2, 4],
        workers=2,
        steps=steps,
        job_type=JOB_TYPE,
    )


def submit_newcomer(daemon: PodDaemon) -> str:
    """A job that takes two GPUs until it is cancelled; all else of it is of no account here."""
    return daemon.submit_counting("newcomer", [2], 100_000, max_wait_s=1)


def output(daemon: PodDaemon, job: str, worker: int | None = None, attempt: int = 1) -> str:
    """The training log of a worker, as it is on the shared volume."""
    own = "" if worker is None else f"worker-{worker}/"
    path = daemon.namespace.shared / job / f"attempt-{attempt}" / f"{own}logs" / "training.log"
    return path.read_text() if path.exists() else ""


def steps_of(text: str) -> list[tuple[int, str]]:
    found = re.findall(r"^step (\d+) loss (\S+)$", text, re.M)
    return [(int(step), loss) for step, loss in found]


def after(daemon: PodDaemon, job: str, step: int) -> None:
    """Wait until steps beyond this one are made; a hooked job counts as running without one."""

    def further() -> bool:
        made = steps_of(output(daemon, job, 0))
        return bool(made) and made[-1][0] > step + 3

    eventually(f"steps after {step}", further, TENSORFLOW_S)


@pytest.mark.gate
def test_two_workers_are_reshaped_down_and_up_in_their_living_pods(
    daemon: PodDaemon, one_node: None
) -> None:
    daemon.up("--preset", "paper")
    gang = submit_gang(daemon, 1000)
    four = daemon.trains(gang, 4)
    after(daemon, gang, 0)
    before = daemon.containers(gang, 2)
    assert len({one.node for one in before}) == 1, "all workers are on one host"
    newcomer = submit_newcomer(daemon)

    two = daemon.trains(gang, 2)
    assert daemon.containers(gang, 2) == before
    after(daemon, gang, two.step)
    daemon.reshape("cancel", "newcomer")
    daemon.wait(newcomer, "the newcomer is gone", state="cancelled")
    again = daemon.trains(gang, 4)
    assert daemon.containers(gang, 2) == before
    assert [one.restarts for one in before] == [0, 0]
    assert len({four.pid, two.pid, again.pid}) == 3
    ended = daemon.wait(gang, "the gang completes", state="completed", stage="none")
    assert (ended.steps_lost, ended.failures, ended.attempt, ended.step) == (0, 0, 1, 1000)
    assert (ended.reshape_downs, ended.reshape_ups) == (1, 1)
    made = [steps_of(output(daemon, gang, worker)) for worker in (0, 1)]
    assert [step for step, _ in made[0]] == list(range(1, 1001)), "each step is made once"
    assert made[0] == made[1], "both see the loss over all samples of each step"
    daemon.nothing_left()


def test_the_pod_of_one_worker_deleted_is_the_end_of_the_attempt_and_another_goes_on(
    daemon: PodDaemon, one_node: None
) -> None:
    daemon.up("--preset", "paper")
    gang = submit_gang(daemon, 100_000)
    daemon.trains(gang, 4)
    eventually("a save", lambda: len(steps_of(output(daemon, gang, 0))) > 60, TENSORFLOW_S)
    other = daemon.containers(gang, 2)[1]
    daemon.api.delete(daemon.namespace.path("pods", other.pod))
    daemon.trains(gang, 4, attempt=2)
    assert len(daemon.containers(gang, 2, attempt=2)) == 2
    first = steps_of(output(daemon, gang, 0, attempt=2))[0][0]
    assert first > 50, "it went on from a checkpoint"
    daemon.reshape("cancel", "gang")
    daemon.wait(gang, "it is cancelled", state="cancelled", stage="none")
    daemon.nothing_left()


def test_a_model_spread_over_all_devices_is_reshaped_in_its_living_pod(
    daemon: PodDaemon, one_node: None
) -> None:
    daemon.up("--preset", "paper")
    job = daemon.submit_record(
        "spread",
        SPREAD,
        command=["python", "spread.py", "--steps", "1000000"],
        framework="other",
        may_restart=True,
        optional_gpus=[2, 4],
        steps=1_000_000,
    )
    daemon.trains(job, 4)
    eventually("steps", lambda: steps_of(output(daemon, job)), TENSORFLOW_S)
    before = daemon.container(job)
    newcomer = submit_newcomer(daemon)
    daemon.trains(job, 2)
    eventually("on 2", lambda: "on 2 devices" in output(daemon, job), TENSORFLOW_S)
    assert daemon.container(job) == before
    daemon.reshape("cancel", "newcomer")
    daemon.wait(newcomer, "the newcomer is gone", state="cancelled")
    daemon.trains(job, 4)

    def begun_again() -> list[tuple[int, int]] | None:
        found = _begun(output(daemon, job))
        return found if len(found) == 3 else None

    begun = eventually("on 4 again", begun_again, TENSORFLOW_S)
    assert daemon.container(job) == before
    assert before.restarts == 0
    assert [size for _, size in begun] == [4, 2, 4]
    saved = [int(step) for step in re.findall(r"^saved step (\d+)$", output(daemon, job), re.M)]
    assert [step for step, _ in begun] == [0, *saved], "no step is lost or made twice"
    daemon.reshape("cancel", "spread")
    daemon.wait(job, "it is cancelled", state="cancelled", stage="none")
    daemon.nothing_left()


def _begun(text: str) -> list[tuple[int, int]]:
    found = re.findall(r"^begins at step (\d+) with its layers on (\d+) devices$", text, re.M)
    return [(int(step), int(devices)) for step, devices in found]
