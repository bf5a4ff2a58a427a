"""What a PyTorch script keeps beside its model comes back in mid-epoch, or the verdict names it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pytorch_bed import PYTHON
from tests.support.ranks_bed import Forks, ScriptBed

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

LOSS = re.compile(r"^step (\S+) loss (\S+)$", re.M)
KEPT = re.compile(r"^kept (\S+) (.*)$", re.M)
ROUNDING = 1e-5


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks("transformers.trainer", "lightning.pytorch")
    yield made
    made.end()


def runs(forks: Forks, folder: Path, case: str, *legs: tuple[int, int | None]) -> ScriptBed:
    """Train on some GPUs after the other, to a step of each."""
    bed = ScriptBed(forks, folder, "kept_state.py", *case.split())
    for gpus, stop_after in legs:
        bed.runs(gpus, stop_after)
    return bed


def losses(bed: ScriptBed) -> list[tuple[str, Any]]:
    return [(step, float(loss)) for step, loss in LOSS.findall(bed.printed)]


def kept(bed: ScriptBed) -> dict[str, str]:
    return dict(KEPT.findall(bed.printed))


def verdict(bed: ScriptBed, file: str) -> tuple[str, str]:
    word, reason = bed.position(file)["verdict"]
    return word, reason or ""


def assert_equal(one: ScriptBed, other: ScriptBed) -> None:
    assert len(losses(one)) > 20
    near = [(step, pytest.approx(loss, rel=ROUNDING)) for step, loss in losses(one)]
    assert losses(other) == near
    assert kept(other) == kept(one)


@pytest.mark.parametrize(
    ("case", "file"),
    [
        pytest.param("averaged_copy", "trainer.json", marks=pytest.mark.gate),
        ("harder_data", "trainer.json"),
        ("scheduled_accumulation", "lightning.json"),
        ("averaged_files", "lightning.json"),
    ],
)
def test_what_a_script_keeps_comes_back_on_2_1_2(
    case: str, file: str, forks: Forks, tmp_path: Path
) -> None:
    straight = runs(forks, tmp_path / "straight", case, (2, None))
    reshaped = runs(forks, tmp_path / "reshaped", case, (2, 4), (1, 10), (2, None))
    assert_equal(straight, reshaped)
    assert verdict(reshaped, file)[0] == "exact"


@pytest.mark.parametrize(
    ("case", "file", "named"),
    [
        ("counted_loss", "trainer.json", "Annealed.seen changes with each micro-batch"),
        ("loss_with_weights", "trainer.json", "is trained on each GPU alone"),
        ("thawed_layer", "lightning.json", "net.0.weight is trained since a later step"),
    ],
)
def test_what_another_number_of_gpus_changes_is_named_and_comes_back_on_one(
    case: str, file: str, named: str, forks: Forks, tmp_path: Path
) -> None:
    two = runs(forks, tmp_path / "two", case, (2, 20))
    assert named in verdict(two, file)[1]
    assert verdict(two, file)[0] != "exact"
    straight = runs(forks, tmp_path / "straight", case, (1, None))
    stopped = runs(forks, tmp_path / "stopped", case, (1, 9), (1, 22), (1, None))
    assert_equal(straight, stopped)


@pytest.mark.gate
def test_a_loop_goes_on_with_what_it_carries(forks: Forks, tmp_path: Path) -> None:
    straight = runs(forks, tmp_path / "straight", "carried_names", (2, None))
    reshaped = runs(forks, tmp_path / "reshaped", "carried_names", (2, 5), (1, 20), (2, None))
    assert_equal(straight, reshaped)
    assert loop_verdict(reshaped) == ("exact", "for losses that are means over samples")


def test_a_loop_goes_on_in_another_function_with_what_it_keeps_by_weight(
    forks: Forks, tmp_path: Path
) -> None:
    straight = runs(forks, tmp_path / "straight", "given_batches", (2, None))
    reshaped = runs(forks, tmp_path / "reshaped", "given_batches", (2, 5), (1, 20), (2, None))
    assert_equal(straight, reshaped)
    assert loop_verdict(reshaped)[0] == "exact"
    counted = runs(forks, tmp_path / "counted", "given_batches counts", (2, 5))
    assert loop_verdict(counted)[0] == "unknown"
    assert "count changes and begins again at a restart" in loop_verdict(counted)[1]


def test_a_trainer_that_trains_twice_keeps_its_batch_and_its_optimizers_objects(
    forks: Forks, tmp_path: Path
) -> None:
    straight = runs(forks, tmp_path / "straight", "two_calls", (2, None))
    reshaped = runs(forks, tmp_path / "reshaped", "two_calls", (2, 4), (1, 40), (2, None))
    assert_equal(straight, reshaped)
    assert verdict(reshaped, "trainer.json")[0] == "exact"


def test_a_fit_that_begins_on_fewer_gpus_has_the_batch_of_the_first_start(
    forks: Forks, tmp_path: Path
) -> None:
    straight = runs(forks, tmp_path / "straight", "two_fits", (2, None))
    reshaped = runs(forks, tmp_path / "reshaped", "two_fits", (2, 10), (1, 30), (1, None))
    assert_equal(straight, reshaped)
    assert len(losses(reshaped)) == 2 * 4 * 6


def test_a_loop_that_steps_an_optimizer_by_halves_goes_on(forks: Forks, tmp_path: Path) -> None:
    straight = runs(forks, tmp_path / "straight", "wrapped_optimizer", (2, None))
    reshaped = runs(forks, tmp_path / "reshaped", "wrapped_optimizer", (2, 5), (1, 20), (2, None))
    assert_equal(straight, reshaped)
    assert loop_verdict(reshaped)[0] == "exact"


def test_gradients_that_a_step_leaves_to_the_next_one_are_named(
    forks: Forks, tmp_path: Path
) -> None:
    bed = runs(forks, tmp_path / "faded", "faded_gradients", (1, 8))
    said = "gradients of a step are left to the next one, and no checkpoint holds them"
    assert loop_verdict(bed) == ("unknown", said)


def test_hooks_weights_optimizers_and_generators_go_on(forks: Forks, tmp_path: Path) -> None:
    straight = runs(forks, tmp_path / "straight", "hooks_and_noise", (2, None))
    reshaped = runs(forks, tmp_path / "reshaped", "hooks_and_noise", (2, 5), (1, 20), (2, None))
    assert_equal(straight, reshaped)
    assert "noise draws random numbers" in loop_verdict(reshaped)[1]


def test_a_loop_names_a_count_and_an_iterator_that_it_carries(forks: Forks, tmp_path: Path) -> None:
    bed = runs(forks, tmp_path / "counts", "carried_names counts", (1, 5))
    word, reason = loop_verdict(bed)
    assert word == "unknown"
    assert reason == "count, rest changes and begins again at a restart: keep it with job.keep"


def loop_verdict(bed: ScriptBed) -> Any:
    """The verdict in the newest checkpoint of a loop; PyTorch reads it."""
    newest = max((bed.folder / "checkpoints").glob("step-*/state.pt"))
    text = f"import json, torch; state = torch.load({str(newest)!r}, weights_only=False)"
    text += "; print(json.dumps(state['verdict']))"
    found = subprocess.run([PYTHON, "-c", text], capture_output=True, text=True, check=True)
    return tuple(json.loads(found.stdout))


def test_tensors_of_every_layout_come_back_or_are_named() -> None:
    script = Path(__file__).parent / "scripts" / "layouts.py"
    sidecar = Path(__file__).parents[3] / "sidecar"
    found = subprocess.run(
        [PYTHON, str(script)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(sidecar)},
    )
    assert dict(line.split() for line in found.stdout.splitlines()) == {
        "pruned": "named",
        "sparse": "back",
        "rows": "back",
        "columns": "back",
        "quantized": "back",
        "conjugate": "back",
        "negative": "back",
        "nested": "named",
    }
