"""The training trajectory of a reshaped ResNet-8 is that of an unreshaped one.

Sixty steps, real restarts 4 → 2 → 4 devices in the middle of epochs. What a change of devices may
do to the losses is measured, not assumed: straight runs on 4 and on 2 devices differ by rounding,
which training amplifies, and the reshaped run may differ from the straight one by twice as much.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from reshape_sidecar.wire import EXIT_SAVED
from tests.support.hook_bed import Ended, Job

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(1800)]

SCRIPTS = Path(__file__).parent / "scripts"
SCRIPT, PLANTED = SCRIPTS / "trajectory.py", SCRIPTS / "planted.py"
STEPS = 60
STOPS = (20, 40)
DEVIATION_FLOOR = 1e-5
DEVIATION_FACTOR = 2
LEARNT_RATIO = 0.8
"""The last loss must be below this part of the first: else nothing amplifies an error."""
RUNS = [("group", 1), ("group", 2), ("synchronized", 1)]
if os.environ.get("RESHAPE_MANY_SEEDS"):
    RUNS += [(kind, seed) for kind in ("group", "synchronized") for seed in (3, 4, 5)]
BUGS = (
    "one_batch_skipped",
    "one_batch_repeated",
    "optimizer_slots_lost",
    "schedule_restarted",
    "shuffle_reseeded",
    "metrics_reset",
)


@dataclass(frozen=True)
class Trajectory:
    """Loss of each step by itself, and what History has of each epoch."""

    losses: dict[int, float]
    epochs: dict[int, tuple[float, float]]


def trajectory(*runs: Ended) -> Trajectory:
    """The trajectory of processes that ran one after the other."""
    losses: dict[int, float] = {}
    epochs: dict[int, tuple[float, float]] = {}
    total, count = 0.0, 0.0
    for run in runs:
        for line in run.out.splitlines():
            word, *values = line.split()
            if word == "STEP":
                step, now, number = int(values[0]), float(values[1]), float(values[2])
                if number <= count:
                    total, count = 0.0, 0.0
                assert step not in losses, f"step {step} was done twice"
                losses[step] = (now - total) / (number - count)
                total, count = now, number
            elif word == "EPOCH":
                epochs[int(values[0])] = (float(values[1]), float(values[2]))
                total, count = 0.0, 0.0
    return Trajectory(losses, epochs)


def deviation(one: Trajectory, other: Trajectory) -> float:
    """Largest relative difference of a step's loss, or of an epoch's History."""
    steps = set(one.losses) & set(other.losses)
    assert steps, "nothing to compare"
    found = [abs(one.losses[k] - other.losses[k]) / abs(other.losses[k]) for k in steps]
    for epoch in set(one.epochs) & set(other.epochs):
        for a, b in zip(one.epochs[epoch], other.epochs[epoch], strict=True):
            found.append(abs(a - b) / abs(b))
    return max(found)


def allowed(four: Trajectory, two: Trajectory) -> float:
    """Return the allowed difference of a reshaped run from ``four``. It follows from losses only:
    accuracy moves in whole samples and would widen it."""
    losses = deviation(Trajectory(four.losses, {}), Trajectory(two.losses, {}))
    return max(DEVIATION_FLOOR, DEVIATION_FACTOR * losses)


def straight(folder: Path, devices: int, told: dict[str, str]) -> Trajectory:
    ended = Job(folder, SCRIPT).run(devices, **told)
    assert ended.code == 0, ended.err
    return trajectory(ended)


@dataclass(frozen=True)
class Measured:
    """One configuration: straight on 4 and on 2 devices, and the job stopped after step 20."""

    told: dict[str, str]
    four: Trajectory
    two: Trajectory
    stopped: Path
    first: Ended


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Measured]:
    return {}


def measure(cache: dict[tuple[str, int], Measured], key: tuple[str, int], root: Path) -> Measured:
    """The straight runs of a configuration, made once for all tests."""
    if key not in cache:
        folder = root / f"{key[0]}-{key[1]}"
        told = {"NORMALIZATION": key[0], "SEED": str(key[1])}
        job = Job(folder / "reshaped", SCRIPT)
        first = job.run(4, STOP_AT=str(STOPS[0]), **told)
        assert first.code == EXIT_SAVED, first.err
        cache[key] = Measured(
            told,
            straight(folder / "four", 4, told),
            straight(folder / "two", 2, told),
            job.folder,
            first,
        )
    return cache[key]


@pytest.mark.parametrize("key", RUNS, ids=lambda key: f"{key[0]}-{key[1]}")
def test_reshaping_4_2_4_keeps_the_trajectory(
    measured: dict[tuple[str, int], Measured],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    key: tuple[str, int],
) -> None:
    known = measure(measured, key, tmp_path_factory.getbasetemp())
    shutil.copytree(known.stopped, tmp_path / "job")
    job = Job(tmp_path / "job", SCRIPT, generation=1)
    second = job.run(2, STOP_AT=str(STOPS[1]), **known.told)
    assert second.code == EXIT_SAVED, second.err
    third = job.run(4, **known.told)
    assert third.code == 0, third.err
    reshaped = trajectory(known.first, second, third)
    assert sorted(reshaped.losses) == list(range(1, STEPS + 1)), "no step lost or repeated"
    assert sorted(reshaped.epochs) == [0, 1, 2]
    first, last = known.four.losses[1], known.four.losses[STEPS]
    assert last < LEARNT_RATIO * first, "the model learns, so that an error would show"
    found, limit = deviation(reshaped, known.four), allowed(known.four, known.two)
    print(f"{key}: deviation {found:.2g}, allowed {limit:.2g}")
    assert found <= limit


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_leaves_the_trajectory(
    measured: dict[tuple[str, int], Measured],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    bug: str,
) -> None:
    known = measure(measured, RUNS[0], tmp_path_factory.getbasetemp())
    shutil.copytree(known.stopped, tmp_path / "job")
    job = Job(tmp_path / "job", SCRIPT, generation=1, launcher=(str(PLANTED), bug))
    second = job.run(2, STOP_AT="30", **known.told)
    assert second.code == EXIT_SAVED, second.err
    found = deviation(trajectory(known.first, second), known.four)
    print(f"{bug}: deviation {found:.2g}, allowed {allowed(known.four, known.two):.2g}")
    assert found > allowed(known.four, known.two)
