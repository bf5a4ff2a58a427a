"""Saves that go wrong, are withdrawn, are killed or are fenced; lengths that a record sets."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from reshape_sidecar import checkpoints, takeover
from reshape_sidecar.contract import HookPhase
from reshape_sidecar.wire import EXIT_SAVED
from tests.support.hook_bed import Ended, Job

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

QUICK = Path(__file__).parent / "scripts" / "quick.py"
STEPS_PER_EPOCH = 5


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "job", QUICK)


def steps(*runs: Ended) -> list[int]:
    return [int(line.split()[1]) for run in runs for line in run.lines("STEP")]


def test_a_torn_newest_checkpoint_falls_back_to_the_one_before(job: Job) -> None:
    first, second = job.run(STOP_AT="3"), job.run(STOP_AT="4")
    assert (first.code, second.code) == (EXIT_SAVED, EXIT_SAVED), second.err
    state = job.newest().path / "arrays.bin"
    state.write_bytes(state.read_bytes()[:-1])
    assert job.newest().manifest.step == 3
    third = job.run()
    assert third.code == 0, third.err
    assert steps(first, second, third) == [*range(1, 8), *range(4, 16)]


def test_a_withdrawn_request_is_forgotten(job: Job) -> None:
    with job.started(STEP_S="0.05") as process:
        process.until_line("STEP 2")
        (job.folder / "keep-running").touch()
        process.signal(signal.SIGTERM)
        ended = process.wait()
    assert ended.code == 0, ended.err
    assert steps(ended) == [*range(1, 16)]


def test_a_request_from_outside_is_answered_at_the_next_step_boundary(job: Job) -> None:
    with job.started(STEP_S="0.2") as process:
        process.until_line("STEP 3")
        process.signal(signal.SIGTERM)
        first = process.wait()
    assert first.code == EXIT_SAVED, first.err
    saved = job.newest().manifest.step
    assert steps(first) == [*range(1, saved + 1)]
    assert first.reports[-1].phase is HookPhase.SAVED
    second = job.run()
    assert second.code == 0, second.err
    assert steps(first, second) == [*range(1, 16)]


def test_a_request_before_the_first_step_ends_the_process_as_the_system_would(job: Job) -> None:
    with job.started() as process:
        process.until(lambda: process.reports, "the first report")
        process.signal(signal.SIGTERM)
        ended = process.wait()
    assert ended.code == -signal.SIGTERM
    assert steps(ended) == []
    assert "reshape: a stop was requested, but no `fit`" in ended.err


def test_a_kill_during_saves_leaves_a_checkpoint_to_go_on_from(job: Job) -> None:
    """The second file of the second save never gets to the disk: the process is killed there."""
    job.script = job.folder.parent / "script.py"
    job.script.write_text(
        "import os, signal\n"
        "real, calls = os.fsync, [0]\n"
        "def fsync(descriptor):\n"
        "    name = os.readlink(f'/proc/self/fd/{descriptor}')\n"
        "    calls[0] += '/.tmp-a' in name\n"
        "    if calls[0] and calls[0] == int(os.environ.get('KILL_AT', '0')):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    real(descriptor)\n"
        "os.fsync = fsync\n" + QUICK.read_text()
    )
    first = job.run(STOP_AT="3")
    assert first.code == EXIT_SAVED, first.err
    killed = job.run(STOP_AT="4", KILL_AT="2")
    assert killed.code == -signal.SIGKILL, killed.err
    left = [path.name for path in job.checkpoints.iterdir() if path.name.startswith(".tmp")]
    assert len(left) == 1, "it was killed while it wrote"
    assert job.newest().manifest.step == 3
    last = job.run()
    assert last.code == 0, last.err
    assert steps(first, killed, last) == [*range(1, 8), *range(4, 16)]
    assert not [path for path in job.checkpoints.iterdir() if path.name.startswith(".tmp")]


def test_a_request_while_another_save_runs_is_answered_by_the_next_one(job: Job) -> None:
    """The signal arrives between two files of a periodic save."""
    job.script = job.folder.parent / "script.py"
    job.script.write_text(
        "import os, signal\n"
        "real, asked = os.fsync, []\n"
        "def fsync(descriptor):\n"
        "    if not asked and '/.tmp-a' in os.readlink(f'/proc/self/fd/{descriptor}'):\n"
        "        asked.append(os.kill(os.getpid(), signal.SIGTERM))\n"
        "    real(descriptor)\n"
        "os.fsync = fsync\n" + QUICK.read_text()
    )
    first = job.run(STEP_S="0.7", EPOCHS="4")
    assert first.code == EXIT_SAVED, first.err
    saved = job.newest().manifest.step
    assert steps(first) == [*range(1, saved + 1)]
    last = job.run(EPOCHS="4")
    assert last.code == 0, last.err
    assert steps(first, last) == [*range(1, 21)]


def test_a_full_checkpoint_folder_is_named_and_training_goes_on_until_there_is_space(
    job: Job,
) -> None:
    ended = job.run(DISK_FULL="1", STOP_AT="3", STEP_S="0.8", EPOCHS="6")
    assert ended.code == EXIT_SAVED, ended.err
    assert "reshape: checkpoint of step 3" in ended.err
    assert str(job.checkpoints) in ended.err
    saved = job.newest().manifest.step
    assert saved >= 12
    assert steps(ended) == [*range(1, saved + 1)]
    last = job.run(EPOCHS="6")
    assert steps(ended, last) == [*range(1, 31)]


def test_an_old_copy_stops_when_a_newer_attempt_has_claimed_the_folder(job: Job) -> None:
    with job.started(STEP_S="0.1", EPOCHS="100") as process:
        process.until_line("STEP 2")
        checkpoints.claim(job.checkpoints, 2)
        process.signal(signal.SIGTERM)
        ended = process.wait()
    assert ended.code == 1
    assert "claimed by attempt 2" in ended.err
    assert checkpoints.newest(job.checkpoints) is None


def test_an_old_copy_stops_when_another_job_has_taken_the_folder_over(job: Job) -> None:
    with job.started(STEP_S="0.1", EPOCHS="100", RESHAPE_JOB="old") as process:
        process.until_line("STEP 2")
        takeover.take_over(job.checkpoints, "new")
        process.signal(signal.SIGTERM)
        ended = process.wait()
    assert ended.code == 1
    assert "claimed by job new" in ended.err
    assert checkpoints.newest(job.checkpoints) is None


def test_an_attempt_below_the_claim_does_not_train(job: Job) -> None:
    checkpoints.claim(job.checkpoints, 2)
    ended = job.run()
    assert ended.code == 1
    assert "claimed by attempt 2" in ended.err
    assert steps(ended) == []


def test_periodic_saves_bound_what_a_kill_can_lose(job: Job) -> None:
    with job.started(STEP_S="0.1", EPOCHS="1000") as process:
        process.until(
            lambda: checkpoints.newest(job.checkpoints) is not None, "the first periodic save"
        )
        process.signal(signal.SIGKILL)
        process.wait()
    saved = job.newest().manifest.step
    ended = job.run(EPOCHS=str(saved // STEPS_PER_EPOCH + 1))
    assert ended.code == 0, ended.err
    assert steps(ended)[0] == saved + 1


@pytest.mark.parametrize(
    ("told", "last"), [({"RESHAPE_EPOCHS": "2"}, 10), ({"RESHAPE_STEPS": "7"}, 7)]
)
def test_the_records_length_ends_the_fit(job: Job, told: dict[str, str], last: int) -> None:
    first = job.run(STOP_AT="6", **told)
    second = job.run(**told)
    assert (first.code, second.code) == (EXIT_SAVED, 0), second.err
    assert steps(first, second) == [*range(1, last + 1)]
    assert job.newest().manifest.complete
    assert first.reports[-1].progress.total_steps == last


@pytest.mark.parametrize("kind", ["arrays", "pipeline", "listed"])
def test_an_unseeded_script_sees_each_sample_once_per_epoch_over_a_restart(
    job: Job, kind: str
) -> None:
    told = {"SEEDED": "0", "INPUT": kind}
    runs = [job.run(1, STOP_AT="7", **told), job.run(1, STOP_AT="1", **told), job.run(1, **told)]
    assert [run.code for run in runs] == [EXIT_SAVED, EXIT_SAVED, 0], runs[-1].err
    seen = [int(word) for run in runs for line in run.lines("SEEN") for word in line.split()[1:]]
    epochs = [seen[:40], seen[40:80], seen[80:]]
    for epoch in epochs:
        assert sorted(epoch) == list(range(40))
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0], "each epoch has its own order"


def test_two_jobs_of_an_unseeded_script_shuffle_differently(tmp_path: Path) -> None:
    told = {"SEEDED": "0", "EPOCHS": "1"}
    first = Job(tmp_path / "one", QUICK).run(1, **told)
    second = Job(tmp_path / "two", QUICK).run(1, **told)
    assert first.lines("SEEN") != second.lines("SEEN")


def test_a_paced_step_lasts_as_long_as_the_device_truth_says(job: Job) -> None:
    truth = job.folder.parent / "truth.json"
    truth.write_text('{"seconds_per_step": {"tiny": {"2": 0.3}}, "factors": {"job-1": 0.5}}')
    began = time.monotonic()
    ended = job.run(RESHAPE_DEVICE_TRUTH=str(truth), RESHAPE_JOB_TYPE="tiny", STEP_S="0")
    took = time.monotonic() - began
    assert ended.code == 0, ended.err
    assert took > 14 * 0.15
    # Never faster than the truth; slower only if the machine is, and then those steps are late.
    last = ended.reports[-1].progress
    assert last.seconds_per_step is not None
    assert last.seconds_per_step > 0.14
    assert last.late_steps > 0 or last.seconds_per_step < 0.18
