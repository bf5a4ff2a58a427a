"""Unmodified Lightning scripts: reshaped in mid-epoch they make the steps of a straight run."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reshape_sidecar.wire import EXIT_SAVED
from tests.support.daemon_bed import Bed, eventually
from tests.support.forked_jobs import ForkedJob, Forks, forks
from tests.support.pytorch_bed import PYTHON, PYTORCH_S

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

SCRIPTS = Path(__file__).parent / "scripts"
ROUNDING = 2e-6
"""Relative difference of a loss that the order of sums may make; some 2e-7 were seen."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """A line of the script: one batch of all processes."""

    epoch: int
    number: int
    loss: float
    rate: float
    samples: str


@pytest.fixture(scope="module")
def server() -> Iterator[Forks]:
    with forks("lightning.pytorch", "torch.utils.data", "torch.distributed.optim") as found:
        yield found


def job(
    server: Forks, folder: Path, *arguments: str, script: str = "lightning_fit.py"
) -> ForkedJob:
    return ForkedJob(server, folder, SCRIPTS / script, *arguments)


def corner(server: Forks, folder: Path, case: str) -> ForkedJob:
    return job(server, folder, case, script="lightning_corners.py")


def batches(done: ForkedJob) -> list[Batch]:
    found = []
    for line in done.text().splitlines():
        if line.startswith("batch "):
            _, epoch, number, loss, rate, samples = line.split(" ", 5)
            found.append(Batch(int(epoch), int(number), float(loss), float(rate), samples))
    return found


def others(done: ForkedJob) -> list[str]:
    """The lines of evaluations and of the end."""
    return [line for line in done.text().splitlines() if line.startswith(("validated", "fitted"))]


def position(done: ForkedJob) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((done.newest() / "lightning.json").read_text())
    return values


def difference(one: list[Batch], other: list[Batch]) -> float:
    """The largest relative difference of a loss; all else must be the same."""
    assert [dataclasses.replace(b, loss=0.0) for b in one] == [
        dataclasses.replace(b, loss=0.0) for b in other
    ]
    return max(abs(a.loss - b.loss) / abs(a.loss) for a, b in zip(one, other, strict=True))


@pytest.mark.gate
def test_a_reshape_2_1_2_in_mid_epoch_has_the_losses_of_a_straight_run(
    server: Forks, tmp_path: Path
) -> None:
    """Shuffled, augmented in two loader workers, two batches a step, cosine schedule."""
    straight, single = job(server, tmp_path / "two"), job(server, tmp_path / "one", "--batch", "16")
    assert (straight.runs(2), single.runs(1)) == (0, 0), straight.text() + single.text()
    reshaped = job(server, tmp_path / "reshaped")
    for gpus, stop_at in ((2, "batch 0 5 "), (1, "batch 1 4 ")):
        assert reshaped.runs(gpus, stop_at) == EXIT_SAVED, reshaped.text()
        assert 0 < position(reshaped)["batches"] < 12, "in mid-epoch"
        assert position(reshaped)["batches"] % 2 == 0, "between two steps"
    assert reshaped.runs(2) == 0, reshaped.text()
    wanted = batches(straight)
    assert len(wanted) == 3 * 12
    for epoch in range(3):
        seen = [json.loads(batch.samples) for batch in wanted if batch.epoch == epoch]
        assert sorted(sample for batch in seen for sample in batch) == [*range(192)]
    floor = difference(wanted, batches(single))
    assert floor < ROUNDING
    assert difference(wanted, batches(reshaped)) <= max(2 * floor, ROUNDING)
    assert len(others(reshaped)) == len(others(straight)) == 4
    word, notes = position(reshaped)["verdict"]
    assert (word, notes.split("; ")[0]) == ("exact", "for losses that are means over samples")
    assert "covers the rest of it only (train_loss, train_loss_epoch)" in notes


def test_without_a_reshape_nothing_that_a_script_shows_changes(
    server: Forks, tmp_path: Path
) -> None:
    """Lightning takes the number of devices from the environment, as the plain run needs it."""
    arguments = ("--noise", "0", "--dropout", "0.2", "--epochs", "2")
    hooked, plain = (
        job(server, tmp_path / name / "job", *arguments) for name in ("hooked", "plain")
    )
    for one in (hooked, plain):
        one.variables |= {"PL_TRAINER_DEVICES": "2", "PL_TRAINER_STRATEGY": "ddp"}
    assert hooked.runs(2) == plain.runs(2, hooked=False) == 0, hooked.text()
    for rank in range(2):
        assert masked(hooked, rank) == masked(plain, rank) != ""


def masked(done: ForkedJob, rank: int) -> str:
    """What a rank printed, without the job's own folder."""
    return done.text(rank).replace(str(done.folder), "FOLDER")


def test_a_restart_at_the_same_size_repeats_dropout_and_evaluations_to_the_last_bit(
    server: Forks, tmp_path: Path
) -> None:
    """The first stop comes in an evaluation in mid-epoch, which ends before it."""
    arguments = ("--dropout", "0.2", "--workers", "0", "--check", "4", "--pause", "0.02")
    straight = job(server, tmp_path / "straight", *arguments)
    assert straight.runs(2) == 0, straight.text()
    restarted = job(server, tmp_path / "restarted", *arguments)
    for stop_at in ("validated 0 ", "batch 1 9 "):
        assert restarted.runs(2, stop_at) == EXIT_SAVED, restarted.text()
    assert restarted.runs(2) == 0, restarted.text()
    assert batches(restarted) == batches(straight)
    assert others(restarted) == others(straight)
    kind, reason = position(restarted)["verdict"]
    assert kind == "steps-only"
    assert "Dropout draws other numbers" in reason


@pytest.mark.parametrize("case", ["zero", "gathers", "min_epochs"])
def test_a_stop_waits_for_no_process_that_does_not_come(
    server: Forks, tmp_path: Path, case: str
) -> None:
    """A collective save of an optimizer or of the script, and a stop before ``min_epochs``."""
    done = corner(server, tmp_path / case, case)
    assert done.runs(2, "batch 1 1 ") == EXIT_SAVED, done.text()
    assert done.runs(2) == 0, done.text()
    made = [(batch.epoch, batch.number) for batch in batches(done)]
    epochs = 3 if case == "min_epochs" else 4
    assert made == [(epoch, number) for epoch in range(epochs) for number in range(4)]


def test_a_second_fit_answers_a_stop_and_the_first_is_not_made_again(
    server: Forks, tmp_path: Path
) -> None:
    """Between the two, rank 0 tests with a Trainer on one device."""
    straight, done = (corner(server, tmp_path / name, "two_fits") for name in ("straight", "done"))
    assert straight.runs(2) == 0, straight.text()
    assert done.runs(2, "batch 0 3 ") == EXIT_SAVED, done.text()
    assert done.runs(2, "tested") == EXIT_SAVED, done.text()
    assert done.runs(2) == 0, done.text()
    assert batches(done) == batches(straight)
    ends = [
        [line for line in one.text().splitlines() if line.startswith("second")]
        for one in (done, straight)
    ]
    assert ends[0] == ends[1] != []
    assert json.loads((done.newest() / "manifest.json").read_text())["complete"]


def test_a_fit_after_the_jobs_length_makes_no_step(server: Forks, tmp_path: Path) -> None:
    """Its loader is the one of the fit before."""
    done = corner(server, tmp_path / "length", "same_loader")
    done.variables |= {"RESHAPE_STEPS": "8"}
    assert done.runs(1) == 0, done.text()
    assert len(batches(done)) == 8
    assert re.findall(r"fit of (\d+) steps", done.text()) == ["8", "0"]


def test_a_stop_after_the_fit_is_answered_at_once_and_costs_no_step(
    server: Forks, tmp_path: Path
) -> None:
    done = corner(server, tmp_path / "tail", "tail")
    assert done.runs(2, "fitted") == EXIT_SAVED, done.text()
    assert position(done)["fits"] == 1


def test_a_checkpoint_that_does_not_fit_is_refused_with_the_difference(
    server: Forks, tmp_path: Path
) -> None:
    done = corner(server, tmp_path / "refused", "min_epochs")
    assert done.runs(2, "batch 1 1 ") == EXIT_SAVED, done.text()
    for case, said in (
        ("other_model", "net.0.weight (8, 2) instead of (5, 2)"),
        ("other_data", "the training data has 72 samples, and it had 64"),
        ("other_version", "was written by Lightning 2.6.6, and this is 9.9"),
    ):
        done.command[1] = case
        assert done.runs(2) == 1
        assert said in done.text()


def test_gpus_that_cannot_share_the_batch_or_one_device_are_refused_by_name(
    server: Forks, tmp_path: Path
) -> None:
    done = corner(server, tmp_path / "three", "min_epochs")
    assert done.runs(2, "batch 0 1 ") == EXIT_SAVED, done.text()
    assert done.runs(3) == 1
    assert "a batch of 16 samples on all GPUs together, which 3 GPUs cannot share" in done.text()
    alone = corner(server, tmp_path / "alone", "alone")
    assert alone.runs(2) == 1
    said = alone.text() + alone.text(rank=1)  # the first to end ends the other
    assert "Trainer(devices=1) uses one device: write devices='auto'" in said


@pytest.mark.parametrize(
    ("case", "gpus", "kind", "reason"),
    [
        ("batchnorm", 2, "steps-only", "BatchNorm1d sees the batch of one GPU"),
        ("iterable", 2, "steps-only", "an IterableDataset is exact at the same number of GPUs"),
        ("rest", 2, "steps-only", "63 samples do not divide by 2 GPUs: some are repeated"),
        ("handles", 1, "unknown", "the script handles SIGTERM itself"),
        ("manual", 1, "exact", None),
        ("spawn", 1, "exact", None),
        ("cycles", 2, "exact", "for losses that are means over samples"),
        ("dropout", 2, "steps-only", "a step draws random numbers"),
    ],
)
def test_the_verdict_names_what_another_number_of_gpus_changes(
    server: Forks, tmp_path: Path, case: str, gpus: int, kind: str, reason: str | None
) -> None:
    done = corner(server, tmp_path / case, case)
    assert done.runs(gpus) == 0, done.text()
    found, text = position(done)["verdict"]
    assert found == kind, text
    assert reason is None or reason in text


def test_a_run_folder_that_is_named_by_the_clock_is_noted(server: Forks, tmp_path: Path) -> None:
    done = corner(server, tmp_path / "by_clock", "by_clock")
    assert done.runs(1, "batch 0 1 ") == EXIT_SAVED, done.text()
    assert done.runs(1) == 0, done.text()
    assert "before the restart: name it without the clock" in done.text()
    kind, note = position(done)["verdict"]
    assert kind == "exact"
    assert (
        "each start has another default_root_dir, so logs and saves are in several"
        " folders: name it without the clock"
    ) in note


def test_a_csv_file_of_a_fixed_version_has_each_step_once_after_a_reshape_and_a_kill(
    server: Forks, tmp_path: Path
) -> None:
    done = corner(server, tmp_path / "rows", "fixed_version")
    assert done.runs(2, "batch 1 1 ") == EXIT_SAVED, done.text()
    assert done.runs(1) not in (0, EXIT_SAVED), "it is killed at step 9"
    assert done.runs(2) == 0, done.text()
    with (done.folder / "run" / "fixed" / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["train_loss_step"]] == [str(n) for n in range(16)]
    assert len([row for row in rows if row["train_loss_epoch"]]) == 4


def test_all_processes_end_at_the_target_accuracy_that_the_first_one_judges(
    server: Forks, tmp_path: Path
) -> None:
    done = corner(server, tmp_path / "improves", "improves")
    done.variables |= {"RESHAPE_TARGET_ACCURACY": "0.5", "RESHAPE_METRIC": "val_accuracy"}
    assert done.runs(2) == 0, done.text()
    assert {batch.epoch for batch in batches(done)} == {0, 1}
    assert json.loads((done.newest() / "manifest.json").read_text())["step"] == 8


def test_a_daemon_reshapes_it_4_2_4_with_nothing_but_a_record(bed: Bed) -> None:
    truth = bed.folder / "truth.json"
    truth.write_text(json.dumps({"seconds_per_step": {"linear": {"2": 0.2, "4": 0.2}}}))
    bed.up("--device-truth", str(truth), "--preset", "paper")
    command = [str(PYTHON), "lightning_fit.py", "--epochs", "100000", "--workers", "1"]
    code = bed.folder / "script"
    code.mkdir()
    shutil.copy(SCRIPTS / "lightning_fit.py", code)
    key = bed.submit(
        "trains",
        steps=300_000,
        command=command,
        code=str(code),
        framework="pytorch",
        job_type="linear",
        max_wait_s=1,
    )

    def made() -> list[tuple[int, int]]:
        log = bed.home / "jobs" / key / "attempt-1" / "logs" / "training.log"
        text = log.read_text() if log.exists() else ""
        return [(int(epoch), int(n)) for epoch, n in re.findall(r"batch (\d+) (\d+) ", text)]

    def goes_on() -> None:
        before = len(made())
        eventually(lambda: len(made()) > before + 20, least_s=PYTORCH_S, text="20 more batches")

    goes_on()
    newcomer = bed.submit("newcomer", steps=100_000, optional_gpus=[2], max_wait_s=1)
    bed.reaches(key, "running", size=2)
    goes_on()
    bed.reshape("cancel", "newcomer")
    bed.reaches(newcomer, "cancelled")
    bed.reaches(key, "running", size=4)
    goes_on()
    found, batches_made = bed.job(key), made()
    assert (found["reshape_downs"], found["reshape_ups"]) == (1, 1)
    assert (found["steps_lost"], found["failures"], found["container_restarts"]) == (0, 0, 0)
    assert (found["processes"], found["trajectory"]) == ("per-gpu", "exact")
    assert batches_made == [divmod(number, 6) for number in range(len(batches_made))]
