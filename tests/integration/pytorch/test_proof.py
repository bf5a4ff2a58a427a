"""The first step after a restart is that of the process before, or the job's log says what differs.

Each training is stopped twice, at 2, 1 and 2 GPUs. What no look at a script finds, the step shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar.wire import EXIT_SAVED
from tests.support.ranks_bed import Forks, ScriptBed

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

FRONT_ENDS = ("trainer", "lightning", "batches", "step_done")
LEGS = ((2, 5), (1, 16), (2, None))
PROOF = re.compile(r"^reshape: (\d → \d GPUs at step \d+: first step .*|no proof .*)$", re.M)
STEP = re.compile(r"^step .*$", re.M)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks("torch.distributed.optim", "transformers.trainer", "lightning.pytorch")
    yield made
    made.end()


def training(forks: Forks, folder: Path, *words: str, **variables: str) -> ScriptBed:
    bed = ScriptBed(forks, folder, "proved.py", *words)
    bed.variables = variables
    return bed


def proofs(bed: ScriptBed) -> list[str]:
    return PROOF.findall(bed.printed)


def told(bed: ScriptBed) -> dict[str, str]:
    """What callbacks and loggers have written."""
    paths = [*bed.folder.rglob("told.csv"), *bed.folder.rglob("metrics.csv")]
    return {str(path.relative_to(bed.folder)): path.read_text() for path in paths}


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_right_script_agrees_and_its_extra_step_leaves_nothing(
    front_end: str, forks: Forks, tmp_path: Path
) -> None:
    proved = training(forks, tmp_path / "proved", front_end, "right")
    plain = training(forks, tmp_path / "plain", front_end, "right", RESHAPE_PROOF="off")
    for bed in (proved, plain):
        for gpus, stop_after in LEGS:
            bed.runs(gpus, stop_after)
    agrees = r"{} GPUs at step {}: first step agrees \(loss \d\.\d+, \de[-+]\d+\)"
    first, second = proofs(proved)
    assert re.fullmatch(agrees.format("2 → 1", 5), first)
    assert re.fullmatch(agrees.format("1 → 2", 16), second)
    assert proofs(plain) == []
    assert len(STEP.findall(plain.printed)) == 36
    assert STEP.findall(proved.printed) == STEP.findall(plain.printed)
    assert told(proved) == told(plain) != {}
    assert not list(plain.folder.rglob("proof-*"))


@pytest.mark.parametrize(
    "front_end",
    [pytest.param("trainer", marks=pytest.mark.gate), "lightning", "batches", "step_done"],
)
def test_state_that_no_checkpoint_holds_shows_at_the_first_reshape(
    front_end: str, forks: Forks, tmp_path: Path
) -> None:
    bed = training(forks, tmp_path, front_end, "wrong")
    bed.runs(2, 5)
    bed.runs(1, 16)
    (proof,) = proofs(bed)
    found = re.fullmatch(r"2 → 1 GPUs at step 5: first step differs: (.*); look at (.*)", proof)
    assert found is not None, proof
    assert re.match(r"loss [\d.]+ instead of [\d.]+ \(\d\.\d+ %\)", found[1])
    assert "loss" in found[2]


def test_a_loop_that_accumulates_is_compared_by_its_numbers(forks: Forks, tmp_path: Path) -> None:
    """Each batch is seeded anew, which is no draw of the step."""
    for case, says in (("right", "first step agrees (loss"), ("wrong", "first step differs: loss")):
        bed = training(forks, tmp_path / case, "batches", case, ACCUMULATE="2")
        bed.runs(2, 5)
        bed.runs(1, 9)
        (proof,) = proofs(bed)
        assert says in proof


def test_a_loop_that_goes_on_behind_its_step_leaves_at_once(forks: Forks, tmp_path: Path) -> None:
    bed = training(forks, tmp_path, "step_done", "wrong", BEHIND="1")
    bed.runs(2, 5)
    bed.runs(1, 9)
    said = "step_done is not the last thing that its loop does"
    assert proofs(bed) == [f"no proof at step 5: {said}"]
    assert bed.printed.count("behind 5") == 0


def test_a_record_may_end_a_process_that_differs_before_its_second_step(
    forks: Forks, tmp_path: Path
) -> None:
    bed = training(forks, tmp_path, "trainer", "wrong", RESHAPE_PROOF="stop")
    bed.runs(2, 5)
    bed.runs(1, 16, code=1)
    assert "first_steps.ProofDiffers: its first step at 2 → 1 GPUs, step 5, differs" in bed.printed
    assert STEP.findall(bed.printed)[-1].startswith("step 5 ")
    assert [path.name for path in tmp_path.glob("checkpoints/step-*")] == ["step-0000000005-a1"]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_step_that_fails_after_the_save_loses_nothing(
    front_end: str, forks: Forks, tmp_path: Path
) -> None:
    straight = training(forks, tmp_path / "straight", front_end, "right", RESHAPE_PROOF="off")
    stopped = training(forks, tmp_path / "stopped", front_end, "right", IN_STEP="raise")
    straight.runs(2, 5)
    straight.runs(2)
    stopped.runs(2, 5, code=EXIT_SAVED)
    assert "ArithmeticError" not in stopped.printed
    stopped.variables = {}
    stopped.runs(2)
    assert STEP.findall(stopped.printed) == STEP.findall(straight.printed)
    assert proofs(stopped) == ["no proof at step 5: the process before made no step after its save"]


def test_a_process_that_is_killed_in_the_step_has_saved_before(
    forks: Forks, tmp_path: Path
) -> None:
    bed = training(forks, tmp_path, "batches", "right", IN_STEP="kill")
    bed.runs(2, 5, code=137)
    bed.variables = {}
    bed.runs(2)
    steps = [int(line.split()[1]) for line in STEP.findall(bed.printed)]
    assert steps == [*range(1, 37)]
