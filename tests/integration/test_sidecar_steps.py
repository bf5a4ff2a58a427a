"""How far a real program came is known after its agent, its init and its own end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_launcher.local import processes
from reshape_sidecar.agent.spec import Folder
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.wire import Mode, Observed, Phase, Processes
from tests.support.sidecar_bed import DEVICES, Bed, bed, eventually

SESSION = """
import os, time
from reshape_sidecar import session
job = session.start()
made = os.open("steps", os.O_WRONLY | os.O_CREAT)
while True:
    time.sleep(0.01)
    job.step_done()
    os.pwrite(made, b"%9d" % job.step, 0)
    if job.step == 1:
        open("ready-" + os.environ["RESHAPE_GENERATION"], "w").close()
"""
"""Reports its steps, and saves nothing."""
OWN_SAVES = """
import os, pathlib, time
REPORTS
folder = pathlib.Path(os.environ["RESHAPE_CHECKPOINTS"])
folder.mkdir(parents=True, exist_ok=True)
saved, step = folder / "step", 0
if saved.exists():
    step = int(saved.read_text())
    SET
open("ready-" + os.environ["RESHAPE_GENERATION"], "w").close()
while True:
    time.sleep(0.01)
    step += 1
    if step % 50 == 0:
        (folder / "step.new").write_text(f"{step}\\n")
        os.replace(folder / "step.new", saved)
    DONE
"""
"""Saves by itself each 50 steps, and says so."""
SILENT = OWN_SAVES.replace("REPORTS", "").replace("SET", "pass").replace("DONE", "pass")
TELLS = (
    OWN_SAVES.replace("REPORTS", "from reshape_sidecar import session\njob = session.start()")
    .replace("SET", "job.step = step")
    .replace("DONE", "job.step_done()")
)
RANKS = """
import os, time
open("ready-" + os.environ["RESHAPE_GENERATION"], "w").close()
if os.environ["RANK"] == "1":
    raise ArithmeticError("the loss is\\nnot a number")
time.sleep(1)
raise ConnectionError("rank 1 is gone")
"""
ALONE = """
import os, time
from reshape_sidecar import session
job = session.start()
open("ready-" + os.environ["RESHAPE_GENERATION"], "w").close()
while True:
    job.step_done()
"""
STEPS_A_S = 100
"""Most steps that the programs make in a second."""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made


def made(job: Bed) -> int:
    """The steps that the program has really made."""
    return int((job.code / "steps").read_text() or 0)


def until_steps(job: Bed, steps: int) -> Observed:
    return job.coordinator.until(f"{steps} steps", lambda o: o.progress.step >= steps)


def test_steps_of_which_the_agent_never_heard_are_counted_after_it_and_training_died(
    job: Bed,
) -> None:
    job.training(SESSION)
    known = until_steps(job, 10).progress.step
    os.kill(job.agent(), signal.SIGSTOP)
    eventually("many steps more", lambda: made(job) > known + 3 * STEPS_A_S)
    training = job.process()
    os.kill(training.pid, signal.SIGKILL)
    job.kill_agent()
    crashed = job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    assert made(job) - 1.5 * STEPS_A_S <= crashed.progress.step <= made(job)
    assert crashed.progress.checkpoint_step is None


def test_the_next_attempt_tells_how_far_the_one_before_came_whose_init_died(job: Bed) -> None:
    job.training(SESSION)
    until_steps(job, 2 * STEPS_A_S)
    job.remove_init()
    end = made(job)
    job.folder = Folder(job.root / "job-1" / "attempt-2")
    job.coordinator.want(Mode.SAVE_AND_STOP, attempt=2)
    job.launch(job.spec(SESSION, attempt=2))
    up = job.coordinator.until(
        "the next attempt",
        lambda o: (o.attempt, o.phase) == (2, Phase.INITIALIZED) and o.generation > 0,
    )
    assert up.reached is not None
    assert up.reached.attempt == 1
    assert end - 1.5 * STEPS_A_S <= up.reached.step <= end
    asyncio.run(job.launcher.remove("job-1", 2, 0.0))
    second = Marker("job-1", 2, str(job.folder.socket))
    assert not processes.living((second,))[second]


def test_a_program_that_saves_by_itself_and_reports_nothing_says_what_it_saved(job: Bed) -> None:
    job.training(SILENT)
    job.coordinator.until("its step", lambda o: (o.progress.checkpoint_step or 0) >= 50)
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:2])
    after = job.started(generation)
    assert after.outcome is not None
    assert (after.outcome.saved_step or 0) % 50 == 0
    assert (after.outcome.lost_steps, after.progress.step) == (0, 0)


def test_the_loss_of_one_that_reports_its_steps_too_is_counted(job: Bed) -> None:
    job.training(TELLS)
    job.coordinator.until("its step", lambda o: (o.progress.checkpoint_step or 0) >= 100)
    os.kill(job.process().pid, signal.SIGKILL)
    crashed = job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    saved = crashed.progress.checkpoint_step
    assert saved is not None
    assert 0 <= crashed.progress.step - saved < 50 + STEPS_A_S
    generation = job.coordinator.want(Mode.RUN, *DEVICES, fresh=True)
    job.started(generation)
    later = until_steps(job, saved + 1)
    assert later.progress.checkpoint_step == saved


def test_what_an_earlier_job_left_in_the_folder_is_no_save_of_this_one(job: Bed) -> None:
    job.checkpoints.mkdir()
    (job.checkpoints / "step").write_text("100000\n")
    job.training(SESSION)
    until_steps(job, 2 * STEPS_A_S + 50)  # the agent has read the file meanwhile
    os.kill(job.process().pid, signal.SIGKILL)
    crashed = job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    assert crashed.progress.checkpoint_step is None
    assert crashed.progress.step >= 2 * STEPS_A_S
    assert {o.progress.checkpoint_step for o in job.coordinator.reports} == {None}


def test_one_that_saves_at_a_sigterm_and_says_so_has_lost_none(job: Bed) -> None:
    leaves = """
import signal, sys
def leave(*_):
    saved.write_text(f"{step}\\n")
    sys.exit(75)
signal.signal(signal.SIGTERM, leave)
"""
    job.training(SILENT.replace("open(", leaves + "open(", 1))
    job.coordinator.until("its step", lambda o: (o.progress.checkpoint_step or 0) >= 50)
    outcome = job.started(job.coordinator.want(Mode.RUN, *DEVICES[:2])).outcome
    assert outcome is not None
    assert (outcome.says_saved, (outcome.saved_step or 0) > 50) == (True, True)


@pytest.mark.parametrize("rank", ["one", "two"])
def test_the_exception_of_the_rank_that_failed_first_is_reported(job: Bed, rank: str) -> None:
    size = {"one": 1, "two": 2}[rank]
    program = RANKS if size == 2 else RANKS.replace('== "1"', '== "0"')
    job.training(program, size=size, framework="pytorch", processes=Processes.PER_GPU)
    crashed = job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    assert (crashed.exception, crashed.exception_message) == (
        "ArithmeticError",
        "the loss is not a number",
    )
    assert not crashed.refused


def test_ranks_that_reshape_refuses_are_named_as_refused(job: Bed) -> None:
    job.training(ALONE, size=2, framework="pytorch", processes=Processes.PER_GPU)
    crashed = job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    assert (crashed.exception, crashed.refused) == ("NotJoined", True)
    assert "trains without the others" in (crashed.exception_message or "")
