"""Prints the world of a script, item by item, before and after its imports.

A start by the zygote and a cold one must print the same.
"""

import sys

BEFORE = sorted(sys.modules)

import atexit  # noqa: E402
import json  # noqa: E402
import logging  # noqa: E402
import multiprocessing  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
from typing import Any  # noqa: E402

from world_items import entries, of_process, open_files  # noqa: E402


class Sample:
    """Something to pickle."""


def double(number: int) -> tuple[int, str]:
    return number * 2, type(Sample()).__module__


def in_children() -> dict[str, Any]:
    """What a function of the script gives in children of each kind."""
    found: dict[str, Any] = {}
    for kind in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(kind).Pool(1) as pool:
            found[kind] = pool.map(double, [21])
    return found


def main() -> None:
    if "logging" in sys.argv[1:]:
        logging.basicConfig()
    print("WORLD before " + json.dumps({"modules": BEFORE, **of_process()}))
    random.seed(5)
    before = set(open_files().items())
    import numpy as np

    np.random.seed(5)
    import tensorflow as tf
    from tensorflow import keras

    drawn = [random.random(), float(np.random.rand())]
    print("WORLD imports " + json.dumps({"modules": sorted(sys.modules), **of_process()}))
    model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dropout(0.5)])
    model.compile("adam", "mse")
    model.fit(np.zeros((8, 4)), np.zeros((8, 3)), verbose=0)
    after = {
        "drawn": drawn,
        "drawn later": [random.random(), float(np.random.rand())],
        "variables": [one.path for one in model.variables],
        "layers": [one.name for one in model.layers],
        "devices": [one.name for one in tf.config.list_logical_devices()],
        "files": sorted(set(open_files().items()) - before),
        "shown": entries("environ"),
        "hidden": sorted(os.environ),
    }
    print("WORLD trained " + json.dumps(after))
    print("WORLD children " + json.dumps(in_children()))
    if "argument" not in sys.argv[1:]:
        raise SystemExit(4)
    atexit.register(print, "WORLD exit " + json.dumps("the handlers run"))
    sys.exit(3)


if __name__ == "__main__":
    main()
