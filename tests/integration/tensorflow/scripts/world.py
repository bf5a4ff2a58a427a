"""Prints the world of a script, item by item, before and after its imports.

A start by the zygote and a cold one must print the same.
"""

import sys

BEFORE = sorted(sys.modules)

import atexit  # noqa: E402
import ctypes  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import locale  # noqa: E402
import logging  # noqa: E402
import multiprocessing  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import resource  # noqa: E402
import signal  # noqa: E402
import threading  # noqa: E402
import warnings  # noqa: E402
from typing import Any  # noqa: E402

PR_GET_PDEATHSIG = 2
VARYING = ("RESHAPE_GENERATION", "RESHAPE_SPAWNED_AT_S")


def stream(file: Any) -> list[Any]:
    """What a text stream is like."""
    names = ("encoding", "errors", "line_buffering", "write_through", "newlines", "mode", "name")
    raw = type(getattr(file.buffer, "raw", file.buffer)).__name__
    return [*(getattr(file, name) for name in names), file.isatty(), file.seekable(), raw]


def entries(name: str) -> list[str]:
    with open(f"/proc/self/{name}", "rb") as file:
        found = file.read().decode().split("\0")
    return sorted(one for one in found if one and not one.startswith(VARYING))


def open_files() -> dict[str, str]:
    """Number and kind of each open file."""
    found: dict[str, str] = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if not target.endswith("/fd"):
            found[number] = target.partition("[")[0]
    return found


def death_signal() -> int:
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0)
    return int(number.value)


def text(name: str) -> str:
    with open(f"/proc/self/{name}") as file:
        return file.read()


def of_process() -> dict[str, Any]:
    """What the kernel and the interpreter have for this process."""
    limits = (resource.RLIMIT_NOFILE, resource.RLIMIT_STACK, resource.RLIMIT_AS)
    return {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "cwd": os.getcwd(),
        "path": sys.path,
        "flags": list(sys.flags),
        "warnoptions": sys.warnoptions,
        "main": sorted(vars(sys.modules["__main__"])),
        "signals": {s: str(signal.getsignal(s)).partition(" at ")[0] for s in range(1, 32)},
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "streams": [stream(sys.stdin), stream(sys.stdout), stream(sys.stderr)],
        "parent leads": os.getsid(os.getppid()) == os.getppid(),
        "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "death signal": death_signal(),
        "oom": text("oom_score_adj"),
        "nice": os.nice(0),
        "limits": [resource.getrlimit(limit) for limit in limits],
        "environ": {k: v for k, v in os.environ.items() if k not in VARYING},
        "order of environ": [name for name in os.environ if name not in VARYING],
        "/proc environ": entries("environ"),
        "/proc cmdline": text("cmdline").rstrip("\0"),
        "comm": text("comm"),
        "finders": [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path],
        "hooks of paths": len(sys.path_hooks),
        "filters": [str(one) for one in warnings.filters],
        "recursion": sys.getrecursionlimit(),
        "excepthook": sys.excepthook is sys.__excepthook__,
        "collector": [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)],
        "threads": [
            one.name for one in threading.enumerate() if not one.name.startswith("reshape")
        ],
        "locale": locale.setlocale(locale.LC_ALL, None),
        "loggers": {
            name: [getattr(one, "level", None), [str(h) for h in getattr(one, "handlers", ())]]
            for name, one in sorted(logging.root.manager.loggerDict.items())
        },
        "umask": [os.umask(0o22), os.umask(0o22)],
    }


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
