"""Deadlines that the state keeps: those that are awaited, and not for ever what was taken back."""

from __future__ import annotations

from dataclasses import replace

from reshape_controller.core.model import Deadline, DeadlineKind, Job, JobId, JobSpec
from reshape_controller.core.state import DUE_MAX, State


def job(name: str, at_s: float) -> Job:
    """A job whose container has until then to come up."""
    deadline = Deadline(DeadlineKind.EARLY_INIT, at_s, 60.0)
    spec = JobSpec(name, ("python", "train.py"), (1,))
    return replace(Job(JobId(name), spec, 1, 0.0), deadline=deadline)


def test_what_was_taken_back_is_forgotten_and_what_is_awaited_stays_in_order() -> None:
    state = State()
    awaited = {"a": 70.0, "b": 50.0, "c": 60.0}
    for name, at_s in awaited.items():
        state.put_job(job(name, at_s))
    for number in range(1000):
        state.put_job(job("often", 1e9 + number))
    assert len(state._due) <= DUE_MAX * len(state.jobs)
    assert state.next_deadline_s() == 50.0
    assert state.pop_due(1e9) == ("b", "c", "a")
    assert state.pop_due(2e9) == ("often",)
