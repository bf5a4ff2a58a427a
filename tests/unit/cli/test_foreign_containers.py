"""A store that was put back: what is ahead of it on the disk."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from reshape_controller.cli.exits import CliError
from reshape_controller.cli.home import Home
from reshape_controller.cli.serve.foreign_containers import any_lives, refuse_pods
from reshape_controller.core.model import Host, HostId, Job, JobId, JobSpec, Stage
from reshape_controller.core.state import State
from reshape_launcher.kubernetes.gpus import SimulatedDevices
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.local.launcher import LocalLauncher
from reshape_sidecar import codec
from reshape_sidecar.agent.memory import Memory
from reshape_sidecar.init import files
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.values import InitFile
from reshape_sidecar.wire import Desired, Mode, OnSaveTimeout
from tests.support.fake_cluster import FakeCluster
from tests.unit.launcher.pod_launches import NAME, launch
from tests.unit.launcher.test_kubernetes_manifests import SETTINGS, SPEC


def container(home: Home, attempt: int, generation: int) -> None:
    """What a living attempt of the job ``a`` has in its folder; its init is this very process."""
    start = proc.snapshot()[os.getpid()].start_time
    run = home.jobs / "a" / f"attempt-{attempt}" / "run"
    run.mkdir(parents=True)
    init = InitFile(os.getpid(), start, files.boot_id())
    (run / "init.json").write_text(codec.dumps(init))
    desired = Desired(1, "a", attempt, generation, Mode.RUN, (), OnSaveTimeout.REFUSE, 1.0, 1.0)
    (run / "agent.json").write_text(codec.dumps(Memory(desired=desired)))


def knows(
    attempt: int,
    generation: int,
    stage: Stage = Stage.TRAINING,
    *,
    epoch: int = 1,
    job: str = "a",
) -> State:
    """A log in which the job is so far."""
    state, spec = State(), JobSpec("a", ("x",), (1,))
    state.epoch = epoch
    known = Job(JobId(job), spec, 1, 0.0, stage=stage, attempt=attempt, generation=generation)
    state.put_job(known)
    return state


@pytest.mark.parametrize(
    "state",
    [State(), knows(1, 9), knows(2, 4), knows(2, 9, Stage.NONE), knows(2, 5, epoch=0)],
    ids=["no such job", "an earlier attempt", "an earlier generation", "no container", "epoch"],
)  # fmt: skip
def test_a_living_container_that_the_log_has_not_come_to_is_refused_by_name(
    tmp_path: Path, state: State
) -> None:
    home = Home(tmp_path)
    container(home, 2, generation=5)
    with pytest.raises(CliError, match=r"newer than this store.*a \(attempt 2\)") as refused:
        asyncio.run(any_lives(LocalLauncher(home.jobs), home, state, state.epoch + 1))
    assert f"kill -TERM {os.getpid()}" in refused.value.text()


@pytest.mark.parametrize("state", [knows(2, 5), knows(2, 6), knows(3, 6)])
def test_one_that_the_log_knows_is_none(tmp_path: Path, state: State) -> None:
    home = Home(tmp_path)
    container(home, 2, generation=5)
    assert asyncio.run(any_lives(LocalLauncher(home.jobs), home, state, state.epoch + 1))


def test_a_loss_was_accepted_so_a_container_whose_memory_is_torn_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path)
    container(home, 2, generation=5)
    (home.jobs / "a" / "attempt-2" / "run" / "agent.json").write_text("torn")
    launcher, state = LocalLauncher(home.jobs), knows(2, 5)
    assert asyncio.run(any_lives(launcher, home, state, 2))
    with pytest.raises(CliError, match=r"newer than this store.*a \(attempt 2\)"):
        asyncio.run(any_lives(launcher, home, state, 2, loss_accepted=True))


def test_a_container_of_a_lost_epoch_is_taken_only_by_a_higher_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    container(home, 2, generation=5)  # of epoch 1
    launcher, state = LocalLauncher(home.jobs), knows(2, 5, epoch=0)
    assert asyncio.run(any_lives(launcher, home, state, 2, loss_accepted=True))
    with pytest.raises(CliError, match="newer than this store"):
        asyncio.run(any_lives(launcher, home, state, 1, loss_accepted=True))


def pods_are_taken(state: State, *, node: str = "node1", loss_accepted: bool = False) -> None:
    """A pod of the launcher's usual attempt runs when a controller begins with this log."""
    cluster = FakeCluster()
    launcher = KubernetesLauncher(cluster, SETTINGS, SimulatedDevices(2))
    try:
        launch(launcher)
        cluster.be(NAME, phase="Running", node=node)
        asyncio.run(refuse_pods(launcher, state, loss_accepted=loss_accepted))
    finally:
        launcher.close()


@pytest.mark.parametrize("state", [State(), knows(SPEC.attempt - 1, 9, job=SPEC.job)])
def test_a_pod_that_the_log_has_not_come_to_is_refused_with_what_ends_it(state: State) -> None:
    with pytest.raises(CliError, match="newer than this store") as refused:
        pods_are_taken(state)
    text = refused.value.text()
    assert f"{SPEC.job} (attempt {SPEC.attempt})" in text
    assert f"kubectl -n {SETTINGS.namespace} delete job {NAME}" in text


@pytest.mark.parametrize("attempt", [SPEC.attempt, SPEC.attempt + 1])
def test_a_pod_that_the_log_knows_is_taken(attempt: int) -> None:
    pods_are_taken(knows(attempt, 1, job=SPEC.job))
    with pytest.raises(CliError, match="newer than this store"):
        pods_are_taken(knows(attempt, 1, job=SPEC.job), loss_accepted=True)


def test_what_is_left_on_a_node_that_is_away_waits_until_it_is_back() -> None:
    state = State()
    state.put_host(Host(HostId("node2"), "simulated", (), present=False))
    pods_are_taken(state, node="node2")
    with pytest.raises(CliError, match="newer than this store"):
        pods_are_taken(state, node="node1")
