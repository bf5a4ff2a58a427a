"""Starts by the zygote: the same as cold ones, only faster; and every failure ends in a cold one.

Each bed is a real init with a real TensorFlow. What init does when a zygote dies, hangs or lies is
in tests/unit/sidecar/test_zygote.py, with a program in its place.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar.init import look
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.values import TrainingProcess
from reshape_sidecar.wire import (
    EXIT_SAVED,
    Mode,
    Observed,
    Phase,
    Shortcut,
    StandbyState,
    StartKind,
)
from tests.support import coordinator_double, sidecar_bed
from tests.support.worlds import assert_same, worlds
from tests.support.zygote_bed import PATIENCE_S, ZygoteBed, zygote_bed

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

WORLD = Path(__file__).parent / "scripts" / "world.py"
TRAJECTORY = WORLD.with_name("trajectory.py")
FORKS = int(os.environ.get("RESHAPE_FORKS", "60"))
TRAIN = """
import os, sys
import numpy as np
import tensorflow as tf
import keras
keras.utils.set_random_seed(1)
with tf.distribute.MirroredStrategy().scope():
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
inputs = np.random.rand(16, 64).astype("float32")
history = model.fit(inputs @ np.ones((64, 256)), np.ones((16, 1)), batch_size=8, verbose=0)
print("LOSS", history.history["loss"][0], len(tf.config.list_logical_devices("CPU")))
"""
WAIT = """
import time
import tensorflow as tf
tf.constant(1) + 1
print("WAITS", flush=True)
time.sleep(600)
"""
LONG = """
import keras, numpy
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(numpy.ones((64, 4)), numpy.ones((64, 1)), epochs=100000, verbose=0)
"""
DRAW = "import numpy, random; print('DRAWN', numpy.random.rand(), random.random())"
SETS = """
import os
print("ABOVE", flush=True)
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"
import tensorflow as tf
print("BELOW", tf.__version__)
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZygoteBed]:
    with zygote_bed(tmp_path_factory.mktemp("zygote")) as made:
        made.script("train.py", TRAIN)
        made.script("wait.py", WAIT)
        made.script("draw.py", DRAW)
        for script in (WORLD, WORLD.with_name("world_items.py")):
            shutil.copy(script, made.code)
        assert made.ready("world.py", "argument").state is StandbyState.READY
        yield made


@pytest.mark.parametrize("words", [("argument",), ("logging",)], ids=" ".join)
def test_a_script_sees_the_world_of_a_cold_start(bed: ZygoteBed, words: tuple[str, ...]) -> None:
    forked, by_zygote = bed.run("world.py", *words, devices=2)
    executed, by_interpreter = bed.run("world.py", *words, devices=2, cold=True)
    assert (forked.how, executed.how) == (StartKind.ZYGOTE, StartKind.COLD)
    assert forked.exit_code == executed.exit_code
    one, other = worlds(by_zygote), worlds(by_interpreter)
    assert len(one["imports"]["modules"]) > 1000
    assert_same(one, other)


def test_forks_train_without_a_hang_and_as_cold_starts_do(
    bed: ZygoteBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests before may have saved the model of another script.
    monkeypatch.setattr(bed, "checkpoints", tmp_path)
    losses: dict[int, set[str]] = {}
    for number in range(FORKS):
        devices = (1, 2, 4)[number % 3]
        training, output = bed.run("train.py", devices=devices)
        assert (training.how, training.exit_code) == (StartKind.ZYGOTE, 0), output
        (line,) = [line for line in output.splitlines() if line.startswith("LOSS")]
        losses.setdefault(devices, set()).add(line)
    for devices, lines in losses.items():
        _, output = bed.run("train.py", devices=devices, cold=True)
        assert lines == {line for line in output.splitlines() if line.startswith("LOSS")}
    zygote = bed.zygote()
    assert len(os.listdir(f"/proc/{zygote.pid}/task")) == 1


def test_a_trajectory_over_a_reshape_is_that_of_cold_starts(
    bed: ZygoteBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for cold in (False, True):
        monkeypatch.setattr(bed, "checkpoints", tmp_path / str(cold))
        lines = []
        for stop, devices in ((8, 2), (14, 1)):
            monkeypatch.setitem(bed.variables, "STOP_AT", str(stop))
            training, output = bed.run(str(TRAJECTORY), devices=devices, cold=cold)
            assert training.exit_code == EXIT_SAVED, output
            assert training.how is (StartKind.COLD if cold else StartKind.ZYGOTE)
            lines += [line for line in output.splitlines() if line.startswith("STEP")]
        found[cold] = lines
    assert len(found[True]) == 14
    assert found[False] == found[True]


def test_two_forks_draw_other_random_numbers(bed: ZygoteBed) -> None:
    runs = [bed.run("draw.py") for _ in range(3)]
    assert [(one.how, one.exit_code) for one, _ in runs] == [(StartKind.ZYGOTE, 0)] * 3
    drawn = [output.split() for _, output in runs]
    assert all(word == "DRAWN" for word, *_ in drawn), drawn
    for generator in (1, 2):
        assert len({words[generator] for words in drawn}) == 3


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("print('HERE')", 0),
        ("import sys; sys.exit(5)", 5),
        ("raise ValueError('HERE')", 1),
        ("import numpy; raise SystemExit", 0),
        ("import keras; raise KeyError('HERE')", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143),
        ("import threading; threading.Timer(0.2, print, ['HERE']).start()", 0),
    ],
)
def test_a_script_ends_as_after_a_cold_start(bed: ZygoteBed, script: str, code: int) -> None:
    bed.script("ends.py", script)
    by_zygote, by_interpreter = bed.run_both(code, "ends.py")
    assert own_lines(by_zygote) == own_lines(by_interpreter)


def test_a_sweep_ends_a_fork_and_spares_the_zygote(bed: ZygoteBed) -> None:
    before = bed.zygote()
    training = waiting(bed)
    assert look.processes_up_to(bed.marker, training.generation, bed.folder.run) == [training.pid]
    bed.sweep(0.0)
    assert not proc.alive(training.pid, training.start_time)
    assert bed.zygote() == before
    assert bed.run("draw.py")[0].how is StartKind.ZYGOTE


def test_a_fork_outlives_the_zygote_and_the_next_start_is_cold(tmp_path: Path) -> None:
    with zygote_bed(tmp_path) as bed:
        bed.script("wait.py", WAIT)
        zygote = bed.ready("wait.py")
        training = waiting(bed)
        os.kill(zygote.pid, signal.SIGKILL)
        bed.until("end of the zygote", lambda: bed.zygote().state is StandbyState.NONE)
        assert proc.alive(training.pid, training.start_time)
        bed.sweep(0.0)
        assert not proc.alive(training.pid, training.start_time)
        bed.script("wait.py", "print('HERE')")
        ended, output = bed.run("wait.py")
        assert ended.how is StartKind.COLD
        assert ended.fallback == "the zygote ended with exit code 137"
        assert "HERE" in output


def test_a_variable_set_above_the_import_costs_one_cold_start_and_is_learned(
    tmp_path: Path,
) -> None:
    with zygote_bed(tmp_path, again_s=0.0, TF_CPP_MIN_LOG_LEVEL="3") as bed:
        bed.script("sets.py", SETS)
        bed.ready("sets.py")
        first, output = bed.run("sets.py")
        assert first.how is StartKind.COLD
        assert first.fallback == "the script sets TF_CPP_MIN_LOG_LEVEL above its imports"
        assert output.count("ABOVE") == 2
        assert output.count("BELOW") == 1
        bed.script("wait.py", WAIT)
        bed.start("wait.py", cold=True)
        bed.until("another zygote", lambda: bed.zygote().state is StandbyState.READY)
        bed.sweep(0.0)
        second, output = bed.run("sets.py")
        assert second.how is StartKind.ZYGOTE
        assert output.count("ABOVE") == 1
        bed.script("sets.py", SETS.replace('"1"', '"2"'))
        third, output = bed.run("sets.py")
        assert third.how is StartKind.COLD
        assert output.count("ABOVE") == 2
        assert bed.zygote().state is StandbyState.OFF


def test_a_module_of_the_script_that_hides_one_of_the_framework_is_imported(
    tmp_path: Path,
) -> None:
    with zygote_bed(tmp_path) as bed:
        bed.script("termcolor.py", "OWN = True\ncolored = cprint = None")
        bed.script("train.py", "import termcolor; print('OWN', termcolor.OWN)")
        bed.ready()
        training, output = bed.run("train.py")
        assert "OWN True" in output
        assert training.how is StartKind.COLD
        assert training.fallback is not None
        assert "termcolor.py hides a module of the framework" in training.fallback
        assert bed.zygote().state is StandbyState.OFF


def test_a_changed_option_of_the_framework_makes_the_next_start_cold(tmp_path: Path) -> None:
    home = tmp_path / "keras"
    home.mkdir()
    options = {"floatx": "float32", "backend": "tensorflow"}
    (home / "keras.json").write_text(json.dumps(options))
    with zygote_bed(tmp_path, KERAS_HOME=str(home)) as bed:
        bed.script("train.py", "import keras; print('FLOATX', keras.config.floatx())")
        bed.ready()
        assert bed.run("train.py")[0].how is StartKind.ZYGOTE
        (home / "keras.json").write_text(json.dumps({**options, "floatx": "float64"}))
        training, output = bed.run("train.py")
        assert training.how is StartKind.COLD
        assert "FLOATX float64" in output
        assert training.fallback is not None
        assert "keras.json has changed" in training.fallback


def test_an_attempt_starts_and_reshapes_by_its_zygote_and_reports_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_double, "PATIENCE_S", PATIENCE_S)
    with sidecar_bed.bed(tmp_path) as bed:
        bed.initialised(
            'import os\nos.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"\n' + LONG, framework="keras"
        )
        for size in (2, 1):
            devices = sidecar_bed.DEVICES[:size]
            bed.coordinator.want(Mode.RUN, *devices)
            report = bed.coordinator.until(
                f"training on {size} devices", functools.partial(trains_on, devices)
            )
            assert (report.times.how, report.times.fallback) == (StartKind.ZYGOTE, None)
            assert report.standby is not None
            assert report.standby.state is StandbyState.READY
            assert report.process_restarts == 2 - size


def test_a_fork_that_fails_before_its_first_step_is_followed_by_a_cold_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_double, "PATIENCE_S", PATIENCE_S)
    with sidecar_bed.bed(tmp_path) as bed:
        bed.initialised("raise ValueError(1)", framework="keras")
        bed.coordinator.want(Mode.RUN, *sidecar_bed.DEVICES[:1])
        first = bed.coordinator.until("a crash", lambda o: o.phase is Phase.CRASHED)
        assert first.times.how is StartKind.ZYGOTE
        generation = bed.coordinator.want(Mode.RUN, *sidecar_bed.DEVICES[:1])
        second = bed.coordinator.until(
            "another crash", lambda o: o.phase is Phase.CRASHED and o.generation == generation
        )
        assert second.times.how is StartKind.COLD
        assert second.times.fallback == "the fork of generation 2 ended before its first step"
        assert (first.exit_code, second.exit_code) == (1, 1)


def test_an_attempt_whose_record_wants_no_zygote_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_double, "PATIENCE_S", PATIENCE_S)
    with sidecar_bed.bed(tmp_path) as bed:
        bed.initialised("print('HERE')", framework="keras", standby=Shortcut.OFF)
        bed.coordinator.want(Mode.RUN, *sidecar_bed.DEVICES[:1])
        report = bed.coordinator.until("the end", lambda o: o.phase is Phase.FINISHED)
        assert (report.times.how, report.times.fallback) == (StartKind.COLD, None)
        assert report.standby is not None
        assert (report.standby.state, report.standby.reason) == (StandbyState.OFF, "switched off")
        assert bed.log("zygote.log") == ""


def own_lines(output: str) -> list[str]:
    """Lines of the script, without those with which TensorFlow greets."""
    words = ("WARNING: All log", "I0000", "E0000", "W0000", "To enable", "20")
    return [line for line in output.splitlines() if not line.startswith(words)]


def trains_on(devices: tuple[str, ...], report: Observed) -> bool:
    return report.phase is Phase.RUNNING and report.devices == devices


def waiting(bed: ZygoteBed) -> TrainingProcess:
    """Start a fork that has used its device and waits."""
    training = bed.start("wait.py")
    assert training.how is StartKind.ZYGOTE
    bed.until("a line", lambda: "WAITS" in bed.log(begin_bytes=training.log_offset_bytes))
    return training
