"""The state of a script's own callbacks: their plain attributes, captured and restored.

Does: copies numbers, text, lists, arrays and functions of Keras of each callback and restores them;
follows the callbacks of finished ``fit`` calls while the script can still read them. Attributes of
other kinds (models, file handles, unknown objects) are left out and named.

A list or dictionary is filled and not replaced: the script or another callback may share it.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

from reshape_sidecar.hook import process_state, script_code
from reshape_sidecar.hook.custom_step import of_keras
from reshape_sidecar.hook.log import complain
from reshape_sidecar.hook.values import Reader, Unkeepable, Writer, fill

NEVER_KEPT = frozenset({"_model", "model", "params", "validation_data", "_params"})
SKIPPED_CLASSES = frozenset({"ProgbarLogger"})
"""Callbacks that count what this process has shown."""
APPENDING_CLASSES = frozenset({"CSVLogger"})
"""Callbacks that truncate their file at the start of a fit unless they append."""
OF_THE_FILE = frozenset({"append", "append_header"})
"""Attributes that describe the file; a resumed callback reads them from the file itself."""
IN_VALIDATION = ("on_test_begin", "on_test_batch_begin", "on_test_batch_end", "on_test_end")


def capture(callbacks: list[Any], writer: Writer) -> list[Any]:
    """Return the encoded attributes of each callback, and the names of those left out."""
    out = []
    for callback in callbacks:
        values: dict[str, Any] = {}
        unkeepable: list[str] = []
        process: dict[str, str] = {}
        if type(callback).__name__ not in SKIPPED_CLASSES:
            for name, value in vars(callback).items():
                if name in NEVER_KEPT:
                    continue
                try:
                    values[name] = writer.encode(value)
                except Unkeepable:
                    unkeepable.append(name)
                    if (doing := process_state.condition(value)) is not None:
                        process[name] = doing
        out.append(
            {
                "class": _class(callback),
                "kept": values,
                "lost": unkeepable,
                "process": process,
                "profiles": process_state.profiles(callback),
            }
        )
    return out


def act_during_validation(callbacks: list[Any]) -> bool:
    """Return whether a callback of the script has methods that run during a validation.

    Such a callback may change weights. Those of Keras may see a validation twice.
    """
    return any(
        not of_keras(getattr(callback, name)) for callback in callbacks for name in IN_VALIDATION
    )


def restore(callbacks: list[Any], saved: list[Any], reader: Reader) -> None:
    """Restore attributes by position and class; log the callbacks without a state."""
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
    skipped = OF_THE_FILE if _appends(callback) else frozenset()
    skipped |= process_state.FLAGS_OF_KERAS.get(type(callback).__name__, frozenset())
    skipped = skipped.union(*map(script_code.process_names, script_code.methods(type(callback))))
    fresh = _flags_of_process(callback, entry)
    for name, value in entry["kept"].items():
        if name not in skipped and name not in fresh:
            restored = reader.decode(value)
            if not fill(vars(callback).get(name), restored):
                setattr(callback, name, restored)
    if fresh and not of_keras(type(callback)):
        _complain_once(
            f"attributes of {_class(callback)} that begin again with its threads, files or "
            f"profilers: {', '.join(fresh)}"
        )
    lost = [] if of_keras(type(callback)) else entry["lost"]
    if lost:
        _complain_once(
            f"attributes of {_class(callback)} that were not restored: {', '.join(lost)}"
        )


def _flags_of_process(callback: Any, entry: dict[str, Any]) -> list[str]:
    """Return the flags that a callback holds about what died with the process before.

    Flags are True or False, or attributes that the callback's code sets to constants alone. There
    are none if the callback has already made all of it again.
    """
    there = vars(callback)
    held = entry.get("process", {})  # unknown to an older hook
    again = all(process_state.condition(there.get(name)) == doing for name, doing in held.items())
    if again and not entry.get("profiles", False):
        return []
    switches = script_code.switches(script_code.methods(type(callback)))
    return [
        name
        for name, value in entry["kept"].items()
        if (isinstance(value, bool) or name in switches) and there.get(name) != value
    ]


@functools.cache
def _complain_once(message: str) -> None:
    complain(message)  # one callback may have been in a hundred calls


class EndedCallbacks:
    """The callbacks of finished ``fit`` calls that the script still holds."""

    def __init__(self) -> None:
        self._of_fits: list[list[weakref.ref[Any]]] = []

    def fit_ended(self, callbacks: Any) -> None:
        """Note the argument ``callbacks`` of a call that is over or was skipped."""
        self._of_fits.append([weakref.ref(callback) for callback in flattened(callbacks)])

    def encode(self, writer: Writer) -> dict[str, Any]:
        """Encode the newest states, and for each finished call the index of its callbacks'."""
        living: list[Any] = []
        indexes: dict[int, int] = {}
        fits: list[list[int | None]] = []
        for fit in self._of_fits:
            fits.append([])
            for callback in (reference() for reference in fit):
                if callback is not None and indexes.setdefault(id(callback), len(living)) == len(
                    living
                ):
                    living.append(callback)
                fits[-1].append(indexes.get(id(callback)))
        return {"fits": fits, "states": capture(living, writer)}


def restore_ended(
    callbacks: Any, saved: dict[str, Any], number: int, model: Any, reader: Reader
) -> None:
    """Restore the newest state of the callbacks of finished call ``number``, which is skipped."""
    if not saved:
        return  # a checkpoint of an older hook
    for callback, index in zip(flattened(callbacks), saved["fits"][number], strict=False):
        callback._model = model
        if index is not None and saved["states"][index]["class"] == _class(callback):
            _fill(callback, saved["states"][index], reader)


def flattened(callbacks: Any) -> list[Any]:
    """Return the callbacks in an argument of ``fit``, lists and CallbackLists flattened."""
    if isinstance(callbacks, (list, tuple)):
        return [one for item in callbacks for one in flattened(item)]
    inner = getattr(callbacks, "callbacks", None)
    return [] if callbacks is None else [callbacks] if inner is None else list(inner)


def append_instead_of_truncating(callbacks: list[Any]) -> None:
    """Let loggers append to their file, before a resumed fit begins."""
    for callback in callbacks:
        if _appends(callback):
            callback.append = True


def files_of_keras(callbacks: list[Any]) -> list[Any]:
    """Return the open files of loggers, which a resumed process opens to append."""
    return [callback.csv_file for callback in callbacks if hasattr(callback, "csv_file")]


def _appends(callback: Any) -> bool:
    return any(kind.__name__ in APPENDING_CLASSES for kind in type(callback).__mro__)


def _class(callback: Any) -> str:
    return f"{type(callback).__module__}.{type(callback).__qualname__}"
