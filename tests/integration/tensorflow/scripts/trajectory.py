"""Sixty steps of the example's ResNet-8; prints each step's own loss and each epoch's History."""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "examples" / "cifar_like"))

import keras
import tensorflow as tf
from train import pictures, resnet8

SEED = int(os.environ.get("SEED", "1"))
STOP_AT = int(os.environ.get("STOP_AT", "0"))
SIZE, BATCH, STEPS_PER_EPOCH, STEPS = 16, 32, 25, 60


class Told(keras.callbacks.Callback):
    """Prints losses as a script's own callback sees them, and stops at a step."""

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        tracker = self.model._loss_tracker
        step = self.epoch * STEPS_PER_EPOCH + batch + 1
        print(f"STEP {step} {tracker.total.numpy():.9g} {tracker.count.numpy():.9g}", flush=True)
        if step == STOP_AT:
            os.kill(os.getpid(), signal.SIGTERM)
        if step == STEPS:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        print(f"EPOCH {epoch} {logs['loss']:.9g} {logs['accuracy']:.9g}", flush=True)


keras.utils.set_random_seed(SEED)
data = tf.data.Dataset.from_tensor_slices(pictures(BATCH * STEPS_PER_EPOCH, SEED, SIZE))
data = data.shuffle(BATCH * STEPS_PER_EPOCH).batch(BATCH)
with tf.distribute.MirroredStrategy().scope():
    model = resnet8(SIZE, 4, os.environ.get("NORMALIZATION", "synchronized"))
    schedule = keras.optimizers.schedules.CosineDecay(0.05, 80)
    model.compile(
        keras.optimizers.SGD(schedule, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
model.fit(data, epochs=3, verbose=0, callbacks=[Told()])
