"""The state of a script's own callbacks, as far as it can be kept.

Does: copies plain attributes (numbers, text, lists, arrays, functions of Keras) of each callback
and puts them back; keeps those of finished ``fit`` calls while the script can still read them.
Never: touches a model, a file handle or an object that it does not know; what it leaves out is
returned by name. State: which callbacks each finished call had.

A list or dictionary is filled and not replaced: the script or another callback may hold it, too.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from typing import Any

from reshape_sidecar.hook.custom_step import of_keras
from reshape_sidecar.hook.log import complain
from reshape_sidecar.hook.values import Reader, Unkeepable, Writer

NEVER_KEPT = frozenset({"_model", "model", "params", "validation_data", "_params"})
SKIPPED_CLASSES = frozenset({"ProgbarLogger"})
"""They count what this process has shown."""
APPENDING_CLASSES = frozenset({"CSVLogger"})
"""They truncate their file at the start of a fit unless told to append."""
OF_THE_FILE = frozenset({"append", "append_header"})
"""Attributes of theirs that say what is in the file; a resumed one has looked there itself."""
IN_VALIDATION = ("on_test_begin", "on_test_batch_begin", "on_test_batch_end", "on_test_end")


def capture(callbacks: list[Any], writer: Writer) -> list[Any]:
    """Encoded attributes of each callback, with the names of those that could not be kept."""
    out = []
    for callback in callbacks:
        kept: dict[str, Any] = {}
        lost: list[str] = []
        if type(callback).__name__ not in SKIPPED_CLASSES:
            for name, value in vars(callback).items():
                if name in NEVER_KEPT:
                    continue
                try:
                    kept[name] = writer.encode(value)
                except Unkeepable:
                    lost.append(name)
        out.append({"class": _class(callback), "kept": kept, "lost": lost})
    return out


def act_during_validation(callbacks: list[Any]) -> bool:
    """Whether one of the script's own does something there, with the weights perhaps. Keras's may
    see a validation twice."""
    return any(
        not of_keras(getattr(callback, name)) for callback in callbacks for name in IN_VALIDATION
    )


def restore(callbacks: list[Any], saved: list[Any], reader: Reader) -> None:
    """Put attributes back by position and class; says which begin anew."""
    unmatched = []
    for number, callback in enumerate(callbacks):
        entry = saved[number] if number < len(saved) else None
        if entry is None or entry["class"] != _class(callback):
            unmatched.append(_class(callback))
        else:
            _fill(callback, entry, reader)
    if unmatched:
        complain(f"callbacks whose state was not found: {', '.join(unmatched)}")


def _fill(callback: Any, entry: dict[str, Any], reader: Reader) -> None:
    appends = _appends(callback)
    for name, value in entry["kept"].items():
        if not (appends and name in OF_THE_FILE):
            _put(callback, name, reader.decode(value))
    lost = [] if of_keras(type(callback)) else entry["lost"]
    if lost:
        _complain_once(f"attributes of {_class(callback)} that begin anew: {', '.join(lost)}")


@functools.cache
def _complain_once(message: str) -> None:
    complain(message)  # one callback may have been in a hundred calls


def _put(callback: Any, name: str, value: Any) -> None:
    there = vars(callback).get(name)
    if there is not None and type(there) is type(value):
        if isinstance(there, list):
            there[:] = value
            return
        if isinstance(there, (dict, set)):
            there.clear()
            there.update(value)
            return
        if isinstance(there, deque) and there.maxlen == value.maxlen:
            there.clear()
            there.extend(value)
            return
    setattr(callback, name, value)


class EndedCallbacks:
    """The callbacks of finished ``fit`` calls that the script still holds; their newest state."""

    def __init__(self) -> None:
        self._of_fits: list[list[weakref.ref[Any]]] = []

    def fit_ended(self, callbacks: Any) -> None:
        """A call is over (or was skipped) that had ``callbacks`` as its argument."""
        self._of_fits.append([weakref.ref(callback) for callback in _given(callbacks)])

    def encode(self, writer: Writer) -> dict[str, Any]:
        """States and, for each finished call, which of them are its callbacks'."""
        living: list[Any] = []
        places: dict[int, int] = {}
        fits: list[list[int | None]] = []
        for fit in self._of_fits:
            fits.append([])
            for callback in (reference() for reference in fit):
                if callback is not None and places.setdefault(id(callback), len(living)) == len(
                    living
                ):
                    living.append(callback)
                fits[-1].append(places.get(id(callback)))
        return {"fits": fits, "states": capture(living, writer)}


def restore_ended(
    callbacks: Any, saved: dict[str, Any], number: int, model: Any, reader: Reader
) -> None:
    """Give the callbacks of finished call ``number``, which is skipped, what they had become."""
    if not saved:
        return  # a checkpoint of an older hook
    for callback, place in zip(_given(callbacks), saved["fits"][number], strict=False):
        callback._model = model
        if place is not None and saved["states"][place]["class"] == _class(callback):
            _fill(callback, saved["states"][place], reader)


def _given(callbacks: Any) -> list[Any]:
    """The callbacks in an argument of ``fit``."""
    if isinstance(callbacks, (list, tuple)):
        return [one for item in callbacks for one in _given(item)]
    inner = getattr(callbacks, "callbacks", None)
    return [] if callbacks is None else [callbacks] if inner is None else list(inner)


def append_instead_of_truncating(callbacks: list[Any]) -> None:
    """Before a resumed fit begins: let loggers go on in their file."""
    for callback in callbacks:
        if _appends(callback):
            callback.append = True


def _appends(callback: Any) -> bool:
    return any(kind.__name__ in APPENDING_CLASSES for kind in type(callback).__mro__)


def _class(callback: Any) -> str:
    return f"{type(callback).__module__}.{type(callback).__qualname__}"
