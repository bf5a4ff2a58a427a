"""The order in which queued jobs have their turn, and those that have waited too long.

Does: sorts the queue by the rules of a policy. The snapshot keeps its own order, because the index
belongs to its very tuples of jobs. A new job has the lowest ratio of its priority, so that by ratio
it comes last unless it is critical.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from reshape_controller.core.model import JobId
from reshape_controller.core.phrases import duration
from reshape_controller.core.plan import JobView, Snapshot, largest_of
from reshape_controller.scheduling import legal_moves
from reshape_controller.scheduling.gang_room import GangRoom
from reshape_controller.scheduling.gang_start import may_span
from reshape_controller.scheduling.predictor import Predictor
from reshape_controller.scheduling.queue_index import QueueIndex
from reshape_controller.scheduling.rules import QueueOrder, Rules

WAIT_SHARE_MIN = 0.01
"""A wait is told as the reason of a job's turn from this part of its own best time on."""


class QueueTurns(NamedTuple):
    """The queued jobs as a decision looks at them."""

    jobs: Sequence[JobView]
    """All queued jobs, in the order of their turns."""
    overdue: Sequence[JobView]
    """Those that have waited too long, in the order in which they come first."""
    next_overdue_s: float
    """When the next job becomes overdue (Unix seconds); infinite: none will."""
    horizon_s: float = inf
    """From so long an own best time on a job is critical."""


def turns_by_place(snapshot: Snapshot, index: QueueIndex, rules: Rules) -> QueueTurns:
    """Return the turns in the order of the queue."""
    overdue = index.overdue(snapshot.queued, snapshot.now_s, rules.max_wait_s)
    next_s = index.next_overdue_s(snapshot.now_s, rules.max_wait_s)
    return QueueTurns(snapshot.queued, overdue, next_s)


def turns_by_time(
    snapshot: Snapshot, predictor: Predictor, index: QueueIndex, rules: Rules, horizon_s: float
) -> QueueTurns:
    """Return the turns by the waits and own best times of the jobs. Overdue jobs come by the time
    at which they became so: by ratio short ones would jump ahead, and a hold would never end.

    ``horizon_s``: from so long an own best time on a job is critical.
    """
    now_s, by_ratio = snapshot.now_s, rules.queue_order is QueueOrder.RATIO
    groups: dict[tuple[int, bool], list[tuple[float, int, JobView]]] = {}
    overdue: list[tuple[float, int, JobView]] = []
    next_s, room = inf, None
    for queue_class in index.classes.values():
        if may_span(queue_class.job):
            room = room or GangRoom.of(snapshot.hosts)
        best_s = rank = _best_s(snapshot, predictor, queue_class.job, room)
        default_wait_s = max(rules.max_wait_s, rules.guard_lengths * best_s)
        for job in queue_class.jobs.values():
            spec = job.spec
            since_s = job.submitted_at_s if job.preempted_at_s is None else job.preempted_at_s
            due_s = since_s + (default_wait_s if spec.max_wait_s is None else spec.max_wait_s)
            if due_s <= now_s:
                overdue.append((due_s, job.place, job))
            elif due_s < next_s:
                next_s = due_s
            if by_ratio:
                rank = (since_s - now_s) / best_s if best_s > 0.0 else -inf
            group = groups.setdefault((-spec.priority, best_s < horizon_s), [])
            group.append((rank, job.place, job))
    in_turn: list[JobView] = []
    for key in sorted(groups):
        in_turn += [entry[2] for entry in sorted(groups[key])]
    overdue.sort()
    too_late = [entry[2] for entry in overdue]
    return QueueTurns(in_turn, too_late, next_s, horizon_s)


def _best_s(snapshot: Snapshot, predictor: Predictor, job: JobView, room: GangRoom | None) -> float:
    """Return the seconds that a queued job needs alone where it may start. ``room``: the usable
    hosts, for a job that may be on several."""
    hosts = legal_moves.hosts_for(snapshot, job)
    largest = snapshot.largest if hosts is snapshot.hosts else largest_of(hosts)
    return predictor.best_s(job, largest, room if may_span(job) else None)


def turn_text(snapshot: Snapshot, predictor: Predictor, turns: QueueTurns, job: JobView) -> str:
    """Return why a queued job has its turn before others, as a sentence."""
    room = GangRoom.of(snapshot.hosts) if may_span(job) else None
    best_s = _best_s(snapshot, predictor, job, room)
    if best_s == inf:
        return ""
    if best_s >= turns.horizon_s:
        all_s = duration(turns.horizon_s)
        needs = f"alone it needs {duration(best_s)}, and all jobs together at least {all_s}"
        return f" It comes before shorter jobs: {needs}."
    wait_s = snapshot.now_s - job.waits_since_s
    if wait_s < best_s * WAIT_SHARE_MIN:
        return ""
    waited = f"it has waited {duration(wait_s)} for {duration(best_s)} of work"
    return f" It comes before later jobs: {waited}."


def ids_of(jobs: Iterable[JobView]) -> frozenset[JobId]:
    """Return the ids of jobs."""
    return frozenset([job.id for job in jobs])
