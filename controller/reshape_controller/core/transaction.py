"""The transaction in which the engine takes in one event or plan.

Does: carries the state and the time from function to function, and collects the commands and the
history that come of the event. The state takes each change at once: nothing is rolled back.
"""

from __future__ import annotations

from reshape_controller.core.commands import Command
from reshape_controller.core.limits import Limits
from reshape_controller.core.model import HostId, Job
from reshape_controller.core.record import HistoryEntry, PhaseCost
from reshape_controller.core.state import State


class Transaction:
    """One event or plan being worked on: the state, the time, and what comes of it."""

    __slots__ = ("commands", "freed", "history", "now_s", "observed_before", "state", "tells")

    def __init__(self, state: State, now_s: float, *, tells: bool) -> None:
        """``tells``: whether somebody will read the history."""
        self.state, self.now_s, self.tells = state, now_s, tells
        self.commands: list[Command] = []
        self.history: list[HistoryEntry] = []
        self.freed: dict[HostId, None] = {}
        """Hosts on which a GPU became idle in this turn."""
        self.observed_before = not state.observing
        """Whether every attempt had answered (R6) before this turn."""

    @property
    def limits(self) -> Limits:
        return self.state.limits

    def note(
        self,
        job: Job | None,
        kind: str,
        text: str,
        value: float | None = None,
        costs: tuple[PhaseCost, ...] = (),
    ) -> None:
        """Add a line to the history."""
        if not self.tells:
            return
        if job is None:
            self.history.append(HistoryEntry(None, self.now_s, kind, text, value=value))
            return
        self.history.append(
            HistoryEntry(
                job.id,
                self.now_s,
                kind,
                text,
                attempt=job.attempt,
                generation=job.generation,
                size=len(job.gpus),
                value=value,
                costs=costs,
            )
        )
