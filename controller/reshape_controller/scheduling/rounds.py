"""The round of the live loop, of replays and of recovery: events, then plans until none is wanted.

Does: ``run`` steps an engine through events and has a planner decide; ``redo`` applies the events
and plans of a record. Nothing else steps an engine. The shells append, book and carry out what a
round returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reshape_controller.core.commands import Command
from reshape_controller.core.engine import Engine, Step
from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.events import Event
from reshape_controller.core.limits import PLAN_ROUNDS_MAX
from reshape_controller.core.plan import Plan
from reshape_controller.core.record import HistoryEntry, LogRecord
from reshape_controller.scheduling.planner import Decision, Planner


class EventFailed(ReshapeError):
    """The engine fails at an event: a defect. The state may have changed in part."""

    def __init__(self, number: int, event: Event, error: Exception) -> None:
        super().__init__(f"the engine failed on {type(event).__name__}: {error!r}")
        self.number = number
        """Index of the event in its batch."""
        self.event = event
        self.error = error


class Round(NamedTuple):
    """The effects of a batch of events and of the plans after it."""

    steps: list[Step]
    """The effects of each event, in order."""
    decisions: list[Decision]
    """The applied plans and their effects, in order."""

    @property
    def commands(self) -> tuple[Command, ...]:
        """Return all commands, in order."""
        found: list[Command] = []
        for step in self.steps:
            found += step.commands
        for decision in self.decisions:
            found += decision.step.commands
        return tuple(found)

    @property
    def history(self) -> tuple[HistoryEntry, ...]:
        """Return all entries of the history, in order."""
        found: list[HistoryEntry] = []
        for step in self.steps:
            found += step.history
        for decision in self.decisions:
            found += decision.step.history
        return tuple(found)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Return the applied plans. A record with the events and these plans repeats the round."""
        return tuple([decision.plan for decision in self.decisions])


def run(engine: Engine, planner: Planner, events: Sequence[Event], now_s: float) -> Round:
    """Step the engine through the events, then apply plans until it wants none.

    Plans beyond ``PLAN_ROUNDS_MAX`` wait for the next round. Raises EventFailed.
    """
    steps = _stepped(engine, events, now_s)
    decisions: list[Decision] = []
    while engine.wants_plan() and len(decisions) < PLAN_ROUNDS_MAX:
        decisions.append(planner.decide(engine, now_s))
    return Round(steps, decisions)


def redo(engine: Engine, record: LogRecord) -> Round:
    """Apply the record's events, then its plans; no policy decides again. Raises EventFailed."""
    steps = _stepped(engine, record.events, record.at_s)
    return Round(steps, [Decision(plan, engine.apply(plan, record.at_s)) for plan in record.plans])


def _stepped(engine: Engine, events: Sequence[Event], now_s: float) -> list[Step]:
    steps: list[Step] = []
    for event in events:
        try:
            steps.append(engine.step(event, now_s))
        except Exception as error:
            raise EventFailed(len(steps), event, error) from error
    return steps
