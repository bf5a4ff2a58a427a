"""Threads of their own destroy TensorFlow's iterators: training and a stop never wait."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.hook_bed import Ended, Job, plain

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).parent / "scripts" / "iterators.py"
EPOCHS = 60
MORE_THREADS_MAX = 60
"""Two iterators that are being destroyed have so many; a leak would leave 10 for each epoch."""
DESTRUCTION_S = 30.0
NOT_WAITED_S = 15.0
SLOW = f"""
import gc, os, sys, time
import tensorflow as tf
def wait(number):
    if number > 0:
        print('WAITS for the second', flush=True)
        time.sleep({DESTRUCTION_S})
    return number
data = tf.data.Dataset.range(100)
data = data.map(lambda number: tf.numpy_function(wait, [number], tf.int64)).prefetch(1)
one = iter(data)
next(one)
time.sleep(0.5)  # its thread is in the second
began_s = time.monotonic()
"""
"""The iterator of this pipeline is not destroyed before its function returns."""


def destructions(ended: Ended) -> dict[str, int]:
    """How many iterators were destroyed, by class and thread."""
    return {line.split()[1]: int(line.split()[2]) for line in ended.lines("DESTROYED")}


def test_no_iterator_is_destroyed_by_the_thread_that_trains(tmp_path: Path) -> None:
    hooked = Job(tmp_path / "job", SCRIPT).run(EPOCHS=str(EPOCHS))
    assert hooked.code == 0, hooked.err
    assert "Traceback" not in hooked.err
    found = destructions(hooked)
    assert {where.split("-")[1] for where in found} == {"elsewhere"}, found
    assert found["OwnedMultiDeviceIterator-elsewhere"] > EPOCHS
    assert found["OwnedIterator-elsewhere"] > 2 * EPOCHS
    early, late = (int(line.split()[1]) for line in hooked.lines("THREADS"))
    assert late < early + MORE_THREADS_MAX


def test_without_the_hook_the_thread_that_trains_destroys_them_all(tmp_path: Path) -> None:
    """The attribute that the test above reads is the one that TensorFlow uses."""
    found = destructions(plain(SCRIPT, EPOCHS="10"))
    assert found["OwnedIterator-here"] > 10
    assert {where.split("-")[1] for where in found} == {"here"}, found


@pytest.mark.parametrize(
    "let_go",
    [
        "del one",
        "one.itself = one; del one; gc.collect()",
        "child = os.fork()\nif not child:\n    del one\n    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0",
    ],
    ids=["at once", "by a collection of garbage", "by a process that the script forks"],
)
def test_nothing_waits_for_an_iterator_that_is_slow_to_destroy(tmp_path: Path, let_go: str) -> None:
    """Neither the script nor the end of its process, and the exit code is the script's own."""
    script = tmp_path / "script.py"
    written = tmp_path / "written.txt"
    script.write_text(
        f"{SLOW}{let_go}\n"
        f"never_closed = open({str(written)!r}, 'w')\n"
        "never_closed.write('all of it')\n"
        "print('WAITED', time.monotonic() - began_s, flush=True)\n"
        "sys.exit(3)\n"
    )
    job = Job(tmp_path / "job", script)
    with job.started() as process:
        process.until_line("WAITED")
        leaves_s = time.monotonic()
        ended = process.wait()
    assert time.monotonic() - leaves_s < NOT_WAITED_S
    assert ended.code == 3, ended.err
    assert "Traceback" not in ended.err
    assert len(ended.lines("WAITS")) == 1
    assert float(ended.lines("WAITED")[0].split()[1]) < NOT_WAITED_S
    assert written.read_text() == "all of it"
