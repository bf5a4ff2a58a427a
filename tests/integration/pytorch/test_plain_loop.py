"""A plain loop with `job.batches`: reshaped in mid-epoch it makes the steps of a straight run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reshape_sidecar.init import processes
from reshape_sidecar.wire import EXIT_SAVED
from tests.support.daemon_bed import ROOT, Bed, eventually
from tests.support.pytorch_bed import (
    EXAMPLES,
    PYTHON,
    PYTORCH_S,
    STEPS,
    PyTorchBed,
    losses,
)
from tests.support.rank_runs import RankRun

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

MESSAGES = Path(__file__).parent / "scripts" / "loop_messages.py"
LOSS = re.compile(r"^step (\d+) loss (\S+)$", re.M)
STEP_S = 0.03


class Training:
    """A job in a folder of its own, started on some GPUs one after the other."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder, self._arguments = folder, arguments
        folder.mkdir()
        self.log = folder / "log"

    def runs(self, gpus: int, stop_at: int | None = None) -> None:
        """Train on ``gpus``, to the end or until a request to stop at a step."""
        program = (PYTHON, EXAMPLES / "train.py")
        run = RankRun(self.folder, (*program, *self._arguments), gpus, step_s=STEP_S)
        try:
            if stop_at is not None:
                run.prints(f"step {stop_at} loss")
                run.stop()
            assert run.ends() == (0 if stop_at is None else EXIT_SAVED), run.text
        finally:
            run.kill()

    def batch(self) -> int:
        """The batch of its epoch after which the newest checkpoint was saved."""
        newest = max((self.folder / "checkpoints").glob("step-*/position.json"))
        batch = json.loads(newest.read_text())["batch"]
        assert isinstance(batch, int)
        return batch

    def losses(self) -> list[tuple[int, float]]:
        """Step and loss over all GPUs of each batch, in the order of training."""
        return [(int(step), float(loss)) for step, loss in LOSS.findall(self.log.read_text())]


@pytest.mark.gate
def test_a_reshape_2_1_2_in_mid_epoch_has_the_losses_of_a_straight_run(tmp_path: Path) -> None:
    """Shuffled, augmented in two loader workers, two batches a step, cosine schedule."""
    arguments = ("--epochs", "3", "--accumulate", "2")
    straight = Training(tmp_path / "straight", *arguments)
    straight.runs(2)
    reshaped = Training(tmp_path / "reshaped", *arguments)
    for gpus, stop_at in ((2, 5), (1, 22)):
        reshaped.runs(gpus, stop_at)
        assert 0 < reshaped.batch() < 32, "in mid-epoch"
        assert reshaped.batch() % 2 == 0, "between two steps"
    reshaped.runs(2)
    wanted = straight.losses()
    assert len(wanted) == 3 * 32
    near: list[tuple[int, Any]] = [(step, pytest.approx(loss, rel=2e-6)) for step, loss in wanted]
    assert reshaped.losses() == near
    ended = [f"epoch {number} is over" for number in (1, 2, 3)]
    assert re.findall(r"epoch \d is over", reshaped.log.read_text()) == ended


def test_a_restart_at_the_same_size_repeats_dropout_to_the_last_bit(tmp_path: Path) -> None:
    arguments = ("--epochs", "2", "--dropout", "0.2")
    straight = Training(tmp_path / "straight", *arguments)
    straight.runs(2)
    restarted = Training(tmp_path / "restarted", *arguments)
    restarted.runs(2, stop_at=9)
    restarted.runs(2)
    assert len(straight.losses()) == 2 * 32
    assert restarted.losses() == straight.losses()


def plain(bed: Bed) -> PyTorchBed:
    arguments = ("--epochs", "100")
    return PyTorchBed(bed, "train.py", arguments=arguments, step_s=STEP_S * 2, code=EXAMPLES)


def test_a_daemon_reshapes_it_and_each_step_is_made_once(bed: Bed) -> None:
    job = plain(bed)
    assert [step for step, _ in job.reshaped()] == [*range(1, STEPS + 1)]
    assert job.found()["trajectory"] == "exact"


def test_a_killed_rank_ends_the_others_and_costs_one_retry(bed: Bed) -> None:
    job = plain(bed)
    job.prints("step 20 loss")
    ranks = [
        found.pid
        for found in processes.descendants(job.pid(), processes.snapshot())
        if b"\0RANK=2\0" in Path(f"/proc/{found.pid}/environ").read_bytes()
        and found.parent == job.pid()
    ]
    assert len(ranks) == 1
    os.kill(ranks[0], signal.SIGKILL)
    done = job.completed()
    assert (done["failures"], done["container_restarts"]) == (1, 0)
    assert {step for step, _ in losses(job.log)} == {*range(1, STEPS + 1)}


def test_all_ranks_end_at_the_target_accuracy_that_each_of_them_judges(bed: Bed) -> None:
    bed.up()
    job = bed.submit(
        "learner",
        steps=None,
        command=[str(PYTHON), "train.py", "--epochs", "50"],
        code=str(EXAMPLES),
        framework="pytorch",
        target_accuracy=0.7,
    )
    eventually(lambda: bed.job(job)["state"] == "completed", least_s=PYTORCH_S, text="its end")
    done = bed.job(job)
    assert done["step"] == done["total_steps"] < 50 * 32
    assert (done["step"] % 32, done["failures"]) == (0, 0)
    assert done["reason"].startswith("reached its target accuracy 0.7: accuracy is 0.")


def test_what_cannot_be_served_is_refused_by_name_with_a_remedy() -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "sidecar")}
    done = subprocess.run(
        [PYTHON, MESSAGES], env=env, capture_output=True, text=True, timeout=PYTORCH_S, check=True
    )
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert "give shuffle=True instead" in said["distributed sampler"]
    assert "is an IterableDataset, which has no positions" in said["iterable"]
    assert "give it a batch_size" in said["no batches"]
    assert "not a list; use job.step_done" in said["a list"]
    assert "batch 2 of 3 has 1 samples, which 2 GPUs cannot share" in said["last batch"]
    assert "job.epochs(10) or job.batches(..., epochs=10)" in said["no length"]
    assert "called twice in an epoch" in said["twice"]
    assert "must call job.batches(...) once" in said["no batches in the body"]
    assert "the Bilinear of each learns alone: wrap it in" in said["no parallel model"]
    assert "the Bilinear of each learns alone: wrap it in" in said["one parallel model of two"]
    assert said["compiled inside"] == said["compiled outside"] == "['bias', 'weight']"
    means = "for losses that are means over samples"
    nothing = "torch.compile of DistributedDataParallel around Sequential compiles nothing"
    assert said["compiled_last"] == f"False, {means}; {nothing}: compile first, then wrap"
    assert said["compiled_first"] == said["compiled_own"] == f"True, {means}"
    assert said["version None"] == "goes on after batch 3", "a checkpoint of the version before"
    assert "was written with torch 1.0.0, and this is torch 2." in said["version 1.0.0"]
    assert "install torch 1.0.0, or give an empty" in said["version 1.0.0"]
    assert f"reason='{means}')" in said["draws nothing"]
    together = (
        "SyncBatchNorm sees the micro-batches that GPUs train at once, and BatchNorm sees one"
    )
    assert said["of micro-batches"] == f"['{together}']"
    half = "to the rounding of bfloat16, 0.8% of a number"
    assert f"reason='{means}; {half}')" in said["in half precision"]
    for library in ("torch", "python", "numpy"):
        assert "a step draws random numbers" in said[f"draws {library}"]
