"""An unmodified GradientTape loop on a real daemon: no donor, and a stop by a person is priced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon_bed import Bed, eventually
from tests.support.daemon_bed import bed as make_bed

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

TENSORFLOW_S = 200.0
"""Starts of TensorFlow on a slow machine, beyond the bed's own deadline."""
LOOP = """
import time
import keras
import tensorflow as tf

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)
x = tf.ones((8, 4))
while True:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    time.sleep(0.1)
"""
UNSAVED = "it cannot save its steps, and may_restart is false"


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def submit_loop(bed: Bed, *, may_restart: bool) -> str:
    """Submit the loop without a length; return its id once it has made ten steps on four GPUs."""
    job = bed.submit("loop", LOOP, steps=None, framework="keras", may_restart=may_restart)
    until(bed, job, lambda now: now["size"] == 4 and now["step"] >= 10)
    return job


def until(bed: Bed, key: str, holds: Any) -> Any:
    """Wait until a job is as described; the job."""

    def there() -> Any:
        now = bed.job(key)
        assert now["state"] not in ("failed", "cancelled"), now
        return now if holds(now) else None

    return eventually(there, least_s=TENSORFLOW_S, text=lambda: str(bed.job(key)))


def shown(bed: Bed, *words: str) -> str:
    """Output of a command, as one line."""
    return " ".join(bed.reshape(*words).stdout.split())


def test_a_loop_is_no_donor_and_a_pause_and_a_drain_name_and_count_its_loss(bed: Bed) -> None:
    bed.up(program="tests.support.impatient_daemon")
    job = submit_loop(bed, may_restart=False)
    waits = bed.submit("newcomer", steps=20, optional_gpus=[2], max_wait_s=1)
    eventually(lambda: "loop is not reshaped: " + UNSAVED in shown(bed, "explain", waits))
    here = bed.job(job)
    assert (here["size"], here["program"], here["fixed_because"]) == (4, "cannot save", UNSAVED)
    assert here["reshape_downs"] == 0
    assert here["unsaved_steps"] >= 10

    bed.reshape("pause", job)
    asked = until(bed, job, lambda now: now["deadline"] == "unsaved_wait")
    assert asked["reason"].startswith("stops in 5 s (paused by ")
    assert "steps will be lost" in asked["reason"]
    paused = until(bed, job, lambda now: now["state"] == "halted")
    assert paused["steps_lost"] >= asked["step"]
    assert f"lost {paused['steps_lost']} steps" in shown(bed, "describe", job)
    bed.reaches(waits, "completed")

    bed.reshape("resume", job)
    until(bed, job, lambda now: now["stage"] == "training" and now["step"] != paused["step"])
    bed.reshape("drain", "local")
    asked = until(bed, job, lambda now: now["deadline"] == "unsaved_wait")
    assert asked["reason"].startswith("stops in 5 s (local is drained): it cannot save, so ")
    drained = until(bed, job, lambda now: now["state"] == "submitted" and not now["gpus"])
    assert drained["steps_lost"] > paused["steps_lost"]
    assert drained["failures"] == 0


def test_a_loop_that_may_restart_is_a_donor_and_its_loss_is_priced_and_counted(bed: Bed) -> None:
    bed.up("--preset", "paper")
    job = submit_loop(bed, may_restart=True)
    newcomer = bed.submit("newcomer", steps=20, optional_gpus=[2], max_wait_s=1)
    bed.reaches(newcomer, "completed")
    after = until(bed, job, lambda now: now["reshape_downs"] == 1 and now["step"] > 0)
    assert after["program"] == "may restart"
    assert after["steps_lost"] >= 10
    assert "it cannot save, so" in shown(bed, "describe", job)
