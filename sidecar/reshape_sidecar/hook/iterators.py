"""TensorFlow's iterators: destroyed by threads of their own, or, at the end of a process, never.

An iterator that is destroyed waits for the thread that tunes it. TensorFlow 2.21 wakes that thread
before it says where the thread looks that it shall stop, so that it may sleep on, for up to a
minute: a step, a stop or a resume would wait for so long, and at the end the GPUs of a job that is
done would stay taken.

Does: gives the resource of each iterator that dies to a thread that drops it. At the end of Python
it keeps the other iterators from being destroyed: the system takes back what they hold. Never:
touches an iterator that the script can reach, or imports TensorFlow. State: the resources that
threads destroy now.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from _thread import start_new_thread
from collections.abc import Callable
from typing import Any

OWNERS = {
    ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator"): (
        "_components",
        "_iterator_resource",
    ),
    ("tensorflow.python.data.ops.multi_device_iterator_ops", "OwnedMultiDeviceIterator"): (
        "_device_iterators",
        "_multi_device_iterator_resource",
    ),
}
"""Module and name of the classes whose objects hold an iterator of TensorFlow's, and the attributes
that hold it; the resource itself comes last."""

DESTROYED_AT_ONCE_MAX = 32
"""Iterators that threads destroy at the same time. Each holds some megabytes until then, so while
there are so many, the next is destroyed where it dies, as without the hook."""

BOXES = "_reshape_boxes"
"""Attribute of these classes: what threads destroy now. A session has a copy of this module."""

END_WAIT_S = 2.0
"""The end of Python waits this long for the threads; nearly all destructions take milliseconds."""


def destroy_elsewhere() -> None:
    """Have threads destroy iterators; called once, when TensorFlow has been imported."""
    for (module, name), parts in OWNERS.items():
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and not hasattr(kind, "__del__"):
            kind.__del__ = _finalizer(parts)
            setattr(kind, BOXES, _boxes)
    os.register_at_fork(after_in_child=_boxes.clear)  # the child has none of the threads


Box = list[Any]
_boxes: dict[int, Box] = {}
"""What threads destroy now, by identity. A collection of garbage can call a finalizer in the middle
of another: each use here is one step of the interpreter, where a lock would wait for itself."""


def _finalizer(parts: tuple[str, ...]) -> Callable[[Any], None]:
    # At the end of Python a module loses its names before the last finalizer is called.
    start, clear, boxes, at_once_max = start_new_thread, _clear, _boxes, DESTROYED_AT_ONCE_MAX

    def __del__(self: Any) -> None:
        attributes = vars(self)
        if type(attributes.get(parts[-1])).__name__ != "EagerTensor":
            return  # part of a graph: there is no iterator yet
        if len(boxes) >= at_once_max:
            return
        # The box alone holds the resource, and the thread empties it: even if this thread is the
        # last to let go of the box, it does not destroy the iterator.
        box = [attributes.pop(part, None) for part in parts]
        boxes[id(box)] = box
        try:
            start(clear, (box, boxes))
        except RuntimeError:  # the system gives no more threads
            clear(box, boxes)

    return __del__


def _clear(box: Box, boxes: dict[int, Box]) -> None:
    box.clear()
    boxes.pop(id(box), None)


def await_destroyed(wait_s: float = 0.5) -> None:
    """Wait, for ``wait_s`` seconds at most, until threads have destroyed what they were given."""
    deadline_s = time.monotonic() + wait_s
    kinds = [getattr(sys.modules.get(module), name, None) for module, name in OWNERS]
    while any(getattr(kind, BOXES, None) for kind in kinds) and time.monotonic() < deadline_s:
        time.sleep(0.001)


def keep_pending() -> None:
    """Keep the resources that no thread has taken yet; called before the process ends.

    Code that lists all objects, as a flush does, could otherwise be the last to hold one, and so
    destroy it.
    """
    _keep([part for box in list(_boxes.values()) for part in list(box)])


def _keep(things: list[Any]) -> None:
    """Add a reference to each that is never given back."""
    if things:
        import ctypes

        for thing in things:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def end(flush: Callable[[], object], leave: Callable[[], object]) -> None:
    """Keep every iterator that is left; called when the script and its exit handlers have ended.

    What an iterator reaches is kept with it, so ``flush`` writes out the script's open files. A
    thread that returns from TensorFlow while Python ends aborts the process: if one is still busy
    after ``END_WAIT_S``, this calls ``leave``, which ends the process at once.
    """
    kinds = {getattr(sys.modules.get(module), name, None) for module, name in OWNERS} - {None}
    if not kinds:
        return
    keep_pending()
    _keep([thing for thing in gc.get_objects() if type(thing) in kinds])
    flush()
    await_destroyed(END_WAIT_S)
    if _boxes:
        leave()
