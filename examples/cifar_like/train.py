"""ResNet-8 on generated CIFAR-like images: a plain Keras script, nothing of Reshape in it.

    python train.py --epochs 5 --batch 64 --samples 4096

Its normalisation takes statistics over the whole global batch (``synchronized=True``) or over
groups of channels (``--normalization group``), so the number of devices does not change what it
computes, but for rounding.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

CLASSES = 10


def pictures(samples: int, seed: int, size: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Images of ``CLASSES`` fixed colour patterns, flipped and covered with noise."""
    patterns = np.random.default_rng(4321).normal(size=(CLASSES, 4, 4, 3)).astype("float32")
    patterns = patterns.repeat(size // 4, axis=1).repeat(size // 4, axis=2)
    random = np.random.default_rng(seed)
    labels = random.integers(CLASSES, size=samples)
    images = patterns[labels]
    flipped = random.random(samples) < 0.5
    images[flipped] = images[flipped, :, ::-1]
    return images + random.normal(size=images.shape).astype("float32"), labels


def normalized(x: keras.KerasTensor, kind: str) -> keras.KerasTensor:
    """Normalise without a word about how the batch is split over devices."""
    if kind == "group":
        return keras.layers.GroupNormalization(groups=4)(x)
    return keras.layers.BatchNormalization(synchronized=True)(x)


def block(x: keras.KerasTensor, width: int, strides: int, kind: str) -> keras.KerasTensor:
    """Two convolutions around which the input is carried."""
    carried = x
    x = keras.layers.Conv2D(width, 3, strides, padding="same", use_bias=False)(x)
    x = keras.activations.relu(normalized(x, kind))
    x = keras.layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
    x = normalized(x, kind)
    if strides > 1:
        carried = keras.layers.Conv2D(width, 1, strides, use_bias=False)(carried)
    return keras.activations.relu(x + carried)


def resnet8(size: int = 32, width: int = 8, kind: str = "synchronized") -> keras.Model:
    """Seven convolutions in three blocks, and a dense layer."""
    inputs = keras.layers.Input((size, size, 3))
    x = keras.layers.Conv2D(width, 3, padding="same", use_bias=False)(inputs)
    x = keras.activations.relu(normalized(x, kind))
    for number in range(3):
        x = block(x, width << number, 1 if number == 0 else 2, kind)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(CLASSES)(x), name="resnet8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="global batch, split over devices")
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--normalization", choices=("synchronized", "group"), default="group")
    options = parser.parse_args()

    keras.utils.set_random_seed(options.seed)
    images, labels = pictures(options.samples, options.seed)
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    data = data.shuffle(options.samples).batch(options.batch, drop_remainder=True)
    strategy = tf.distribute.MirroredStrategy()
    print(f"devices: {strategy.num_replicas_in_sync}", flush=True)
    steps = options.epochs * (options.samples // options.batch)
    with strategy.scope():
        model = resnet8(kind=options.normalization)
        model.compile(
            optimizer=keras.optimizers.SGD(
                keras.optimizers.schedules.CosineDecay(0.1, steps), momentum=0.9
            ),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    history = model.fit(data, epochs=options.epochs, verbose=2)
    print(f"loss {history.history['loss'][-1]:.6f}", flush=True)


if __name__ == "__main__":
    main()
