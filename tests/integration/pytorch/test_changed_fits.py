"""What callbacks and hooks change of Lightning's own loops, schedules and saves comes back."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pytorch_bed import PYTHON
from tests.support.ranks_bed import SIDECAR, Forks, ScriptBed

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

LINE = re.compile(r"^said (\S+) (\S+)$", re.M)
EPOCH = 6
"""Steps."""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks("lightning.pytorch")
    yield made
    made.end()


def runs(forks: Forks, folder: Path, case: str, *legs: tuple[int, int | None]) -> ScriptBed:
    bed = ScriptBed(forks, folder, "changed_fits.py", case)
    for gpus, stop_after in legs:
        bed.runs(gpus, stop_after)
    return bed


def printed(bed: ScriptBed) -> dict[str, float]:
    return {name: float(value) for name, value in LINE.findall(bed.printed)}


@pytest.mark.parametrize(("case", "steps"), [("changed_loops", 22), ("altered_saves", 4 * EPOCH)])
def test_a_fit_that_changes_what_lightning_keeps_goes_on(
    case: str, steps: int, forks: Forks, tmp_path: Path
) -> None:
    straight = runs(forks, tmp_path / "straight", case, (2, None))
    legs = (2, 2 * EPOCH), (1, 2 * EPOCH + 2), (2, None)
    reshaped = runs(forks, tmp_path / "reshaped", case, *legs)
    assert len(printed(straight)) == steps + 2  # each step, the weights and the rate
    assert printed(reshaped) == pytest.approx(printed(straight), rel=1e-5)
    assert reshaped.position("lightning.json")["verdict"][0] == "exact"


def test_frozen_weights_that_a_hook_leaves_out_of_a_save_stay_out(
    forks: Forks, tmp_path: Path
) -> None:
    bed = runs(forks, tmp_path / "one", "altered_saves", (1, 4))
    newest = max((bed.folder / "checkpoints").glob("step-*/lightning.pt"))
    text = f"import torch; state = torch.load({str(newest)!r}, weights_only=False)"
    text += "; print(*state['reshape']['altered']['state_dict'])"
    found = subprocess.run([PYTHON, "-c", text], capture_output=True, text=True, check=True)
    parts = {name.partition(".")[0] for name in found.stdout.split()}
    assert parts == {"net", "slow"}  # not the backbone, which no step changes


SHOWS_AVERAGES = """
from torch import nn
from reshape_sidecar.pytorch.weights import state_of
class Averaged(nn.Linear):
    def state_dict(self, *arguments, **options):
        return {name: one * 0 for name, one in super().state_dict(*arguments, **options).items()}
for model in (Averaged(2, 1), nn.Linear(2, 1)):
    print(all(one.equal(state_of(model)[name]) for name, one in model.named_parameters()))
plain = nn.BatchNorm1d(2)
print(state_of(plain)._metadata == plain.state_dict()._metadata)
"""


def test_a_state_dict_that_shows_averages_is_saved_with_the_weights() -> None:
    found = subprocess.run(
        [PYTHON, "-c", SHOWS_AVERAGES],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(SIDECAR)},
    )
    assert found.stdout.split() == ["True"] * 3
