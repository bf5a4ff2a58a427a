"""A successor is prepared while its predecessor trains, and goes on exactly as a cold resume.

Real processes: the successor runs the script up to its first step, is released when the process
before it has saved, and its losses are compared to the last bit with those of a cold start from a
copy of the same checkpoint on equal devices.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from reshape_sidecar import checkpoints
from reshape_sidecar.contract import HookPhase
from reshape_sidecar.init import processes
from reshape_sidecar.wire import EXIT_SAVED, PrepareStage
from tests.support.hook_bed import Ended, Job, Successor

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

SCRIPTS = Path(__file__).parent / "scripts"
CASES, ODD, PLANTED = SCRIPTS / "cases.py", SCRIPTS / "successors.py", SCRIPTS / "planted.py"
STEADY = (PrepareStage.READY, PrepareStage.EFFECT_BARRIER, PrepareStage.FAILED)
SHOWN = ("STEP", "EPOCH", "HISTORY", "EPOCHS", "WEIGHTS")
ORDINARY = [
    ("arrays", "11", 2, ""),
    ("pipeline", "10", 4, ""),
    ("unknown_length", "6", 1, ""),
    ("pair", "5", 1, ""),
    ("averaged", "7", 2, ""),
    ("repeated", "2", 1, "a pipeline caches in a file"),
    ("several", "13", 2, "the next one is not prepared"),
]
"""Case, step after which its first process stops, devices, and what the preparation stops at."""


def job(tmp_path: Path, script: Path, case: str, *launcher: str) -> Job:
    files = {
        "CACHE": str(tmp_path / "cache"),
        "LOGGED": str(tmp_path / "log.csv"),
        "LINES_FILE": str(tmp_path / "lines.txt"),
        "EVENTS": str(tmp_path / "events"),
    }
    made = Job(tmp_path / "job", script, (case,), files)
    if launcher:
        made.launcher = launcher
    return made


def cold(whole: Job, devices: int) -> Ended:
    """Resume in a cold start, from a copy of the checkpoint."""
    folder = whole.folder.with_name("cold")
    shutil.copytree(whole.checkpoints, folder / "checkpoints")
    copy = Job(folder, whole.script, whole.arguments, whole.environment, generation=1)
    return copy.run(devices)


def prepared(whole: Job, devices: int, stop: str) -> tuple[Ended, Ended, str]:
    """Stop a first process while a successor is prepared; return a cold resume, the successor's
    output, and what its preparation stopped at."""
    first = whole.run(devices, STOP_AT=stop)
    assert first.code == EXIT_SAVED, first.err
    with whole.standing_by(devices) as successor:
        reason = successor.until(*STEADY).reason
        wanted = cold(whole, devices)
        successor.release()
        got = successor.process.wait()
    assert got.code == wanted.code == 0, got.err
    assert "in vain" not in got.err
    return wanted, got, reason


def same(got: Ended, wanted: Ended) -> bool:
    assert wanted.lines("STEP"), wanted.err
    return all(got.lines(word) == wanted.lines(word) for word in SHOWN)


@pytest.mark.parametrize(("case", "stop", "devices", "reason"), ORDINARY)
def test_a_successor_goes_on_bit_for_bit_as_a_cold_resume(
    tmp_path: Path, case: str, stop: str, devices: int, reason: str
) -> None:
    wanted, got, stopped_at = prepared(job(tmp_path, CASES, case), devices, stop)
    assert reason in stopped_at
    assert bool(reason) == bool(stopped_at), "it is prepared up to its first step"
    assert same(got, wanted)
    assert got.out.count("TRACED") == wanted.out.count("TRACED"), "its step is traced once"
    last = got.reports[-1]
    assert last.phase is HookPhase.FINISHED
    assert last.generation == 2


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("hidden", ""),
        ("scaled", ""),
        ("random", "RandomStandardNormal"),
        ("eager", "eagerly"),
        ("printed", "PrintV2"),
        ("python", "EagerPyFunc"),
        ("loop", "a loop"),
    ],
)
def test_an_odd_step_is_put_back_or_not_run(tmp_path: Path, kind: str, reason: str) -> None:
    wanted, got, stopped_at = prepared(job(tmp_path, ODD, kind), 1, "7")
    assert reason in stopped_at
    assert bool(reason) == bool(stopped_at)
    assert same(got, wanted)
    assert got.out.count("PRINTED") == wanted.out.count("PRINTED")


@pytest.mark.parametrize(
    ("bug", "script", "case", "devices"),
    [
        ("variables_of_the_step_on_zeros_left", ODD, "hidden", 1),
        ("random_step_run", ODD, "random", 1),
        ("stale_trace_used", ODD, "scaled", 1),
        ("step_on_a_real_batch", CASES, "pipeline", 2),
    ],
)
def test_a_planted_bug_in_the_preparation_changes_the_losses(
    tmp_path: Path, bug: str, script: Path, case: str, devices: int
) -> None:
    whole = job(tmp_path, script, case, str(PLANTED), bug)
    wanted, got, _ = prepared(whole, devices, "7")
    assert not same(got, wanted)


def files_below(folder: Path) -> dict[str, bytes]:
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_socket())
    return {str(path): path.read_bytes() for path in found}


def gone(successor: Successor) -> Ended:
    successor.drop()
    return successor.process.wait()


@pytest.mark.parametrize("bug", [None, "claimed_before_the_release"])
def test_a_successor_claims_and_writes_nothing_before_its_release(
    tmp_path: Path, bug: str | None
) -> None:
    whole = job(tmp_path, ODD, "temporary", *([str(PLANTED), bug] if bug else []))
    whole.attempt = 2
    checkpoints.claim(whole.checkpoints, 1, "job-1")
    before = files_below(tmp_path)
    with whole.standing_by(1, TMPDIR=str(tmp_path)) as successor:
        successor.until(*STEADY)
        temporary = list(tmp_path.glob("of-a-successor-*"))
        unchanged = {path: text for path, text in files_below(tmp_path).items() if path in before}
        ended = gone(successor)
    assert (unchanged == before) == (bug is None)
    if bug is None:
        assert len(temporary) == 1, "a new temporary file does not hold it"
        assert files_below(tmp_path) == before, "a dropped one leaves nothing"
        assert (ended.code, ended.out, ended.reports) == (0, "", ())


@pytest.mark.parametrize("bug", [None, "effects_not_held"])
def test_a_script_that_writes_before_its_fit_is_held_there_and_goes_on(
    tmp_path: Path, bug: str | None
) -> None:
    whole = job(tmp_path, ODD, "writes", *([str(PLANTED), bug] if bug else []))
    lines = Path(whole.environment["LINES_FILE"])
    first = whole.run(1, STOP_AT="7")
    assert first.code == EXIT_SAVED, first.err
    with whole.standing_by(1) as successor:
        report = successor.until(*STEADY)
        written = lines.read_text()
        assert (written == "begun\n") == (bug is None), "its own line waits"
        if bug is not None:
            return
        assert report.stage is PrepareStage.EFFECT_BARRIER
        assert str(lines) in report.reason
        wanted = cold(whole, 1)
        successor.release()
        got = successor.process.wait()
    assert lines.read_text() == "begun\n" * 3
    assert same(got, wanted)
    assert got.out.startswith("WRITES"), "what it printed before is shown"


def test_a_summary_writer_holds_a_successor(tmp_path: Path) -> None:
    whole = job(tmp_path, ODD, "summary")
    with whole.standing_by(1) as successor:
        report = successor.until(*STEADY)
        assert report.stage is PrepareStage.EFFECT_BARRIER
        assert "create_file_writer" in report.reason
        assert not Path(whole.environment["EVENTS"]).exists()
        assert gone(successor).code == 0


def test_a_successor_without_a_checkpoint_starts_cold_in_the_same_process(tmp_path: Path) -> None:
    whole = job(tmp_path, CASES, "arrays")
    checkpoints.claim(whole.checkpoints, 1, "job-1")
    with whole.standing_by(1) as successor:
        successor.until(*STEADY)
        pid = successor.process.process.pid
        began = processes.start_time(pid)
        successor.release()
        successor.process.until_line("STEP")
        assert processes.start_time(pid) == began
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        got = successor.process.wait()
    assert b"RESHAPE_GENERATION=1\0" in environment
    assert "in vain: there is no checkpoint" in got.err
    straight = Job(tmp_path / "straight", CASES, ("arrays",), whole.environment)
    checkpoints.claim(straight.checkpoints, 1, "job-1")
    shutil.copy(whole.checkpoints / "claim.json", straight.checkpoints / "claim.json")
    wanted = straight.run(1)
    assert same(got, wanted), "nothing of the preparation is left"


def test_a_script_that_fails_before_its_release_says_why(tmp_path: Path) -> None:
    whole = job(tmp_path, ODD, "raises")
    with whole.standing_by(1) as successor:
        report = successor.until(PrepareStage.FAILED)
        successor.drop()  # as init does at this report
        ended = successor.process.wait()
    assert report.reason == "ValueError: no such data"
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_a_released_successor_shows_its_generation_in_proc(tmp_path: Path) -> None:
    whole = job(tmp_path, CASES, "arrays")
    assert whole.run(1, STOP_AT="11").code == EXIT_SAVED
    with whole.standing_by(1) as successor:
        successor.until(*STEADY)
        pid = successor.process.process.pid

        def generation() -> int | None:
            marked = processes.marked_processes(processes.snapshot())
            return next(entry.generation for entry in marked if entry.proc.pid == pid)

        assert generation() is None, "it is no training process yet"
        successor.release()
        began_s = time.monotonic()
        successor.process.until_line("STEP")
        print(f"released to first step: {time.monotonic() - began_s:.3f} s")
        assert generation() == 2
        os.kill(pid, 0)
