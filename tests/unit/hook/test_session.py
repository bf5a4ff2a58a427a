"""The session API in real processes: a loop saves on request, resumes, and reports progress."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from reshape_sidecar import checkpoints, claims, takeover
from reshape_sidecar.contract import ENV_HASHED_GENERATION, HookPhase
from reshape_sidecar.hook import save_barrier
from reshape_sidecar.wire import EXIT_SAVED
from tests.support.hook_bed import ROOT, Job, plain

LOOP = """
import json, os, signal, sys, time
from reshape_sidecar import session

job = session.start(total_steps=20)
total = 0
if job.checkpoint is not None:
    total = json.loads((job.checkpoint / "total.json").read_text())
print("BEGIN", job.step, total, flush=True)

def save(folder):
    (folder / "total.json").write_text(json.dumps(total))

while job.step < job.total_steps:
    total += job.step
    print("STEP", job.step + 1, flush=True)
    if str(job.step + 1) == os.environ.get("STOP_AT"):
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(float(os.environ.get("STEP_S", "0")))
    job.step_done(save, loss=1 / job.step if job.step else None, epoch=job.step // 5)
job.finished(save)
print("TOTAL", total)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "loop.py"
    path.write_text(LOOP)
    return path


def test_a_loop_saves_when_asked_and_goes_on_where_it_was(script: Path, tmp_path: Path) -> None:
    job = Job(tmp_path / "job", script)
    first = job.run(STOP_AT="7")
    assert first.code == EXIT_SAVED, first.err
    assert job.newest().manifest.step == 7
    assert first.reports[-1].phase is HookPhase.SAVED
    second = job.run()
    assert (second.code, second.lines("TOTAL")) == (0, [f"TOTAL {sum(range(20))}"]), second.err
    steps = [int(line.split()[1]) for run in (first, second) for line in run.lines("STEP")]
    assert steps == [*range(1, 21)]
    assert job.newest().manifest.complete
    last = second.reports[-1]
    assert last.phase is HookPhase.FINISHED
    assert (last.progress.step, last.progress.total_steps) == (20, 20)
    again = job.run()
    assert (again.code, again.lines("STEP")) == (0, [])


def test_a_length_that_the_program_learns_later_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "later.py"
    late = "while job.step < 20:\n    job.total_steps = 20\n    time.sleep(0.06)"
    script.write_text(
        LOOP.replace("total_steps=20", "").replace("while job.step < job.total_steps:", late)
    )
    run = Job(tmp_path / "job", script).run()
    totals = [report.progress.total_steps for report in run.reports]
    assert (totals[0], totals[-1]) == (None, 20), run.err


@pytest.mark.parametrize(
    ("attempt", "hashed_generation", "resumed_at"), [(1, "1", 7), (1, None, 0), (2, "1", 0)]
)
def test_only_the_process_before_in_the_container_has_hashed_for_its_successor(
    script: Path, tmp_path: Path, attempt: int, hashed_generation: str | None, resumed_at: int
) -> None:
    """A byte that changes on the disk since then is not found; in any other checkpoint it is."""
    job = Job(tmp_path / "job", script)
    assert job.run(STOP_AT="7").code == EXIT_SAVED
    state = job.newest().path / "total.json"
    state.write_text("9" * len(state.read_text()))
    job.attempt = attempt
    extra = {} if hashed_generation is None else {ENV_HASHED_GENERATION: hashed_generation}
    again = job.run(**extra)
    assert again.lines("BEGIN")[0].startswith(f"BEGIN {resumed_at} "), again.err


def test_the_records_length_counts_more_than_the_programs(script: Path, tmp_path: Path) -> None:
    ended = Job(tmp_path / "job", script).run(RESHAPE_STEPS="4")
    assert len(ended.lines("STEP")) == 4, ended.err


def test_started_by_hand_the_loop_runs_on_and_keeps_nothing(script: Path, tmp_path: Path) -> None:
    ended = plain(script, PYTHONPATH=str(ROOT / "sidecar"))
    assert (ended.code, ended.lines("TOTAL")) == (0, [f"TOTAL {sum(range(20))}"]), ended.err
    assert {path.name for path in tmp_path.iterdir()} == {"loop.py"}


def test_a_withdrawn_request_is_forgotten(script: Path, tmp_path: Path) -> None:
    job = Job(tmp_path / "job", script)
    job.folder.mkdir()
    (job.folder / "keep-running").touch()
    ended = job.run(STOP_AT="3")
    assert (ended.code, len(ended.lines("STEP"))) == (0, 20)


def test_a_process_that_the_loop_forks_ends_when_it_is_terminated(tmp_path: Path) -> None:
    forks = tmp_path / "forks.py"
    forks.write_text(
        "import multiprocessing, time\n"
        "from reshape_sidecar import session\n"
        "job = session.start()\n"
        "fork = multiprocessing.get_context('fork')\n"
        "up = fork.Event()\n"
        "loader = fork.Process(target=lambda: (up.set(), time.sleep(600)))\n"
        "loader.start()\n"
        "up.wait()\n"
        "loader.terminate()\n"
        "loader.join(60)\n"
        "print('LOADER', loader.exitcode)\n"
        "loader.kill()\n"
    )
    ended = Job(tmp_path / "job", forks).run(PYTHONPATH=str(ROOT / "sidecar"))
    assert ended.lines("LOADER") == [f"LOADER {-signal.SIGTERM}"], ended.err


def test_a_loop_whose_log_and_checkpoints_are_on_a_full_disk_goes_on(tmp_path: Path) -> None:
    full = tmp_path / "full.py"
    full.write_text(
        "import os\n"
        "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)\n"
        "from reshape_sidecar import session\n"
        "def write(folder):\n"
        "    os.write(os.open('/dev/full', os.O_WRONLY), b'state')\n"
        "print('SAVED', session.start().save(write))\n"
    )
    ended = Job(tmp_path / "job", full).run(PYTHONPATH=str(ROOT / "sidecar"))
    assert (ended.code, ended.lines("SAVED")) == (0, ["SAVED False"])


def test_a_loop_in_a_process_that_the_script_forks_is_asked_to_save(tmp_path: Path) -> None:
    forks = tmp_path / "forks.py"
    forks.write_text(
        "import os, signal\n"
        "from reshape_sidecar.hook.stop import Stop\n"
        "stop = Stop(None)\n"
        "stop.install()\n"
        "if os.fork() == 0:\n"
        "    stop.answered_by_loop = True\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('ASKED', stop.requested(), flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    ended = plain(forks, PYTHONPATH=str(ROOT / "sidecar"))
    assert ended.lines("ASKED") == ["ASKED True"], ended.err


def test_an_end_that_cannot_be_saved_is_no_end(tmp_path: Path) -> None:
    full = tmp_path / "full.py"
    full.write_text(
        "import os\n"
        "from reshape_sidecar import session\n"
        "def write(folder):\n"
        "    os.write(os.open('/dev/full', os.O_WRONLY), b'state')\n"
        "session.LAST_SAVE_WAIT_S = 0.0\n"
        "session.start().finished(write)\n"
    )
    ended = Job(tmp_path / "job", full).run(PYTHONPATH=str(ROOT / "sidecar"))
    assert ended.code == 1
    assert "free space there" in ended.err
    assert "the end of training, step 0, is not saved" in ended.err
    assert HookPhase.FINISHED not in {report.phase for report in ended.reports}


def test_the_end_waits_for_room_on_a_full_disk(tmp_path: Path) -> None:
    """Each try from the checkpoint before was a failure: short last steps used all retries up."""
    full = tmp_path / "full.py"
    full.write_text(
        "import os\n"
        "from reshape_sidecar import session\n"
        "tries = []\n"
        "def write(folder):\n"
        "    tries.append(folder)\n"
        "    if len(tries) < 3:\n"
        "        os.write(os.open('/dev/full', os.O_WRONLY), b'state')\n"
        "session.SAVE_AGAIN_AFTER_S = 0.01\n"
        "session.start().finished(write)\n"
        "print('TRIES', len(tries))\n"
    )
    ended = Job(tmp_path / "job", full).run(PYTHONPATH=str(ROOT / "sidecar"))
    assert (ended.code, ended.lines("TRIES")) == (0, ["TRIES 3"]), ended.err
    assert ended.reports[-1].phase is HookPhase.FINISHED


def test_a_fenced_loop_stops(script: Path, tmp_path: Path) -> None:
    job = Job(tmp_path / "job", script)
    with job.started(STEP_S="0.05") as process:
        process.until_line("STEP 2")
        checkpoints.claim(job.checkpoints, 2)
        process.signal(signal.SIGTERM)
        ended = process.wait()
    assert ended.code == 1
    assert "claimed by attempt 2" in ended.err


def test_a_loop_whose_folder_went_to_another_job_stops(script: Path, tmp_path: Path) -> None:
    job = Job(tmp_path / "job", script)
    with job.started(STEP_S="0.05", RESHAPE_JOB="old") as process:
        process.until_line("STEP 2")
        takeover.take_over(job.checkpoints, "new")
        process.signal(signal.SIGTERM)
        ended = process.wait()
    assert ended.code == 1
    assert "claimed by job new; attempt 1 is an old copy of old" in ended.err


def test_a_loop_is_paced(script: Path, tmp_path: Path) -> None:
    truth = tmp_path / "truth.json"
    truth.write_text('{"seconds_per_step": {"loop": {"2": 0.1}}}')
    ended = Job(tmp_path / "job", script).run(
        RESHAPE_DEVICE_TRUTH=str(truth), RESHAPE_JOB_TYPE="loop"
    )
    seconds = ended.reports[-1].progress.seconds_per_step
    assert seconds is not None, ended.err
    assert seconds > 0.09, "never faster than the truth; a slow machine may be slower"


def test_a_loop_has_the_factor_that_the_truth_gives_its_record_by_name(
    script: Path, tmp_path: Path
) -> None:
    truth = tmp_path / "truth.json"
    truth.write_text('{"seconds_per_step": {"loop": {"2": 0.05}}, "factors": {"slow": 2.0}}')
    ended = Job(tmp_path / "job", script).run(
        RESHAPE_DEVICE_TRUTH=str(truth), RESHAPE_JOB_TYPE="loop", RESHAPE_JOB_NAME="slow"
    )
    seconds = ended.reports[-1].progress.seconds_per_step
    assert seconds is not None, ended.err
    assert seconds > 0.09


def test_the_batch_example_knows_nothing_of_reshape_and_goes_on(tmp_path: Path) -> None:
    example = ROOT / "examples" / "batch_job" / "count.py"
    job = Job(tmp_path / "job", example, ("--items", "40"), launcher=())
    with job.started() as process:
        process.until_line("begin at item 0")
        process.signal(signal.SIGTERM)
        first = process.wait()
    assert first.code == EXIT_SAVED, first.err
    second = job.run()
    assert second.code == 0
    assert "begin at item 0" not in second.out or "begin at item 0\n" in first.out
    assert f"sum of 40 items: {sum(range(41))}" in second.out


def test_a_worker_waits_for_the_claim_of_the_first_and_never_writes_one(tmp_path: Path) -> None:
    waiting = threading.Thread(target=save_barrier.wait_for_claim, args=(tmp_path, 2, "job"))
    waiting.start()
    assert claims.read(tmp_path) is None
    checkpoints.claim(tmp_path, 2, "job")
    waiting.join(30)
    assert not waiting.is_alive()
    checkpoints.claim(tmp_path, 3)
    with pytest.raises(claims.StaleAttempt):
        save_barrier.wait_for_claim(tmp_path, 2, "job")


def test_a_worker_takes_the_claim_of_a_former_job_for_none(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 2, "former")
    waiting = threading.Thread(target=save_barrier.wait_for_claim, args=(tmp_path, 1, "job"))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    takeover.take_over(tmp_path, "job")
    checkpoints.claim(tmp_path, 1, "job")
    waiting.join(30)
    assert not waiting.is_alive()


def test_a_worker_whose_own_disk_is_full_trains_on(tmp_path: Path) -> None:
    """What it writes in a save of all workers is to no avail: only the first one's counts."""
    full = tmp_path / "full.py"
    full.write_text(
        "import os\n"
        "from reshape_sidecar import session\n"
        "def write(folder):\n"
        "    print('WRITES', 'once')\n"
        "    os.write(os.open('/dev/full', os.O_WRONLY), b'state')\n"
        "print('SAVED', session.start().save(write))\n"
    )
    job = Job(tmp_path / "job", full)
    job.checkpoints.mkdir(parents=True)
    checkpoints.claim(job.checkpoints, job.attempt)
    ended = job.run(PYTHONPATH=str(ROOT / "sidecar"), RESHAPE_WORKER="1", RESHAPE_WORKERS="2")
    assert (ended.code, ended.lines("SAVED")) == (0, ["SAVED True"]), ended.err
    assert ended.lines("WRITES") == ["WRITES once"]


def test_a_loop_that_keeps_no_micro_batches_is_refused_at_its_first_step(
    script: Path, tmp_path: Path
) -> None:
    ended = Job(tmp_path / "job", script).run(RESHAPE_MICRO_BATCHES="2")
    assert ended.code == 1
    assert "LoopError: the record says `batch: micro`, and this loop divides" in ended.err
    assert len(ended.lines("STEP")) == 1
