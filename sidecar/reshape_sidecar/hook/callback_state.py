"""The state of a script's own callbacks, as far as it can be kept.

Does: copies plain attributes (numbers, text, lists, arrays, functions of Keras) of each callback
and puts them back. Never: touches a model, a file handle or an object that it does not know; what
it leaves out is returned by name. State: none.
"""

from __future__ import annotations

from typing import Any

from reshape_sidecar.hook.values import Reader, Unkeepable, Writer

NEVER_KEPT = frozenset({"_model", "model", "params", "validation_data", "_params"})
SKIPPED_CLASSES = frozenset({"ProgbarLogger"})
"""They count what this process has shown."""
APPENDING_CLASSES = frozenset({"CSVLogger"})
"""They truncate their file at the start of a fit unless told to append."""


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


def restore(callbacks: list[Any], saved: list[Any], reader: Reader) -> list[str]:
    """Put attributes back by position and class; the names of callbacks that do not match."""
    unmatched = []
    for number, callback in enumerate(callbacks):
        entry = saved[number] if number < len(saved) else None
        if entry is None or entry["class"] != _class(callback):
            unmatched.append(_class(callback))
            continue
        for name, value in entry["kept"].items():
            setattr(callback, name, reader.decode(value))
    return unmatched


def append_instead_of_truncating(callbacks: list[Any]) -> None:
    """Before a resumed fit begins: let loggers go on in their file."""
    for callback in callbacks:
        if type(callback).__name__ in APPENDING_CLASSES:
            callback.append = True


def _class(callback: Any) -> str:
    return f"{type(callback).__module__}.{type(callback).__qualname__}"
