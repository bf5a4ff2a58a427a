"""Scripts that stop, end or train in ways of their own: nothing is lost, or said to be over."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from reshape_sidecar.contract import HookPhase
from reshape_sidecar.wire import EXIT_SAVED
from tests.support.hook_bed import Job, plain

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

SCRIPTS = Path(__file__).parent / "scripts"
QUICK, PLANTED = SCRIPTS / "quick.py", SCRIPTS / "planted.py"
TRAIN = f"import runpy; runpy.run_path({str(QUICK)!r})\n"


def job(tmp_path: Path, text: str) -> Job:
    script = tmp_path / "script.py"
    script.write_text(text)
    return Job(tmp_path / "job", script)


def test_a_handler_of_the_scripts_own_that_exits_does_not_complete_the_job(tmp_path: Path) -> None:
    handler = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    leaving = job(tmp_path, handler + TRAIN)
    with leaving.started(STEP_S="0.6") as process:
        process.until(lambda: (leaving.folder / "checkpoints").is_dir(), "the folder")
        process.until(lambda: any(leaving.checkpoints.glob("step-*")), "a save")
        process.until_another_line("STEP")  # it sleeps: TensorFlow drops no exit now
        process.signal(signal.SIGTERM)
        ended = process.wait()
    assert ended.code == 0, ended.err
    assert not leaving.newest().manifest.complete, ended.err
    assert all(report.phase is not HookPhase.FINISHED for report in ended.reports)
    saved = leaving.newest().manifest.step
    again = leaving.run()
    assert again.lines("STEP")[0] == f"STEP {saved + 1}"
    assert leaving.newest().manifest.complete


def test_training_in_a_process_that_the_script_forks_goes_on(tmp_path: Path) -> None:
    forking = job(
        tmp_path,
        "import multiprocessing, sys\n"
        f"def train():\n    {TRAIN}"
        "child = multiprocessing.get_context('fork').Process(target=train)\n"
        "child.start()\nchild.join()\nsys.exit(child.exitcode)\n",
    )
    forking.launcher = (str(PLANTED), "found_late")
    first = forking.run(STOP_AT="4")
    assert first.code == EXIT_SAVED, first.err
    assert HookPhase.SAVED in [report.phase for report in first.reports]
    second = forking.run()
    assert second.code == 0, second.err
    assert second.lines("STEP")[0] == "STEP 5"


def test_a_thread_that_trains_on_after_the_script_completes_nothing(tmp_path: Path) -> None:
    threaded = job(
        tmp_path,
        f"import threading, time\ndef train():\n    {TRAIN}"
        "threading.Thread(target=train).start()\n"
        "import os, glob\n"
        "while not glob.glob(os.environ['RESHAPE_CHECKPOINTS'] + '/step-*'):\n"
        "    time.sleep(0.05)\n",
    )
    ended = threaded.run(STEP_S="0.6", EPOCHS="4")
    assert ended.code == 0, ended.err
    steps = [report.progress.step for report in ended.reports if report.phase == "finished"]
    assert steps in ([], [20])


def test_lines_in_a_file_that_is_open_are_not_lost(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    noting = job(
        tmp_path,
        f"import builtins\nnotes = open({str(notes)!r}, 'a')\nshow = builtins.print\n"
        "def both(*words, **more):\n    show(*words, **more)\n    notes.write(words[0] + '\\n')\n"
        f"builtins.print = both\n{TRAIN}",
    )
    first = noting.run(STOP_AT="4")
    assert first.code == EXIT_SAVED, first.err
    assert notes.read_text().split() == first.out.split()


def test_steps_of_train_on_batch_after_a_fit_are_told_lost_and_done_once_more(
    tmp_path: Path,
) -> None:
    after = Job(tmp_path / "job", SCRIPTS / "afterwards.py")
    first = after.run(STOP_AT="4")
    assert first.code == EXIT_SAVED, first.err
    assert "steps of `train_on_batch` since the last one (4) are not saved" in first.err
    assert after.newest().manifest.step == 10, "the end of the fit, before them"
    assert (first.reports[-1].phase, first.reports[-1].progress.step) == (HookPhase.SAVED, 14)
    second, third = after.run(STOP_AT="6"), after.run()
    assert third.code == 0, third.err
    wanted = plain(SCRIPTS / "afterwards.py").lines("STEP")
    for ended, steps in ((first, 4), (second, 6), (third, 10)):
        assert ended.lines("STEP") == wanted[:steps]
    assert after.newest().manifest.complete


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "keras",
            "but Keras 3.9.9 on jax was imported: after a reshape "
            "training starts from the beginning. Set KERAS_B",
        ),
        (
            "tf_keras",
            "but tf_keras (Keras 2) was imported: after a reshape "
            "training starts from the beginning. Set TF_US",
        ),
    ],
)
def test_a_keras_whose_fit_is_not_saved_is_named_once(tmp_path: Path, name: str, line: str) -> None:
    stand_in = tmp_path / name
    stand_in.mkdir()
    (stand_in / "__init__.py").write_text("__version__ = '3.9.9'\nfrom . import backend\n")
    (stand_in / "backend.py").write_text("def backend():\n    return 'jax'\n")
    ended = job(tmp_path, f"import {name}\nimport {name}\n").run()
    assert ended.code == 0, ended.err
    assert ended.err.count(line) == 1
    assert len(ended.err.splitlines()) == 1


def test_a_script_that_finds_out_itself_how_far_it_is_trains_no_epoch_too_many(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log.csv"
    text = QUICK.read_text().replace("EPOCHS, verbose", "9, initial_epoch=done, verbose")
    text = text.replace(
        "[Steps()]", f"[keras.callbacks.CSVLogger({str(log)!r}, append=True), Steps()]"
    )
    whole = job(
        tmp_path,
        f"import os\nfound = os.path.exists({str(log)!r})\n"
        f"done = len(open({str(log)!r}).readlines()) - 1 if found else 0\n{text}",
    )
    first = whole.run(STOP_AT="12", RESHAPE_EPOCHS="4")
    assert first.code == EXIT_SAVED, first.err
    second = whole.run(RESHAPE_EPOCHS="4")
    assert second.code == 0, second.err
    steps = [line for ended in (first, second) for line in ended.lines("STEP")]
    assert steps == [f"STEP {step}" for step in range(1, 21)]
    assert len(log.read_text().splitlines()) == 1 + 4


@pytest.mark.parametrize(
    ("kind", "one"),
    [
        ("OwnedIterator", "iter(data)"),
        (
            "OwnedMultiDeviceIterator",
            "iter(tf.distribute.MirroredStrategy().experimental_distribute_dataset(data))"
            "._iterators[0]._iterator",
        ),
    ],
)
def test_the_end_of_a_process_waits_for_no_iterator(tmp_path: Path, kind: str, one: str) -> None:
    """One that is destroyed may have its process wait for up to a minute."""
    iterating = job(
        tmp_path,
        "import os\n"
        "import tensorflow as tf\n"
        "class Told:\n"
        "    def __del__(self, write=os.write):\n        write(1, b'destroyed now\\n')\n"
        "data = tf.data.Dataset.range(100).batch(10)\n"
        f"one = {one}\n"
        "one.told, one.itself = Told(), one\n"
        "print('is', type(one).__name__, flush=True)\n",
    )
    hooked = iterating.run()
    assert hooked.code == 0, hooked.err
    assert "Traceback" not in hooked.err
    assert (hooked.lines("is"), hooked.lines("destroyed")) == ([f"is {kind}"], [])
    assert plain(iterating.script).lines("destroyed"), "the end of Python destroys it otherwise"
