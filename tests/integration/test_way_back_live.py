"""Real programs that save by themselves, under a real daemon: their loss, and their way back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_bed import Bed, eventually
from tests.support.daemon_bed import bed as make_bed

OWN = """
import json, os, pathlib, time
gpus = len(os.environ["RESHAPE_DEVICES"].split(","))
folder = pathlib.Path(os.environ["RESHAPE_CHECKPOINTS"])
folder.mkdir(parents=True, exist_ok=True)
mine, step = folder / f"own-{os.environ.get('RANK', '0')}.json", 0
time.sleep(3.5)  # longer than such a program needs to count as running
if mine.exists():
    of, step = json.loads(mine.read_text())
    if REFUSES and of != gpus:
        raise ValueError(f"a checkpoint of {of} GPUs cannot be loaded on {gpus}")
while True:
    time.sleep(0.05)
    step += 1
    if step % 10 == 0 and (gpus != 2 or not REFUSES):
        mine.write_text(json.dumps([gpus, step]))
"""
"""Trains, saves and goes on by itself, and reports nothing; one kind refuses a checkpoint of
another number of GPUs, as DeepSpeed does."""
REFUSED = """
import time
from reshape_sidecar.loop_epochs import LoopError
time.sleep({wait_s})
raise LoopError("the Net is sharded, and job.batches saves whole models")
"""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def shrinks(bed: Bed, job: str) -> str:
    """Have a newcomer take two of the four GPUs of a job that has saved; the newcomer."""
    eventually(
        lambda: (bed.folder / "saves" / "own-0.json").exists(), text="a checkpoint of its own"
    )
    newcomer = bed.submit("newcomer", steps=10**5, optional_gpus=[2], max_wait_s=1)
    eventually(lambda: bed.job(job)["reshape_downs"] == 1, text="it shrinks")
    return newcomer


def lines(bed: Bed, job: str) -> str:
    """What ``describe`` prints, in one line."""
    return " ".join(bed.reshape("describe", job).stdout.split())


@pytest.mark.parametrize("processes", ["one", "per-gpu"])
def test_a_program_that_refuses_its_checkpoint_at_another_size_goes_back(
    bed: Bed, processes: str
) -> None:
    bed.up("--preset", "paper")
    script = OWN.replace("REFUSES", "True")
    fields: dict[str, object] = {"framework": "pytorch", "processes": processes, "retries": 0}
    fields["checkpoints"] = str(bed.folder / "saves")
    job = bed.submit("refuses", script, steps=None, **fields)
    newcomer = shrinks(bed, job)
    eventually(lambda: bed.job(job)["struck"] == [2], text=lambda: lines(bed, job))
    assert bed.job(job)["reason"].startswith("queued again for the 4 GPUs that it trained on: ")
    bed.reshape("cancel", newcomer)
    back = bed.reaches(job, "running", size=4)
    assert (back["failures"], back["exception"]) == (0, "ValueError")
    eventually(lambda: bed.job(job)["stage"] == "training", text="it trains again")
    said = lines(bed, job)
    assert "last failure ValueError: a checkpoint of 4 GPUs cannot be loaded on 2" in said
    assert "lost an unknown number of steps;" in said
    change = "change" if processes == "per-gpu" else "may change"
    assert f"trajectory its own; samples per step {change} with the GPUs (2 → 4)" in said


def test_what_a_program_loses_that_reports_nothing_is_unknown_everywhere(bed: Bed) -> None:
    bed.up("--preset", "paper")
    saves = str(bed.folder / "saves")
    job = bed.submit("own", OWN.replace("REFUSES", "False"), steps=None, checkpoints=saves)
    assert bed.job(job)["steps_lost_known"] is True
    shrinks(bed, job)
    after = bed.reaches(job, "running", size=2)
    assert (after["steps_lost"], after["steps_lost_known"]) == (0, False)
    assert "lost an unknown number of steps;" in lines(bed, job)
    assert "an unknown number of steps lost" in " ".join(bed.reshape("timeline").stdout.split())
    used = " ".join(bed.reshape("usage").stdout.split())
    assert "These jobs have lost an unknown number of steps, and" in used
    assert "of the GPU-hours trained were repeated." in used
    (lane,) = [each for each in bed.json("timeline")["jobs"] if each["id"] == job]
    assert lane["steps_lost_known"] is False


@pytest.mark.parametrize("wait_s", [0.0, 4.0], ids=["at its start", "after it counts as running"])
def test_a_refusal_by_reshape_is_final_and_describe_has_its_sentence(
    bed: Bed, wait_s: float
) -> None:
    bed.up()
    job = bed.submit("refused", REFUSED.format(wait_s=wait_s), steps=None, retries=5)
    failed = bed.reaches(job, "failed")
    assert (failed["failures"], failed["attempt"], failed["process_restarts"]) == (0, 1, 0)
    assert [entry["kind"] for entry in bed.entries(job)].count("granted") == 1
    sentence = "the Net is sharded, and job.batches saves whole models"
    assert f"last failure LoopError: {sentence}" in lines(bed, job)
    assert failed["reason"] == f"refused by Reshape on 4 GPUs: {sentence}"
