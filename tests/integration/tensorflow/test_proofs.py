"""After its save for a stop a process makes one more step; the next one compares its first step."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_sidecar import codec, contract
from reshape_sidecar.proof import first_steps
from reshape_sidecar.proof.figures import LeftStep
from reshape_sidecar.wire import EXIT_SAVED, Proof, ProofResult
from tests.support.hook_bed import Ended, Job

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

SCRIPTS = Path(__file__).parent / "scripts"
STEPS = 20
OFF = {contract.ENV_PROOF: "off"}


def fit(folder: Path, kind: str = "plain") -> Job:
    folder.mkdir(parents=True, exist_ok=True)
    return Job(folder / "job", SCRIPTS / "proofs.py", (), {"FOLDER": str(folder), "KIND": kind})


def stopped(job: Job, step: int, devices: int = 2, /, **extra: str) -> Ended:
    ended = job.run(devices, STOP_AT=str(step), **extra)
    assert ended.code == EXIT_SAVED, ended.err
    assert ended.lines("STEP")[-1].split()[1] == str(step), "no line tells of the further step"
    assert job.newest().manifest.step == ended.reports[-1].progress.step == step
    return ended


def whole(job: Job, devices: int = 2, /, **extra: str) -> Ended:
    ended = job.run(devices, **extra)
    assert ended.code == 0, ended.err
    return ended


def proof(ended: Ended) -> Proof:
    found = ended.reports[-1].progress.proof
    assert found is not None
    return found


def begun(job: Job) -> list[int]:
    """The steps that began, those included of which nothing was kept."""
    return [int(line) for line in (job.folder.parent / "begun").read_text().split()]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    ended = whole(fit(tmp_path_factory.mktemp("straight")))
    assert len(ended.lines("STEP")) == STEPS
    return ended


@pytest.mark.gate
def test_the_step_after_the_save_agrees_to_the_bit_on_as_many_devices(
    tmp_path: Path, straight: Ended
) -> None:
    job = fit(tmp_path)
    lines = stopped(job, 6).lines("STEP")
    ended = whole(job)
    found = proof(ended)
    assert (found.result, found.step, found.before, found.now) == (ProofResult.AGREES, 6, 2, 2)
    assert found.figures.endswith(", 0e+00"), found
    assert [*lines, *ended.lines("STEP")] == straight.lines("STEP")
    assert begun(job) == [*range(1, 8), *range(7, STEPS + 1)]


def test_it_agrees_on_2_1_2_devices_and_loggers_see_nothing_of_it(tmp_path: Path) -> None:
    job = fit(tmp_path)
    ended = [stopped(job, 6), stopped(job, 14, 1), whole(job)]
    for number, run in enumerate(ended[1:]):
        assert proof(run).result == ProofResult.AGREES, proof(run)
        assert (proof(run).before, proof(run).now) == ((2, 1), (1, 2))[number]
        assert run.reports[-1].progress.trajectory == "exact"
    left = codec.loads(LeftStep, next(job.checkpoints.glob("proof-step-*")).read_text())
    assert left.figures is not None
    assert left.figures.optimizers[0].rates[0] == pytest.approx(0.01)
    assert (left.figures.samples, len(left.figures.trained)) == (16, 4)
    told = [int(line.split()[1]) for run in ended for line in run.lines("STEP")]
    assert told == list(range(1, STEPS + 1)), "each step is told once"
    rows = (tmp_path / "log.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["epoch", "0", "1"]
    assert logged(tmp_path / "board") == list(range(1, STEPS + 1))


def logged(folder: Path) -> list[int]:
    """The steps that are in the event files of a folder."""
    from tensorflow.compat.v1.train import summary_iterator

    events = [one for file in folder.glob("events.*") for one in summary_iterator(str(file))]
    return sorted(event.step for event in events if event.summary.value)


def test_a_count_that_no_checkpoint_holds_is_caught_at_the_first_restart(tmp_path: Path) -> None:
    job = fit(tmp_path, "counter")
    stopped(job, 6)
    ended = job.run(1, STOP_AT="9")
    found = proof(ended)
    assert found.result == ProofResult.DIFFERS, found
    assert found.figures.startswith("loss "), found
    progress = ended.reports[-1].progress
    assert progress.trajectory == "unknown"
    assert "its first step at 2 → 1 GPUs, step 6, differs: loss" in (
        progress.trajectory_reason or ""
    )
    last = whole(job)
    assert "step 6, differs" in (last.reports[-1].progress.trajectory_reason or ""), "it stays"
    stopping = fit(tmp_path / "stopping", "counter")
    stopped(stopping, 6)
    ended = stopping.run(1, **{contract.ENV_PROOF: "stop"})
    assert (ended.code, ended.lines("STEP")) == (1, []), ended.err
    assert "ProofDiffers" in ended.err
    assert stopping.newest().manifest.step == 6


def test_the_script_without_a_strategy_is_compared_with_its_batch(tmp_path: Path) -> None:
    job = fit(tmp_path, "alone")
    straight = whole(fit(tmp_path / "straight", "alone"), 1)
    lines = stopped(job, 6, 1).lines("STEP")
    ended = whole(job, 2)
    assert proof(ended).result == ProofResult.AGREES, proof(ended)
    assert proof(ended).figures.endswith(", 0e+00")
    assert [*lines, *ended.lines("STEP")] == straight.lines("STEP")
    left = codec.loads(LeftStep, next(job.checkpoints.glob("proof-step-*")).read_text())
    assert left.figures is not None
    assert (left.figures.samples, left.figures.batch > 0) == (16, True)


def test_no_step_is_made_where_the_record_says_off(tmp_path: Path, straight: Ended) -> None:
    job = fit(tmp_path)
    lines = stopped(job, 6, **OFF).lines("STEP")
    assert begun(job) == list(range(1, 7))
    ended = whole(job, **OFF)
    assert ended.reports[-1].progress.proof is None
    assert [*lines, *ended.lines("STEP")] == straight.lines("STEP"), "the same bits"


def test_a_kill_in_the_further_step_loses_nothing(tmp_path: Path, straight: Ended) -> None:
    job = fit(tmp_path)
    killed = job.run(2, STOP_AT="6", KILL_AT="7")
    assert killed.code == -9
    assert job.newest().manifest.step == 6
    ended = whole(job)
    assert (proof(ended).result, proof(ended).figures) == (ProofResult.NONE, first_steps.KILLED)
    assert [*killed.lines("STEP"), *ended.lines("STEP")] == straight.lines("STEP")


def test_after_an_epoch_there_is_no_further_step(tmp_path: Path, straight: Ended) -> None:
    job = fit(tmp_path)
    lines = stopped(job, 10).lines("STEP")
    ended = whole(job)
    assert (proof(ended).result, proof(ended).step) == (ProofResult.NONE, 10)
    assert proof(ended).figures == "an epoch ended with the save"
    assert [*lines, *ended.lines("STEP")] == straight.lines("STEP")
