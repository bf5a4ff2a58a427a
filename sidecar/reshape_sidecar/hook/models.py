"""The models that a script trains one after the other, and what the earlier ones have become.

Does: numbers models by their first fit, and keeps the end state of those that are not trained any
more, because a later fit may need them (a teacher, a fold). Never: keeps a model itself alive.
State: one copy of the variables of each earlier model, in memory.
"""

from __future__ import annotations

import weakref
from typing import Any

from reshape_sidecar.hook import variables
from reshape_sidecar.hook.values import Reader, Writer


class Models:
    """The models of this process's fit calls."""

    def __init__(self) -> None:
        self._known: list[weakref.ref[Any]] = []
        self._ended: dict[int, list[variables.VariableState]] = {}
        self._current: weakref.ref[Any] | None = None

    def number(self, model: Any) -> int:
        """The number of ``model``; the first time it gets the next one."""
        for number, known in enumerate(self._known):
            if known() is model:
                return number
        self._known.append(weakref.ref(model))
        return len(self._known) - 1

    def use(self, model: Any) -> None:
        """``model`` is trained from now on: keep the end state of the one before."""
        before = self._current() if self._current is not None else None
        if before is not None and before is not model:
            self._ended[self.number(before)] = variables.capture(before)
        self._ended.pop(self.number(model), None)
        self._current = weakref.ref(model)

    def skipped(self, model: Any) -> None:
        """A fit of ``model`` was skipped: it is the newest one, and nothing was captured."""
        self.number(model)
        self._current = weakref.ref(model)

    def put_back(self, number: int, states: list[variables.VariableState]) -> None:
        """Keep the end state of an earlier model that a checkpoint held."""
        self._ended[number] = states

    def encode(self, writer: Writer, *, without: Any) -> dict[str, Any]:
        """End states of all models but ``without``, for a state document."""
        skip = self.number(without)
        return {
            str(number): variables.encode(states, writer)
            for number, states in sorted(self._ended.items())
            if number != skip
        }


def decode(
    saved: dict[str, Any], number: int, reader: Reader
) -> list[variables.VariableState] | None:
    """End state of model ``number`` in a checkpoint; None if it holds none."""
    entry = saved.get(str(number))
    return None if entry is None else variables.decode(entry, reader)
