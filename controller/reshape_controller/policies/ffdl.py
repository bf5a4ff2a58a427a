"""FfDL's dispatch: first come, first served, and each gang placed whole or queued.

Does: starts queued jobs in the order in which they came, of jobs of the same moment the largest
gang first. A job starts at its smallest size, packed onto as few hosts as possible or spread over
as many. A running job keeps its size, and priorities do not count. A launch that fails is rolled
back and tried again by the engine, as for every policy (``retries``).
"""

from __future__ import annotations

from math import inf

from reshape_controller.core.model import Placement
from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import JobView, Plan, Snapshot, Target
from reshape_controller.scheduling import gang_start, legal_moves
from reshape_controller.scheduling.only_option import only_option

HEADS = ("skip", "block")
"""Whether later jobs may pass the first of the queue; the first is the default."""
HOLD_AFTER_S = 3600.0
"""Wait after which no later job passes, unless the record has a ``max_wait_s``."""


class Ffdl:
    """The policy. Its name shows the settings that are not the defaults."""

    def __init__(
        self,
        placement: str = "",
        head: str = HEADS[0],
        hold_after_s: float | str = HOLD_AFTER_S,
    ) -> None:
        """``placement``: ``pack`` or ``spread`` instead of the records' own; ``head``: ``skip`` or
        ``block``; ``hold_after_s``: seconds or the text of a number, of ``skip``. Raises
        ValueError."""
        if head not in HEADS:
            raise ValueError(f"head is {head!r}; use one of {', '.join(HEADS)}")
        if placement not in ("", *Placement):
            raise ValueError(f"placement is {placement!r}; use one of {', '.join(Placement)}")
        self._hold_after_s = float(hold_after_s)
        if not self._hold_after_s >= 0.0:
            raise ValueError(f"hold_after_s is {hold_after_s}, and must be 0 or more")
        self._placement = Placement(placement) if placement else None
        self._blocks = head == "block"
        settings = [f"placement={placement}"] if placement else []
        settings += [f"head={head}"] if self._blocks else []
        if self._hold_after_s != HOLD_AFTER_S:
            settings.append(f"hold_after_s={self._hold_after_s:.12g}")
        self.name = "ffdl" + (":" if settings else "") + ",".join(settings)

    def may_act(self, *, queued: bool, idle: bool) -> bool:
        """Return whether a plan may change anything: it starts jobs alone."""
        return queued

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next single decision."""
        can_start: dict[tuple[object, ...], bool] = {}
        startable = legal_moves.startable(snapshot)
        queue = [job for job in startable if _can_start(snapshot, job, can_start)]
        queue.sort(key=lambda job: (job.submitted_at_s, -job.sizes[0], job.place))
        if not queue:
            return _nothing_can_start(startable)
        most = sum(host.idle for host in snapshot.hosts)
        tried: dict[tuple[object, ...], None] = {}
        for newcomer in queue:
            found = self._start(snapshot, newcomer, most, tried)
            if found is not None:
                size = newcomer.sizes[0]
                past = "" if newcomer is queue[0] else f", ahead of {queue[0].spec.name}"
                where = " and ".join(found.all_hosts)
                text = f"{newcomer.spec.name} starts on {gpus(size)} of {where}{past}"
                return only_option((found,), "starts-gang", text, newcomer.id)
            if self._blocks or self._hold_at_s(newcomer) <= snapshot.now_s:
                break
        holds_s = [at_s for at_s in map(self._hold_at_s, queue) if snapshot.now_s < at_s < inf]
        text = f"{queue[0].spec.name} waits for {gpus(queue[0].sizes[0])}"
        wake_at_s = None if self._blocks else min(holds_s, default=None)
        return Plan((), "waits-nothing-fits", text, queue[0].id, wake_at_s=wake_at_s)

    def _start(
        self,
        snapshot: Snapshot,
        job: JobView,
        idle: int,
        tried: dict[tuple[object, ...], None],
    ) -> Target | None:
        """Return the start of a job, if it fits. ``tried``: jobs that do not fit, by what their
        placement depends on."""
        if job.sizes[0] > idle:
            return None
        key = _key(job)
        if key in tried:
            return None
        found = gang_start.target(snapshot, job, job.sizes[0], self._placement)
        if found is None:
            tried[key] = None
        return found

    def _hold_at_s(self, job: JobView) -> float:
        own_s = job.spec.max_wait_s
        return job.waits_since_s + (self._hold_after_s if own_s is None else own_s)


def _key(job: JobView) -> tuple[object, ...]:
    """Return what the placement of a job depends on."""
    is_plain = not job.initialized and job.only_host is None and not job.unfit_on
    spec = job.spec
    shape = (job.sizes[0], spec.workers, spec.span, spec.placement)
    return shape if is_plain else (job.id,)


def _can_start(snapshot: Snapshot, job: JobView, known: dict[tuple[object, ...], bool]) -> bool:
    """Whether the cluster could ever hold the job. ``known``: the answers so far."""
    key = _key(job)
    if key not in known:
        known[key] = gang_start.can_ever_hold(snapshot, job, job.sizes[0])
    return known[key]


def _nothing_can_start(jobs: list[JobView]) -> Plan:
    """Return the plan for a queue of jobs that the usable hosts cannot hold."""
    if not jobs:
        return Plan()
    job = min(jobs, key=lambda job: (job.submitted_at_s, job.place))
    need = gpus(job.sizes[0])
    text = (
        f"{job.spec.name} waits for hosts that can hold {need}: the usable ones cannot, even idle"
    )
    return Plan((), "waits-nothing-fits", text, job.id)
