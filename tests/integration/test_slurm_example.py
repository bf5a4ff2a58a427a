"""The Slurm skeleton beyond the contract: restarts, a Slurm that is away, memory, images."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from examples.slurm.fake_slurm import FakeSlurm
from examples.slurm.slurm_launcher import SlurmLauncher, TaskState, parts_of
from reshape_launcher.spec import ClusterUnseen, LaunchError
from reshape_sidecar.init.look import init_of
from reshape_sidecar.init.processes import Marker
from tests.support import training_programs as programs
from tests.support.sidecar_bed import DEVICES, Bed, bed, eventually


class SlurmBed(Bed):
    """A bed whose launcher can be made again, as by a new controller."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.again()

    def again(self, memory: str = "") -> FakeSlurm:
        """Take a new launcher on the same files. ``memory``: the answer of nvidia-smi."""
        slurm = FakeSlurm(self.path / "slurm", {"nvidia-smi": memory})
        self.launcher = SlurmLauncher(self.root, slurm, reads_memory=bool(memory))
        return slurm


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SlurmBed]:
    with bed(tmp_path, SlurmBed) as made:
        assert isinstance(made, SlurmBed)
        yield made


def free(world: SlurmBed) -> str:
    """Why the devices are not free; empty if they are."""
    return asyncio.run(world.launcher.check_release("job-1", 1, 0, DEVICES[:2])).reason


def test_a_new_controller_finds_what_runs_and_ends_it(world: SlurmBed) -> None:
    world.launch(world.spec(programs.PLAIN))
    slurm = world.again()
    assert world.status().running
    world.launch(world.spec(programs.PLAIN))
    assert len(slurm.tasks()) == 1
    world.remove()
    assert [task.state for task in slurm.tasks()] == [TaskState.ENDED]


def test_if_one_worker_ends_the_others_end_too(world: SlurmBed) -> None:
    world.launch(world.spec(programs.PLAIN, workers=2))
    first, second = map(_run, world.markers)
    eventually("both", lambda: init_of(first) and init_of(second))
    found = init_of(second)
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    assert not world.gone().running
    assert world.left() == []


def _run(marker: Marker) -> Path:
    return Path(marker.socket).parent


def test_a_slurm_that_is_away_says_nothing_about_attempts(world: SlurmBed) -> None:
    world.again().is_away = True
    away = world.launcher
    with pytest.raises(ClusterUnseen, match="does not answer"):
        asyncio.run(away.containers())
    with pytest.raises(ClusterUnseen, match="does not answer"):
        asyncio.run(away.check_release("job-1", 1, 0, DEVICES))
    with pytest.raises(LaunchError, match="does not answer") as caught:
        world.launch(world.spec(programs.PLAIN))
    assert caught.value.retryable
    world.again()


def test_gpus_with_memory_in_use_or_without_a_reading_are_not_free(world: SlurmBed) -> None:
    world.launch(world.spec(programs.PLAIN))
    world.again("GPU-0, 3\nGPU-1, 4\n")
    assert free(world) == ""
    world.again("GPU-0, 3\nGPU-1, 40000\n")
    assert free(world) == "GPU GPU-1 still has 40000 MiB in use"
    world.again("GPU-0, [N/A]\n")
    assert free(world) == "GPU GPU-0 cannot be read"


def test_a_job_with_an_image_is_refused_by_its_field(world: SlurmBed) -> None:
    spec = replace(world.spec(programs.PLAIN), image="resnet:1")
    (refusal,) = world.launcher.refusals(spec)
    assert refusal.field == "image"
    with pytest.raises(LaunchError, match="image: resnet:1"):
        world.launch(spec)


def test_a_jobs_id_may_have_dots() -> None:
    assert parts_of("reshape.a.b.3.12.1") == ("a.b.3", 12, 1)
