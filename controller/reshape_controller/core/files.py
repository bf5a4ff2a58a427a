"""From where a job's files can be reached: a job whose files are on one host stays on that host.

Does: takes in what a launcher found out about an attempt's files. Never: moves a file, or weighs
anything: other hosts are no option at all. State: two fields of the job.
"""

from __future__ import annotations

from reshape_controller.core import attempts, giving_up
from reshape_controller.core import events as ev
from reshape_controller.core.model import Job, Stage
from reshape_controller.core.replacing import replace
from reshape_controller.core.state import Turn


def found(turn: Turn, job: Job, event: ev.FilesFound) -> None:
    """Keep what was found. An attempt on a host from which they cannot be reached was not started:
    the job is queued again, and that is not its failure."""
    elsewhere = event.host is not None and event.host != job.host
    if elsewhere and job.stage is not Stage.LAUNCHING:
        return
    job = replace(job, only_host=event.host, only_host_because=event.reason)
    turn.state.put_job(job)
    if event.host is not None:
        turn.note(job, "files-found", f"it can be on {event.host} only: {event.reason}")
    if elsewhere:
        reason = f"its files cannot be reached from {job.host}"
        attempts.remove(turn, giving_up.abandon(turn, job, reason), reason)
