"""A loop of GradientTape that neither saves nor uses a session: the hook counts what is lost."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from reshape_sidecar.wire import Saves
from tests.support.hook_bed import Job

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

TAPE = """
import time, keras, tensorflow as tf
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)
optimizer.build(model.trainable_variables)
x = tf.ones((8, 4))

@tf.function
def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss

HANDLER
while True:
    train()
    time.sleep(0.02)
    print("STEP", int(optimizer.iterations), flush=True)
"""
OWN = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))"


def test_the_steps_that_a_stop_loses_are_counted_and_reported(tmp_path: Path) -> None:
    script = tmp_path / "tape.py"
    script.write_text(TAPE.replace("HANDLER", ""))
    with Job(tmp_path / "job", script).started() as process:
        process.until_line("STEP 20")
        process.until(lambda: process.reports[-1].progress.step > 0, "a step in a report")
        process.until_another_line("STEP")
        process.signal(signal.SIGTERM)
        ended = process.wait()
    assert ended.code == -signal.SIGTERM, ended.err
    last = ended.reports[-1]
    assert last.saves is Saves.NEVER
    assert last.first_step_s is not None
    done = int(ended.lines("STEP")[-1].split()[1])
    assert abs(last.progress.step - done) <= 1, ended.err
    assert "ends unsaved" in ended.err


def test_a_loop_with_a_handler_of_its_own_may_save_on_sigterm(tmp_path: Path) -> None:
    script = tmp_path / "tape.py"
    script.write_text(TAPE.replace("HANDLER", OWN))
    with Job(tmp_path / "job", script).started() as process:
        process.until_line("STEP")
        process.until(lambda: process.reports[-1].progress.step > 0, "a step in a report")
        process.signal(signal.SIGTERM)
        ended = process.wait()
    assert ended.code == 75, ended.err
    assert ended.reports[-1].saves is Saves.SIGTERM
