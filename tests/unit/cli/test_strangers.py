"""A store that was put back: what is ahead of it on the disk."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from reshape_controller.cli.exits import CliError
from reshape_controller.cli.home import Home
from reshape_controller.cli.serve.strangers import any_lives
from reshape_controller.core.model import Job, JobId, JobSpec, Stage
from reshape_controller.core.state import State
from reshape_launcher.local import LocalLauncher
from reshape_sidecar import codec
from reshape_sidecar.agent.memory import Memory
from reshape_sidecar.init import files
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.values import InitFile
from reshape_sidecar.wire import Desired, Mode, OnSaveTimeout


def container(home: Home, attempt: int, generation: int) -> None:
    """What a living attempt of the job ``a`` has in its folder; its init is this very process."""
    start = proc.snapshot()[os.getpid()].start_time
    run = home.jobs / "a" / f"attempt-{attempt}" / "run"
    run.mkdir(parents=True)
    init = InitFile(os.getpid(), start, files.boot_id())
    (run / "init.json").write_text(codec.dumps(init))
    desired = Desired(1, "a", attempt, generation, Mode.RUN, (), OnSaveTimeout.REFUSE, 1.0, 1.0)
    (run / "agent.json").write_text(codec.dumps(Memory(desired=desired)))


def knows(attempt: int, generation: int, stage: Stage = Stage.TRAINING) -> State:
    """A log in which the job is so far."""
    state, spec = State(), JobSpec("a", ("x",), (1,))
    state.put_job(
        Job(JobId("a"), spec, 1, 0.0, stage=stage, attempt=attempt, generation=generation)
    )
    return state


@pytest.mark.parametrize(
    "state", [State(), knows(1, 9), knows(2, 4), knows(2, 9, Stage.NONE)],
    ids=["no such job", "an earlier attempt", "an earlier generation", "no container"],
)  # fmt: skip
def test_a_living_container_that_the_log_has_not_come_to_is_refused_by_name(
    tmp_path: Path, state: State
) -> None:
    home = Home(tmp_path)
    container(home, 2, generation=5)
    with pytest.raises(CliError, match=r"ahead of this store.*a \(attempt 2\)") as refused:
        asyncio.run(any_lives(LocalLauncher(home.jobs), home, state))
    assert f"kill -TERM {os.getpid()}" in refused.value.text()


@pytest.mark.parametrize("state", [knows(2, 5), knows(2, 6), knows(3, 6)])
def test_one_that_the_log_knows_is_none(tmp_path: Path, state: State) -> None:
    home = Home(tmp_path)
    container(home, 2, generation=5)
    assert asyncio.run(any_lives(LocalLauncher(home.jobs), home, state))
