"""The models that a script trains one after the other, and the final state of the earlier ones.

Does: numbers models by their first fit, and holds a copy of the variables of those that are not
trained any more, because a later fit may need them (a teacher, a fold). It holds weak references to
the models themselves.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from reshape_sidecar.hook import variables
from reshape_sidecar.hook.checkpoint import SavedState
from reshape_sidecar.hook.values import Writer


class Models:
    """The models of this process's fit calls."""

    def __init__(self) -> None:
        self._known: list[weakref.ref[Any]] = []
        self._ended: dict[int, list[variables.VariableState]] = {}
        self._current: weakref.ref[Any] | None = None

    def number(self, model: Any) -> int:
        """Return the number of ``model``; a new model gets the next one."""
        for number, known in enumerate(self._known):
            if known() is model:
                return number
        self._known.append(weakref.ref(model))
        return len(self._known) - 1

    def begin_fit(self, model: Any) -> None:
        """Make ``model`` the one in training, and capture the final state of the one before."""
        before = self._current() if self._current is not None else None
        if before is not None and before is not model and self.number(before) not in self._ended:
            self._ended[self.number(before)] = variables.capture(before)
        self._ended.pop(self.number(model), None)
        self._current = weakref.ref(model)

    def skip_fit(self, model: Any) -> None:
        """Make ``model``, whose fit is skipped, the newest one without a capture."""
        self.number(model)
        self._current = weakref.ref(model)

    def fit_ended(self, model: Any) -> None:
        """Copy the state of ``model`` at the end of its fit.

        A restarted script begins there: it repeats its own changes before the next fit. It may
        also drop the model before that.
        """
        self._ended[self.number(model)] = variables.capture(model)

    def end_state(self, model: Any) -> list[variables.VariableState] | None:
        """Return the state of ``model`` at the end of its last fit; None if it is not known."""
        return self._ended.get(self.number(model))

    def restore(
        self,
        model: Any,
        number: int,
        saved_state: SavedState,
        calls: int,
        end_state: list[variables.VariableState] | None,
    ) -> bool:
        """Restore the state of model ``number`` at the end of the last of ``calls`` fit calls.

        ``end_state``: what was kept of it. Without it the model gets its newest weights, and the
        result is false.
        """
        resume_point, reader = saved_state.resume_point, saved_state.reader
        entry = saved_state.others.get(str(number))
        states = variables.decode(saved_state.variables if entry is None else entry, reader)
        # A model that a later call trains has a newer state in the checkpoint than at this end.
        at_its_end = entry is not None or resume_point.position is None
        if at_its_end:
            self._ended[number] = states
        if at_its_end and all(fit.model != number for fit in resume_point.finished[calls:]):
            variables.restore(model, states)
            return True
        if end_state is not None:
            with contextlib.suppress(variables.StateMismatch):
                variables.restore_end(model, end_state)
                return True
        variables.restore_if_it_fits(model, states)
        return False

    def encode(self, writer: Writer, *, without: Any) -> dict[str, Any]:
        """Encode the final states of all models but ``without`` for a state document."""
        skip = self.number(without)
        return {
            str(number): variables.encode(states, writer)
            for number, states in sorted(self._ended.items())
            if number != skip
        }
