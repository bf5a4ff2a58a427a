"""A GradientTape loop with `job.batches`: stopped in mid-epoch it makes a straight run's steps."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reshape_sidecar import checkpoints, contract
from reshape_sidecar.proof.first_steps import EPOCH_ENDED
from reshape_sidecar.wire import EXIT_SAVED, Proof, ProofResult
from tests.support.hook_bed import Ended, Job

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).parent / "scripts" / "tape.py"
EPOCH = 12
"""Steps of an epoch."""
ALL = ("--inner", "--draw", "--dropout", "0.2")
"""Dropout, a draw of NumPy in each step, a loop over epochs around that over batches."""
MOST = 2e-5
"""Largest relative difference of a loss on another number of devices."""
BUGS = (
    "batch_skipped",
    "batch_repeated",
    "shuffle_of_epoch_0_again",
    "slot_not_restored",
    "random_state_not_restored",
    "step_not_counted",
)


def loop(folder: Path, *arguments: str) -> Job:
    """A job in a folder of its own; all of them shuffle by the same seed."""
    job = Job(folder, SCRIPT, arguments)
    job.checkpoints.mkdir(parents=True)
    claim = {"attempt": 1, "base": None, "job": "job-1", "shuffle_seed": 5}
    (job.checkpoints / contract.CLAIM_FILE).write_text(json.dumps(claim))
    return job


def stopped(job: Job, step: int, devices: int = 2) -> list[str]:
    """The steps of a process that is stopped after ``step``, as under `reshape verify`."""
    record = str(job.folder / "recording")
    ended = job.run(devices, **{contract.ENV_STOP_AFTER: str(step), contract.ENV_RECORDING: record})
    assert ended.code == EXIT_SAVED, ended.err
    return ended.lines("STEP")


def whole(job: Job, devices: int = 2) -> Ended:
    """A process that has trained to the end."""
    ended = job.run(devices)
    assert ended.code == 0, ended.err
    return ended


def losses(lines: list[str]) -> list[tuple[int, Any]]:
    return [(int(line.split()[1]), float.fromhex(line.split()[2])) for line in lines]


def verdict(ended: Ended) -> tuple[str, str]:
    progress = [one.progress for one in ended.reports if one.progress.trajectory is not None][-1]
    return str(progress.trajectory), progress.trajectory_reason or ""


def proof(ended: Ended) -> Proof:
    found = ended.reports[-1].progress.proof
    assert found is not None
    return found


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A run of everything without a stop."""
    ended = whole(loop(tmp_path_factory.mktemp("straight") / "job", *ALL))
    assert len(ended.lines("STEP")) == 2 * EPOCH
    return ended


@pytest.mark.gate
def test_a_restart_in_mid_epoch_repeats_a_straight_run_to_the_last_bit(
    tmp_path: Path, straight: Ended
) -> None:
    """Shuffled without a seed, augmented, prefetched, with dropout, a schedule, two epochs."""
    job = loop(tmp_path / "job", *ALL)
    lines = stopped(job, 5) + stopped(job, EPOCH + 4)
    ended = whole(job)
    assert [*lines, *ended.lines("STEP")] == straight.lines("STEP")
    assert ended.lines("END") == straight.lines("END")
    assert (proof(ended).result, proof(ended).figures[-7:]) == (ProofResult.AGREES, ", 0e+00")
    assert ended.reports[-1].progress.step == 2 * EPOCH
    assert ended.reports[-1].progress.epoch == 2
    assert job.newest().manifest.complete
    assert whole(job).lines("STEP") == [], "a finished job makes no step"


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(tmp_path: Path, straight: Ended, bug: str) -> None:
    job = loop(tmp_path / "job", *ALL, "--bug", bug)
    lines = stopped(job, EPOCH + 4)
    assert [*lines, *whole(job).lines("STEP")] != straight.lines("STEP")


def test_a_stop_after_the_last_batch_of_an_epoch_repeats_what_comes_after_it(
    tmp_path: Path, straight: Ended
) -> None:
    job = loop(tmp_path / "job", *ALL)
    lines = stopped(job, EPOCH)
    ended = whole(job)
    assert [*lines, *ended.lines("STEP")] == straight.lines("STEP")
    assert ended.lines("EPOCH") == ["EPOCH 0", "EPOCH 1"]
    assert (proof(ended).result, proof(ended).figures) == (ProofResult.NONE, EPOCH_ENDED)


def test_a_reshape_2_1_2_has_the_losses_of_a_straight_run(tmp_path: Path) -> None:
    straight = whole(loop(tmp_path / "straight"))
    job = loop(tmp_path / "reshaped")
    lines = stopped(job, 5) + stopped(job, EPOCH + 5, devices=1)
    ended = whole(job)
    found = proof(ended)
    assert (found.result, found.step) == (ProofResult.AGREES, EPOCH + 5), found
    assert (found.before, found.now) == (1, 2)
    assert found.figures.startswith("loss "), found
    wanted = [(n, pytest.approx(loss, rel=MOST)) for n, loss in losses(straight.lines("STEP"))]
    assert losses([*lines, *ended.lines("STEP")]) == wanted
    assert verdict(ended) == ("exact", "for losses that are means over samples")


def test_a_variable_that_the_job_did_not_get_is_caught_at_the_first_restart(tmp_path: Path) -> None:
    job = loop(tmp_path / "job", "--lost")
    stopped(job, 5)
    found = proof(whole(job, 1))
    assert found.result == ProofResult.DIFFERS, found
    assert (found.figures.startswith("loss "), found.figures.endswith("same batch")) == (True, True)


def test_the_verdict_names_what_is_not_exact(tmp_path: Path) -> None:
    kind, reason = verdict(whole(loop(tmp_path / "dropout", "--dropout", "0.2")))
    assert (kind, reason) == ("steps-only", "random layers (dropout, augmentation) draw by device")
    kind, reason = verdict(whole(loop(tmp_path / "lost", "--lost"), devices=1))
    assert kind == "unknown"
    assert "the step changes variables that job.batches did not get (Variable" in reason
    kind, reason = verdict(whole(loop(tmp_path / "plain", "--plain", "--dropout", "0.2")))
    assert (kind, "uses 1 of 2 devices" in reason) == ("exact", True), reason


def test_what_a_checkpoint_does_not_fit_is_refused_with_the_difference(tmp_path: Path) -> None:
    job = loop(tmp_path / "job", "--plain")
    stopped(job, 5, devices=1)

    def refused(*arguments: str) -> str:
        job.arguments = ("--plain", *arguments)
        ended = job.run(1)
        assert ended.code == 1, ended.out
        return ended.err.splitlines()[-1]

    assert "meets sequential/dense/kernel (model, shape (6, 8))" in refused("--width", "8")
    assert "the data has 104 elements in TensorSliceDataset, and it had 96" in refused(
        "--samples", "104"
    )
    assert "the batch of all GPUs together stays that of" in refused("--batch", "16")
    state = (job.newest().path / "state.json").read_text()
    position = (job.newest().path / "position.json").read_text()
    arrays = (job.newest().path / "arrays.bin").read_bytes()

    def publish(step: int, **files: str) -> None:
        def write(folder: Path) -> None:
            for name, text in files.items():
                (folder / f"{name}.json").write_text(text)
            (folder / "arrays.bin").write_bytes(arrays)

        checkpoints.publish(
            job.checkpoints, step=step, epoch=0, attempt=1, generation=9, write=write, job="job-1"
        )

    publish(6, state=state.replace('"keras": "', '"keras": "0.'), position=position)
    assert "the versions are {" in refused()
    publish(7, position=json.dumps({"seed": 1, "samples": 5, "epoch": 0, "batch": 1}))
    assert "was written by a PyTorch loop, and this is a TensorFlow loop" in refused()
    publish(8, state=state)
    assert "was written by a `fit` of Keras, and this is a loop by job.batches" in refused()


def verified(folder: Path, *arguments: str) -> tuple[int, Any]:
    """Verify the loop over 20 steps on one device; return the exit code and the report."""
    shutil.copy(SCRIPT, folder / "train.py")
    command = ["python", "train.py", *arguments]
    record = {"name": "tape", "command": command, "optional_gpus": [1]}
    (folder / "record.json").write_text(json.dumps(record))
    line = [sys.executable, "-m", "reshape_controller.cli.main", "verify", "record.json"]
    line += ["--steps", "20", "--simulated-gpus", "1", "--output", "json"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_verify_finds_it_equal_to_the_last_bit(tmp_path: Path) -> None:
    code, report = verified(tmp_path, *ALL)
    assert (code, report["differences"]) == (0, []), report
    assert report["verification"]["verdict"] == "exact"
    assert report["verification"]["reason"] == "equal to the last bit"


def test_verify_finds_state_that_no_checkpoint_holds(tmp_path: Path) -> None:
    code, report = verified(tmp_path, "--lost")
    assert (code, report["expected"]) == (1, "unknown"), report
    assert "step " in report["differences"][0]
