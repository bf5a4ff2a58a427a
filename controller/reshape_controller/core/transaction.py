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
    """The state, the time and the effects of one event or plan. The engine makes one for each."""

    __slots__ = (
        "commands",
        "freed",
        "history",
        "keeps_history",
        "now_s",
        "observed_before",
        "state",
    )

    def __init__(self, state: State, now_s: float, *, keeps_history: bool) -> None:
        """Begin at ``now_s``. ``keeps_history``: false drops what is noted."""
        self.state, self.now_s, self.keeps_history = state, now_s, keeps_history
        self.commands: list[Command] = []
        self.history: list[HistoryEntry] = []
        self.freed: dict[HostId, None] = {}
        """Hosts on which a GPU became idle in this transaction."""
        self.observed_before = not state.observing
        """Whether every attempt had answered (R6) before this transaction."""

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
        """Add an entry to the history: of a job, or of the cluster if ``job`` is None."""
        if not self.keeps_history:
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
