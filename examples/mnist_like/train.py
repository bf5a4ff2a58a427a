"""A small LeNet on generated MNIST-like digits: a plain Keras script, nothing of Reshape in it.

python train.py --epochs 3 --batch 64 --samples 4096
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

IMAGE_SIZE = 28
CLASSES = 10


def digits(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of ``CLASSES`` fixed smooth patterns, each moved a little and covered with noise."""
    random = np.random.default_rng(1234)
    coarse = random.normal(size=(CLASSES, 7, 7)).astype("float32")
    patterns = coarse.repeat(4, axis=1).repeat(4, axis=2)
    random = np.random.default_rng(seed)
    labels = random.integers(CLASSES, size=samples)
    shifts = random.integers(-3, 4, size=(samples, 2))
    images = np.empty((samples, IMAGE_SIZE, IMAGE_SIZE, 1), "float32")
    for number, (label, shift) in enumerate(zip(labels, shifts, strict=True)):
        images[number, :, :, 0] = np.roll(patterns[label], shift, axis=(0, 1))
    images += random.normal(scale=0.8, size=images.shape).astype("float32")
    return images, labels


def lenet() -> keras.Model:
    """A LeNet-like network, small enough for a few milliseconds per step on a CPU."""
    return keras.Sequential(
        [
            keras.layers.Input((IMAGE_SIZE, IMAGE_SIZE, 1)),
            keras.layers.Conv2D(6, 5, strides=2, activation="relu"),
            keras.layers.Conv2D(16, 5, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(CLASSES),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64, help="global batch, split over devices")
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()

    keras.utils.set_random_seed(options.seed)
    images, labels = digits(options.samples, options.seed)
    strategy = tf.distribute.MirroredStrategy()
    print(f"devices: {strategy.num_replicas_in_sync}", flush=True)
    with strategy.scope():
        model = lenet()
        model.compile(
            optimizer=keras.optimizers.SGD(0.02, momentum=0.9),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    history = model.fit(images, labels, batch_size=options.batch, epochs=options.epochs, verbose=2)
    print(f"loss {history.history['loss'][-1]:.6f}", flush=True)


if __name__ == "__main__":
    main()
