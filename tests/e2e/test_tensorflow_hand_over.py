"""Real TensorFlow jobs on a real daemon: killed controllers, killed inits, and no step lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.core.record import LogRecord
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.daemon_bed import ROOT, Bed, eventually, start_of
from tests.support.daemon_bed import bed as make_bed
from tests.support.fed_log import verify

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(600)]

SCRIPT = (ROOT / "examples" / "mnist_like" / "train.py").read_text()
TENSORFLOW_S = 200.0
"""What several starts of TensorFlow may take on a slow machine, beyond the bed's own deadline."""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def submit(bed: Bed, name: str, sizes: list[int], epochs: int, **fields: Any) -> str:
    """A Keras job of ``epochs`` times 40 steps."""
    command = ["python", f"{name}.py", "--epochs", "{epochs}", "--samples", "2560"]
    path = bed.record(
        name,
        SCRIPT,
        command=command,
        framework="keras",
        optional_gpus=sizes,
        steps=None,
        epochs=epochs,
        global_batch=64,
        **fields,
    )
    return str(bed.json("submit", str(path))["id"])


def wait(bed: Bed, key: str, text: str, **wanted: Any) -> Any:
    """Wait until fields of a job have these values; the job."""

    def there() -> Any:
        job = bed.job(key)
        assert job["state"] not in ("failed", "cancelled", "rejected"), job
        return job if all(job[name] == value for name, value in wanted.items()) else None

    return eventually(there, least_s=TENSORFLOW_S, text=text)


def truth(bed: Bed) -> Path:
    """Slow, steady steps, so that there is time to kill something between two of them."""
    path = bed.folder / "truth.json"
    path.write_text('{"seconds_per_step": {"lenet": {"2": 0.12, "4": 0.12}}}')
    return path


def the_log(bed: Bed) -> list[LogRecord]:
    async def read() -> list[LogRecord]:
        store = SqliteStore(bed.home / "store.sqlite")
        await store.open()
        try:
            return [record async for record in store.read(0)]
        finally:
            await store.close()

    return asyncio.run(read())


@pytest.mark.gate
def test_a_controller_killed_during_the_hand_over_loses_no_step_and_its_log_replays(
    bed: Bed,
) -> None:
    bed.up("--device-truth", str(truth(bed)))
    first = submit(bed, "first", [2, 4], 8, job_type="lenet")
    trains = wait(bed, first, "first trains on four", state="running", size=4, stage="training")
    eventually(lambda: bed.job(first)["step"] >= 5, least_s=TENSORFLOW_S)
    init = bed.home / "jobs" / first / "attempt-1" / "run" / "init.json"
    init_before = init.read_text()
    second = submit(bed, "second", [2], 1, job_type="lenet", max_wait_s=1)

    eventually(lambda: bed.job(first)["state"] == "adjusting", text="first is asked to shrink")
    bed.stop(signal.SIGKILL)
    bed.up("--device-truth", str(truth(bed)))

    wait(bed, first, "first trains on two", state="running", size=2, stage="training")
    two = wait(bed, second, "second trains", state="running", size=2, stage="training")
    bed.stop(signal.SIGKILL)
    assert start_of(two["pid"]) is not None, "training outlives the controller"
    bed.up("--device-truth", str(truth(bed)))

    wait(bed, second, "second completes", state="completed")
    ended = wait(bed, first, "first completes", state="completed")
    assert trains["attempt"] == ended["attempt"] == 1
    assert init.read_text() == init_before, "its container is the same all the time"
    assert ended["steps_lost"] == 0
    assert ended["failures"] == 0
    assert (ended["step"], ended["total_steps"]) == (320, 320)
    assert ended["reshape_downs"] == 1
    bed.stop()
    records = the_log(bed)
    assert {record.epoch for record in records} == {1, 2, 3}
    verify(records)


@pytest.mark.gate
@pytest.mark.parametrize("kills", [False, True], ids=["undisturbed", "controller-killed"])
def test_a_job_of_higher_priority_preempts_one_that_holds_all_gpus_and_no_step_is_lost(
    bed: Bed, *, kills: bool
) -> None:
    bed.up("--device-truth", str(truth(bed)))
    # It trains on while the other imports TensorFlow, and must not end by then.
    low = submit(bed, "low", [4], 10, job_type="lenet", min_runtime_s=1)
    wait(bed, low, "low trains on all GPUs", state="running", size=4, stage="training")
    eventually(lambda: bed.job(low)["step"] >= 5, least_s=TENSORFLOW_S)
    high = submit(bed, "high", [4], 1, job_type="lenet", priority=1000)

    if kills:
        eventually(lambda: bed.job(low)["state"] == "adjusting", text="low is asked to leave")
        bed.stop(signal.SIGKILL)
        bed.up("--device-truth", str(truth(bed)))
    wait(bed, high, "high trains", state="running", size=4, stage="training")
    waiting = bed.job(low)
    assert (waiting["state"], waiting["preempted_by"], waiting["preemptions"]) == (
        "submitted",
        high,
        1,
    )
    wait(bed, high, "high completes", state="completed")
    ended = wait(bed, low, "low completes", state="completed")
    assert (ended["steps_lost"], ended["failures"], ended["attempt"]) == (0, 0, 2)
    assert (ended["step"], ended["total_steps"]) == (400, 400)
    bed.stop()
    verify(the_log(bed))


@pytest.mark.gate
def test_a_killed_init_is_recovered_from_the_newest_checkpoint_in_a_new_container(
    bed: Bed,
) -> None:
    bed.up("--device-truth", str(truth(bed)))
    job = submit(bed, "kept", [2, 4], 5, job_type="lenet")
    wait(bed, job, "it trains", state="running", size=4, stage="training")
    saved = eventually(lambda: bed.job(job)["checkpoint_step"], least_s=TENSORFLOW_S)
    before = bed.job(job)
    init_pid = next(
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdigit() and _is_init_of(path, bed.home / "jobs" / job / "attempt-1")
    )
    os.kill(init_pid, signal.SIGKILL)
    wait(bed, job, "it trains in a new container", state="running", attempt=2, stage="training")
    assert start_of(before["pid"]) is None, "nothing of the old container is left"
    ended = wait(bed, job, "it completes", state="completed")
    assert (ended["step"], ended["total_steps"]) == (200, 200)
    assert ended["container_restarts"] == 1
    log = bed.reshape("logs", "kept", "-n", "100000").stdout
    assert "Epoch" in log
    assert saved > 0


def _is_init_of(process: Path, attempt: Path) -> bool:
    try:
        command = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(b"init" in word for word in command) and str(attempt).encode() in command
