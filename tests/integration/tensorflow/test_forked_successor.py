"""A successor that the zygote forks: prepared, held and exact as one that starts cold.

Each bed is a real init with a real TensorFlow. ``test_successor.py`` has what a successor does
however it starts, ``test_zygote.py`` that a start by the zygote trains as a cold one.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar import checkpoints
from reshape_sidecar.init import look
from reshape_sidecar.init.values import Drop, TrainingProcess
from reshape_sidecar.wire import EXIT_SAVED, PrepareStage, StandbyState, StartKind
from tests.support.zygote_bed import ZygoteBed, zygote_bed

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

CASES = Path(__file__).parent / "scripts" / "cases.py"
SHOWN = ("STEP", "EPOCH", "HISTORY", "EPOCHS", "WEIGHTS")
EFFECTS = (
    "tf.io.write_file(path, 'x')",
    "tf.io.gfile.GFile(path, 'w').write('x')",
    "tf.io.gfile.makedirs(path)",
    "tf.io.gfile.copy(__file__, path)",
    "tf.summary.create_file_writer(path)",
    "tf.train.Checkpoint(one=tf.Variable(1)).write(path)",
    "tf.raw_ops.WriteFile(filename=path, contents='x')",
    "tf.io.TFRecordWriter(path)",
    "open(path, 'w')",
)
BY_DEVICES = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = os.environ["RESHAPE_DEVICES"].count("GPU") * "1"
import tensorflow as tf
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZygoteBed]:
    with zygote_bed(tmp_path_factory.mktemp("successor")) as made:
        assert made.ready().state is StandbyState.READY
        yield made


def heap(pid: int) -> str:
    """The begin of a process's heap: that of a fork is its parent's."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith("[heap]"):
            return line.partition("-")[0]
    raise AssertionError(f"{pid} has no heap")


def is_fork(bed: ZygoteBed, pid: int) -> bool:
    return heap(pid) == heap(bed.zygote().pid)


def lines(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.partition(" ")[0] in SHOWN]


def released(bed: ZygoteBed) -> tuple[TrainingProcess, str]:
    """Adopt the successor; return it at its end, and its output."""
    bed.adopt()
    began = bed.status().training
    assert began is not None
    assert began.how is StartKind.SUCCESSOR
    ended = bed.ended()
    return ended, bed.log(begin_bytes=began.log_offset_bytes)


@pytest.mark.parametrize(("case", "stop", "devices"), [("arrays", 11, 2), ("pipeline", 10, 4)])
def test_a_forked_successor_goes_on_bit_for_bit_as_a_resume(
    bed: ZygoteBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    case: str, stop: int, devices: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(bed, "checkpoints", tmp_path / "checkpoints")
    monkeypatch.setitem(bed.variables, "STOP_AT", str(stop))
    first, output = bed.run(str(CASES), case, devices=devices)
    assert first.exit_code == EXIT_SAVED, output
    monkeypatch.delitem(bed.variables, "STOP_AT")
    successor = bed.prepare(str(CASES), case, devices=devices)
    assert (successor.stage, successor.reason) == (PrepareStage.READY, "")
    assert is_fork(bed, successor.pid)
    shutil.copytree(bed.checkpoints, tmp_path / "copy")
    ended, output = released(bed)
    assert (ended.pid, ended.exit_code, ended.how) == (successor.pid, 0, StartKind.SUCCESSOR)
    monkeypatch.setattr(bed, "checkpoints", tmp_path / "copy")
    resumed, wanted = bed.run(str(CASES), case, devices=devices)
    assert (resumed.how, resumed.exit_code) == (StartKind.ZYGOTE, 0)
    assert lines(output) == lines(wanted)
    assert len(lines(output)) > 5


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_forked_successor_is_held_before_its_first_effect(
    bed: ZygoteBed, tmp_path: Path, effect: str
) -> None:
    path = tmp_path / "effect"
    bed.script("effect.py", f"import tensorflow as tf\npath = {str(path)!r}\n{effect}\n")
    successor = bed.prepare("effect.py")
    assert is_fork(bed, successor.pid)
    assert successor.stage is PrepareStage.EFFECT_BARRIER
    assert list(tmp_path.iterdir()) == []
    bed.ask(Drop(successor.number))
    bed.until("its end", lambda: not Path(f"/proc/{successor.pid}").exists())
    assert list(tmp_path.iterdir()) == []


def test_a_forked_successor_without_a_checkpoint_starts_cold_in_the_same_process(
    bed: ZygoteBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bed, "checkpoints", tmp_path / "checkpoints")
    checkpoints.claim(bed.checkpoints, 1, "job-1")
    successor = bed.prepare(str(CASES), "arrays")
    assert successor.stage is PrepareStage.READY
    assert look.processes_up_to(bed.marker, bed.generation + 1, bed.folder.run) == []
    bed.adopt()
    found = look.processes_up_to(bed.marker, bed.generation, bed.folder.run)
    assert found == [successor.pid]
    ended = bed.ended()
    assert (ended.pid, ended.exit_code) == (successor.pid, 0)
    assert ended.how is StartKind.COLD
    assert ended.fallback == "prepared in vain: there is no checkpoint"


def test_a_successor_outlives_its_zygote_and_the_next_imports_the_framework_itself(
    tmp_path: Path,
) -> None:
    with zygote_bed(tmp_path) as bed:
        zygote = bed.ready()
        first = bed.prepare(str(CASES), "arrays")
        assert is_fork(bed, first.pid)
        os.kill(zygote.pid, signal.SIGKILL)
        bed.until("its end", lambda: bed.zygote().pid == 0)
        assert bed.status().prepared == first
        second = bed.prepare(str(CASES), "arrays")
        assert (second.stage, second.reason) == (PrepareStage.READY, "")
        bed.until("the end of the first", lambda: not Path(f"/proc/{first.pid}").exists())


def test_a_fork_that_needs_another_import_fails_and_says_why(tmp_path: Path) -> None:
    with zygote_bed(tmp_path, TF_CPP_MIN_LOG_LEVEL="1") as bed:
        bed.script("train.py", BY_DEVICES)
        bed.ready()
        assert bed.run("train.py")[0].how is StartKind.ZYGOTE
        successor = bed.prepare("train.py", devices=2)
        assert successor.stage is PrepareStage.FAILED
        assert successor.reason == "the script sets TF_CPP_MIN_LOG_LEVEL above its imports"
        bed.until("its end", lambda: not Path(f"/proc/{successor.pid}").exists())
        bed.adopt()
        assert bed.status().training == bed.ended(), "it is not released"
