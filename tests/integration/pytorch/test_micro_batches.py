"""Under `batch: micro` losses that couple the samples of one GPU are the same after a reshape."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pytorch_bed import PYTHON
from tests.support.ranks_bed import Forks, ScriptBed

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

SHOWN = re.compile(r"^(step \S+ \w+|ends \S+) (\S+)$", re.M)
LOOP, FIT = "coupled_loop.py", "coupled_fit.py"
EXACT = "for losses that are means over micro-batches"
ROUNDING = 2e-6
"""Relative difference that the order of sums may make; at most 6e-7 were seen."""
Legs = tuple[tuple[int, int | None], ...]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks("lightning.pytorch")
    yield made
    made.end()


def bed(forks: Forks, folder: Path, script: str, *case: str, micro: int | None = 2) -> ScriptBed:
    made = ScriptBed(forks, folder, script, *case, step_s=0.001)
    if micro is not None:
        made.variables["RESHAPE_MICRO_BATCHES"] = str(micro)
    return made


def runs(made: ScriptBed, *legs: tuple[int, int | None]) -> ScriptBed:
    """Train on some GPUs after the other, to a step of each."""
    for gpus, stop_after in legs:
        made.runs(gpus, stop_after)
    return made


def shown(made: ScriptBed) -> list[tuple[str, float]]:
    """Loss of each step, and norm of each tensor at the end."""
    return [(name, float(value)) for name, value in SHOWN.findall(made.printed)]


def difference(one: ScriptBed, other: ScriptBed) -> float:
    """The largest relative difference; the steps must be the same."""
    pairs = list(zip(shown(one), shown(other), strict=True))
    assert [a for (a, _), _ in pairs] == [b for _, (b, _) in pairs]
    assert len(pairs) > 20
    return max(abs(a - b) / (abs(a) or 1) for (_, a), (_, b) in pairs)


def verdict(made: ScriptBed, script: str) -> tuple[str, str]:
    if script == FIT:
        word, reason = made.position("lightning.json")["verdict"]
        return word, reason
    newest = max((made.folder / "checkpoints").glob("step-*/state.pt"))
    text = f"import json, torch; state = torch.load({str(newest)!r}, weights_only=False)"
    text += "; print(json.dumps(state['verdict']))"
    found = subprocess.run([PYTHON, "-c", text], capture_output=True, text=True, check=True)
    word, reason = json.loads(found.stdout)
    return word, reason


@pytest.mark.parametrize("script", [LOOP, FIT])
@pytest.mark.parametrize(
    "legs",
    [
        pytest.param(((2, 2), (1, 4), (2, None)), marks=pytest.mark.gate),
        ((1, 1), (4, 2), (2, None)),
    ],
)
def test_a_reshape_changes_no_coupled_loss(
    script: str, legs: Legs, forks: Forks, tmp_path: Path
) -> None:
    """In-batch negatives, BatchNorm, dropout, draws in the step and in the data, clipping."""
    most = max(gpus for gpus, _ in legs)
    straight = runs(bed(forks, tmp_path / "straight", script, micro=most), (most, None))
    reshaped = runs(bed(forks, tmp_path / "reshaped", script, micro=most), *legs)
    assert difference(straight, reshaped) < ROUNDING
    word, reason = verdict(reshaped, script)
    assert (word, reason.split("; ")[0]) == ("exact", EXACT)
    assert reshaped.printed.count("first step agrees (loss ") == len(legs) - 1


def test_a_buffer_that_the_forward_pass_reads_is_that_of_the_first_gpu(
    forks: Forks, tmp_path: Path
) -> None:
    """DistributedDataParallel gives it to all GPUs before each step."""
    straight = runs(bed(forks, tmp_path / "straight", LOOP, "moving", micro=4), (4, None))
    reshaped = runs(bed(forks, tmp_path / "reshaped", LOOP, "moving", micro=4), (2, 4), (1, None))
    assert difference(straight, reshaped) < ROUNDING


def test_without_micro_batches_these_losses_change_and_the_verdict_says_why(
    forks: Forks, tmp_path: Path
) -> None:
    straight = runs(bed(forks, tmp_path / "straight", LOOP, micro=None), (2, None))
    reshaped = runs(bed(forks, tmp_path / "reshaped", LOOP, micro=None), (2, 2), (1, None))
    assert difference(straight, reshaped) > 0.1
    word, reason = verdict(reshaped, LOOP)
    assert word == "steps-only"
    assert "SyncBatchNorm sees that of all, without `batch: micro`" in reason


@pytest.mark.parametrize(
    ("script", "case", "named"),
    [
        (LOOP, "counting", "seen changes with each micro-batch"),
        (FIT, "counting", "Module.seen changes with each micro-batch"),
    ],
)
def test_what_more_micro_batches_a_gpu_change_is_named(
    script: str, case: str, named: str, forks: Forks, tmp_path: Path
) -> None:
    word, reason = verdict(runs(bed(forks, tmp_path / "a", script, case), (2, 4)), script)
    assert word != "exact"
    assert named in reason


@pytest.mark.parametrize(
    ("script", "case", "said"),
    [
        (LOOP, "unopened", "write `for part in job.micro_batches(batch)` around the forward"),
        (LOOP, "late", "write forward and backward pass into the body of"),
        (LOOP, "broken", "without break, and optimizer.step after it"),
        (LOOP, "stepping", "without break, and optimizer.step after it"),
        (LOOP, "clearing", "zero_grad stands in the body of job.micro_batches, where the"),
        (LOOP, "own", "this loop divides its batches itself: loop over job.batches and"),
        (LOOP, "odd", "has 14 samples, which 4 micro-batches cannot share equally"),
        (FIT, "manual", "a module with automatic_optimization = False makes its steps itself"),
        (FIT, "twice", "training_step returned 2 of this one: return one, with an optimizer"),
        (FIT, "changing", "on_train_batch_start changes the batch, and under `batch: micro`"),
        (FIT, "endless", "give one, or leave batch out of the record: an IterableDataset"),
        (FIT, "odd", "113 samples do not divide by the 4 micro-batches of a step, so their last"),
    ],
)
def test_what_cannot_keep_micro_batches_is_refused_at_the_first_start(
    script: str, case: str, said: str, forks: Forks, tmp_path: Path
) -> None:
    """With all GPUs too, where a process trains its own micro-batch alone."""
    made = bed(forks, tmp_path / "a", script, case, micro=4 if case == "odd" else 1)
    made.runs(1, code=1)
    assert said in made.printed


def test_a_number_of_gpus_that_cannot_share_the_micro_batches_is_refused(
    forks: Forks, tmp_path: Path
) -> None:
    made = bed(forks, tmp_path / "a", LOOP, micro=3)
    made.runs(2, code=1)
    assert "2 GPUs cannot share the 3 micro-batches of a step equally: take 2 out" in made.printed
