"""Whether a fork of this process, which has imported a framework, is as good as a new process.

Does: looks for threads, for an initialised context, and for devices that the import has opened or
asked for; returns the first reason against a fork. Never: touches a device itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable

DEVICES = "/dev/nvidia"


def tensorflow() -> str | None:
    """Return why a process with Keras on TensorFlow cannot be forked; None if it can."""
    keras = sys.modules["keras"]
    if keras.backend.backend() != "tensorflow":
        return f"Keras uses {keras.backend.backend()}, not TensorFlow"
    module = sys.modules.get("tensorflow.python.eager.context")
    if module is None or not hasattr(module, "_context"):
        return "this TensorFlow does not say whether its devices are initialised"
    context = module._context
    if context is not None and (context._initialized or context._physical_devices is not None):
        return "the import of TensorFlow has initialised its devices"
    return _devices_and_threads(lambda: False)


def pytorch() -> str | None:
    """Return why a process with PyTorch cannot be forked; None if it can.

    CUDA reads ``CUDA_VISIBLE_DEVICES`` at its first call, and works in no fork of that process.
    PyTorch notes such a call for its forks, also one that only counts the GPUs.
    """
    cuda = sys.modules["torch"].cuda
    if not hasattr(cuda, "_is_in_bad_fork") or not hasattr(cuda, "_cached_device_count"):
        return "this PyTorch does not say whether it has called CUDA"
    if cuda.is_initialized():
        return "the import of PyTorch has initialised CUDA"
    if cuda._cached_device_count is not None:
        return "the import of PyTorch has counted the GPUs"
    return _devices_and_threads(cuda._is_in_bad_fork)


def _devices_and_threads(is_bad_fork: Callable[[], bool]) -> str | None:
    for file in open_files():
        if file.startswith(DEVICES):
            return f"the import of the framework has opened {file}"
    # OpenBLAS ends its threads at this fork, and starts them when they are needed.
    if _in_fork(is_bad_fork):
        return "the import of the framework has called CUDA"
    threads = count_threads()
    if threads != 1:
        return f"the import of the framework has started {threads - 1} threads"
    return None


def open_files() -> list[str]:
    """Return the paths of this process's open files; sockets and pipes have a name of a kind."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def count_threads() -> int:
    """Return the number of threads of this process, those of libraries too."""
    return len(os.listdir("/proc/self/task"))


def _in_fork(call: Callable[[], bool]) -> bool:
    """Return what ``call`` returns in a fork of this process; True if it fails there."""
    child = os.fork()
    if child == 0:
        result = 1
        try:
            result = int(call())
        finally:
            os._exit(result)
    return os.waitpid(child, 0)[1] != 0
