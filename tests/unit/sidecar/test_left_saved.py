"""A process that was asked to leave and has saved all its steps has left, however it ends: in the
step that it makes for a proof it may fail, and loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reshape_sidecar import checkpoints
from reshape_sidecar.agent import converge, process_exit
from reshape_sidecar.agent.memory import ProcessExit
from reshape_sidecar.init.values import TrainingProcess
from tests.unit.sidecar.test_agent_values import attempt, weights

HEARD, UNHEARD = True, False


def left(
    folder: Path,
    code: int,
    *,
    has_saved: bool = HEARD,
    step: int = 20,
    generation: int = 2,
    complete: bool = False,
    rung: bool = True,
) -> ProcessExit:
    """Return how a process of generation 2 ended that was asked to leave, and made ``step`` steps.

    Its folder has a checkpoint of step 20, which the process of ``generation`` published.
    """
    made, at = attempt(folder)
    (at.logs / "training.log").write_text("Traceback (most recent call last):\nValueError: no\n")
    checkpoints.claim(folder / "ckpt", 1)
    checkpoints.publish(
        folder / "ckpt",
        step=20,
        epoch=0,
        attempt=1,
        generation=generation,
        write=weights,
        complete=complete,
    )
    process = TrainingProcess(2, 5, 5, 1.0, False, code, rung=rung)
    at_end = process_exit.at_end(made, at, 2, step, None)
    return process_exit.inspect(at, process, at_end, memory_ran_out=True, has_saved=has_saved)


@pytest.mark.parametrize("code", [1, 3, 134, 137, 139, 75, 0])
def test_a_process_that_has_saved_and_only_had_to_leave_has_left_however_it_ends(
    tmp_path: Path, code: int
) -> None:
    ended = left(tmp_path, code)
    assert ended.left_saved
    assert (ended.error, ended.exception, ended.refused) == (None, None, False)
    assert converge.lost_steps(ended.step, ended.saved_step) == 0


def test_a_process_that_has_saved_the_end_of_training_has_ended_training(tmp_path: Path) -> None:
    assert left(tmp_path, 139, complete=True).complete


@pytest.mark.parametrize(
    "fields",
    [
        {"has_saved": UNHEARD},
        {"step": 21},
        {"generation": 1},
        {"rung": False},
    ],
)
def test_a_process_that_is_not_known_to_have_saved_all_has_crashed(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    ended = left(tmp_path, 137, complete=True, **fields)
    assert (ended.left_saved, ended.complete) == (False, False)
    assert "out of memory" in (ended.error or "")
