"""The notes of plans: short texts about jobs, which the snapshots of later plans show again.

Does: checks the notes of a plan against their bounds, and writes them into its jobs. A policy that
needs a memory has it here, so that it stays a function of its snapshot: the log holds the notes
with the plan, and a restart, a recovery and a replay read the same. A note lives as long as its
job.
"""

from __future__ import annotations

from collections.abc import Sequence

from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import JobId
from reshape_controller.core.plan import Note
from reshape_controller.core.state import State
from reshape_controller.core.transaction import Transaction

PLAN_NOTES_MAX = 256
"""Most notes that a plan writes, over all jobs."""
JOB_NOTES_MAX = 16
"""Most notes of a job."""
NOTE_NAME_MAX = 40
"""Most characters of a note's name."""
NOTE_TEXT_MAX = 200
"""Most characters of a note's text."""

NotesOfJobs = dict[JobId, tuple[tuple[str, str], ...]]


def check(state: State, notes: Sequence[Note]) -> NotesOfJobs:
    """Return all notes of each job that a plan with ``notes`` changes, by name. Raises
    PlanRejected."""
    if len(notes) > PLAN_NOTES_MAX:
        raise PlanRejected(f"the plan writes {len(notes)} notes; {PLAN_NOTES_MAX} are the most")
    written: dict[JobId, dict[str, str]] = {}
    for note in notes:
        job = state.jobs.get(note.job)
        if job is None:
            raise PlanRejected(f"{note.job}: no such job, so it gets no note {note.name!r}")
        _check_texts(note)
        of_job = written.setdefault(note.job, {})
        if note.name in of_job:
            raise PlanRejected(f"{note.job}: the plan writes its note {note.name} twice")
        of_job[note.name] = note.text
    found: NotesOfJobs = {}
    for job_id, changes in written.items():
        before = state.jobs[job_id].notes
        after = {name: text for name, text in {**dict(before), **changes}.items() if text}
        if len(after) > JOB_NOTES_MAX:
            most = f"{JOB_NOTES_MAX} are the most; an empty text removes a note"
            raise PlanRejected(f"{job_id}: would have {len(after)} notes; {most}")
        by_name = tuple(sorted(after.items()))
        if by_name != before:
            found[job_id] = by_name
    return found


def write(tx: Transaction, notes: NotesOfJobs) -> None:
    """Give each job its notes."""
    for job_id, of_job in notes.items():
        tx.update(job_id, notes=of_job)


def _check_texts(note: Note) -> None:
    for what, text, most, least in (
        ("name", note.name, NOTE_NAME_MAX, 1),
        ("text", note.text, NOTE_TEXT_MAX, 0),
    ):
        if not isinstance(text, str):
            raise PlanRejected(f"{note.job}: the {what} of a note is not a text")
        if not least <= len(text) <= most:
            length = f"has {len(text)} characters; {least} to {most} are allowed"
            raise PlanRejected(f"{note.job}: the {what} of a note {length}")
        if not text.isprintable():
            raise PlanRejected(f"{note.job}: the {what} of a note is not one line of plain text")
