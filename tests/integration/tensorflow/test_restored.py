"""State outside of the model: what the data change while they are read is restored bit by bit.

Each script is compared with itself, run straight and without the hook.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_sidecar.wire import EXIT_SAVED
from tests.support.gate import GATE
from tests.support.hook_bed import Job, plain

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

SCRIPTS = Path(__file__).parent / "scripts"
DATA, CALLBACKS, NAMES, PLANTED = (
    SCRIPTS / name for name in ("drawing.py", "process_state.py", "changing.py", "planted.py")
)
GATED = {"noise": "noise:8", "shuffling": "shuffling:8"}
"""Cases of one script, and after which of their steps a process stops."""
OTHERS = {
    "variable": "variable:12",
    "cached": "cached:epoch 1",
    "two_fits": "two_fits:14",
    "whole_epochs": "whole_epochs:epoch 1",
    "in_steps": "in_steps:4",
    "layered": "layered:8",
    "twice": "again:5",
}


@pytest.fixture(scope="module")
def straight() -> dict[str, list[str]]:
    """The lines of each case, all of them in one process without the hook."""
    ended = plain(DATA, *GATED, *({} if GATE else OTHERS))
    assert ended.code == 0, ended.err
    return by_case(ended.lines("STEP"))


def by_case(steps: list[str]) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    for line in steps:
        lines.setdefault(line.split()[1], []).append(line)
    return lines


def steps_of_stopped(job: Job, stops: dict[str, str]) -> dict[str, list[str]]:
    """Run the cases to their end, with a stop in each; return the lines of their steps."""
    ended = []
    for stop in stops.values():
        ended.append(job.run(STOP=stop))
        assert ended[-1].code == EXIT_SAVED, ended[-1].err
        progress = ended[-1].reports[-1].progress
        assert progress.trajectory == "exact", progress.trajectory_reason
    ended.append(job.run())
    assert ended[-1].code == 0, ended[-1].err
    return by_case([line for run in ended for line in run.lines("STEP")])


@pytest.mark.gate
def test_seeds_and_draws_of_the_data_are_restored(
    tmp_path: Path, straight: dict[str, list[str]]
) -> None:
    found = steps_of_stopped(Job(tmp_path / "job", DATA, tuple(GATED)), GATED)
    for case in GATED:
        assert len(found[case]) == 18
        assert found[case] == straight[case]


def test_data_of_other_kinds_are_restored(tmp_path: Path, straight: dict[str, list[str]]) -> None:
    # The others begin with the random numbers that the gated ones leave.
    job = Job(tmp_path / "job", DATA, (*GATED, *OTHERS))
    assert steps_of_stopped(job, OTHERS) == straight


def test_a_seed_that_is_not_restored_gives_other_losses(
    tmp_path: Path, straight: dict[str, list[str]]
) -> None:
    job = Job(tmp_path / "job", DATA, ("noise",))
    job.launcher = (str(PLANTED), "captured_seed_lost")
    found, wanted = steps_of_stopped(job, {"noise": "noise:8"})["noise"], straight["noise"]
    assert found[:8] == wanted[:8]
    assert all(one != other for one, other in zip(found[8:], wanted[8:], strict=True))


@pytest.mark.gate
def test_profilers_and_threads_of_callbacks_begin_again(tmp_path: Path) -> None:
    stops = {"board": "board:8", "profiled": "profiled:7"}
    wanted = plain(CALLBACKS, *stops)
    assert wanted.code == 0, wanted.err
    found = steps_of_stopped(Job(tmp_path / "job", CALLBACKS, tuple(stops)), stops)
    assert [*found["board"], *found["profiled"]] == wanted.lines("STEP")


def test_values_that_data_and_callbacks_change_by_name_are_restored(tmp_path: Path) -> None:
    stops = {
        "globals": "globals:8",
        "enclosed": "enclosed:epoch 1",
        "cached": "cached:15",
        "two_fits": "two_fits:8",
    }
    wanted = plain(NAMES, *stops)
    assert wanted.code == 0, wanted.err
    job = Job(tmp_path / "job", NAMES, tuple(stops))
    assert steps_of_stopped(job, stops) == by_case(wanted.lines("STEP"))
