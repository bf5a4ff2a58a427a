"""A real SideCar lets go of its GPUs in time, whatever its job leaves in the checkpoint folder.

Nothing here is a double but the coordinator: init, agent and training are processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar import foreign
from reshape_sidecar.wire import Mode, OnSaveTimeout
from tests.support import hostile_folders
from tests.support import training_programs as programs
from tests.support.sidecar_bed import Bed, bed, eventually

GRACE_S = 1.0
FREE_S = GRACE_S + 2.0
ALWAYS = ("claim-fifo", "manifest-endless", "entry-terabyte", "deep")
"""The kinds that run on every change: one of each way to hold a reader up."""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made
    foreign.remove_tree(tmp_path / "checkpoints")  # pytest cannot remove every one of them


def _ends_in_time(job: Bed) -> None:
    began_s = time.monotonic()
    job.coordinator.want(
        Mode.EXIT,
        on_save_timeout=OnSaveTimeout.KILL,
        save_deadline_s=GRACE_S / 2,
        kill_after_s=GRACE_S / 2,
    )
    job.gone()
    assert time.monotonic() - began_s < FREE_S


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.gate if kind in ALWAYS else ())
        for kind in hostile_folders.KINDS
    ],
)
def test_the_gpus_of_a_hostile_job_are_free_in_time(job: Bed, kind: str) -> None:
    job.training(programs.IGNORES)
    hostile_folders.KINDS[kind](job.path / "checkpoints")
    _ends_in_time(job)
    assert job.left() == []


@pytest.mark.gate
def test_a_claim_that_reads_without_an_end_keeps_no_gpu(job: Bed) -> None:
    checkpoints = job.path / "checkpoints"
    checkpoints.mkdir()
    hostile_folders.KINDS["entry-terabyte"](checkpoints)
    job.initialised("import time\ntime.sleep(600)\n")
    job.coordinator.want(Mode.RUN, "GPU-0")
    time.sleep(1.0)  # the claim of its start reads
    _ends_in_time(job)


@pytest.mark.gate
def test_a_huge_script_and_a_fifo_for_a_log_hold_nothing_up(job: Bed) -> None:
    job.training(programs.IGNORES, framework="other")
    with (job.path / "code" / "train.py").open("ab") as script:
        script.truncate(3 << 30)
    log = job.folder.logs / "training.log"
    log.rename(log.with_name("old"))
    hostile_folders.fifo(log)
    killed = job.kill_agent()
    eventually("another agent", lambda: job.agent() != killed)
    generation = job.coordinator.want(
        Mode.SAVE_AND_STOP,
        on_save_timeout=OnSaveTimeout.KILL,
        save_deadline_s=0.2,
        kill_after_s=0.2,
    )
    job.coordinator.until("stopped", lambda o: o.stopped_generation == generation)
    (job.path / "code" / "train.py").unlink()
    (job.path / "code" / "train.py").write_text(programs.IGNORES)
    job.started(job.coordinator.want(Mode.RUN, "GPU-0"))
    assert log.is_file()
