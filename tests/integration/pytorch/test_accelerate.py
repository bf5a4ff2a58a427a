"""A loop by `job.batches` over what `accelerate.prepare` has returned is reshaped in an epoch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ranks_bed import Forks, ScriptBed

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

LINE = re.compile(r"^step (\d+) loss (\S+) rate (\S+) seen (\S+)$", re.M)
ROUNDING = 1e-5
BATCHES, EPOCHS = 8, 3


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks("torch", "accelerate")
    yield made
    made.end()


def script(forks: Forks, folder: Path, *arguments: str) -> ScriptBed:
    return ScriptBed(forks, folder, "accelerate_loop.py", *arguments)


def lines(bed: ScriptBed) -> list[tuple[float, ...]]:
    """Step, loss, learning rate and sum of the inputs over all GPUs, of each batch."""
    return [tuple(map(float, found)) for found in LINE.findall(bed.printed)]


@pytest.mark.parametrize(
    ("arguments", "steps"), [(("--accumulate", "3"), 9), (("--seedable",), BATCHES * EPOCHS)]
)
def test_a_reshape_2_1_2_in_mid_epoch_has_the_losses_of_a_straight_run(
    forks: Forks, tmp_path: Path, arguments: tuple[str, ...], steps: int
) -> None:
    """Also where the last batches of an epoch are fewer than those that a step accumulates."""
    straight = script(forks, tmp_path / "straight", *arguments)
    straight.runs(2)
    reshaped = script(forks, tmp_path / "reshaped", *arguments)
    reshaped.runs(2, stop_after=1)
    reshaped.runs(1, stop_after=5)
    reshaped.runs(2)
    wanted = lines(straight)
    assert f"ends at step {steps}" in straight.printed
    assert len(wanted) == BATCHES * EPOCHS
    assert lines(reshaped) == [pytest.approx(line, rel=ROUNDING) for line in wanted]


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        ("dispatched", "not a DataLoaderDispatcher; give the loader that accelerator.prepare got"),
        ("skipped", "give the loader without skip_first_batches"),
    ],
)
def test_a_loader_without_positions_is_refused_with_its_remedy(
    forks: Forks, tmp_path: Path, refused: str, said: str
) -> None:
    bed = script(forks, tmp_path / "refused", "--refused", refused)
    bed.runs(1, code=1)
    assert said in bed.printed
