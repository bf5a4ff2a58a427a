"""TensorFlow's iterators that are still there when a process ends: nothing waits for their end.

An iterator that is destroyed waits for the thread that tunes it. TensorFlow 2.21 wakes that thread
before it says where the thread looks that it shall stop, so that it may sleep on, for up to a
minute: the GPUs of a job that is done would stay taken for so long.

Does: keeps what is left of them at the end of Python from being destroyed; the system takes back
what they hold. Never: touches one while the script runs, or imports TensorFlow. State: none.
"""

from __future__ import annotations

import gc
import sys

OWNERS = (
    ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator"),
    ("tensorflow.python.data.ops.multi_device_iterator_ops", "OwnedMultiDeviceIterator"),
)
"""Module and name of the classes whose objects hold an iterator of TensorFlow's."""


def keep() -> None:
    """Keep every iterator that is left; called when the script has ended."""
    kinds = {getattr(sys.modules.get(module), name, None) for module, name in OWNERS} - {None}
    if not kinds:
        return
    import ctypes

    for thing in gc.get_objects():
        if type(thing) in kinds:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))  # never given back
