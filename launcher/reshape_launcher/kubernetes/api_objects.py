"""Conversion of the API's objects to the launcher's values for Jobs, pods, nodes and claims. Pure.

A pod whose deletion has only begun does not count as gone.
"""

from __future__ import annotations

import math
from typing import Any

from reshape_launcher.kubernetes import naming
from reshape_launcher.kubernetes.pod import CONTAINER, IN_ORDER_CODES, PLACER
from reshape_launcher.kubernetes.values import ClaimInfo, CreatedJob, JobInfo, Node, PodInfo, Taint

LASTING = ("InvalidImageName", "ErrImageNeverPull")
"""Reasons of a waiting container that persist through waiting and further attempts."""
NO_SUCH_IMAGE = "code = NotFound"
"""Part of the message of a failed pull if the registry answers that it has no such image."""
IN_ORDER = "it ended normally, as after a deletion or an eviction"
"""Reason of a Job whose pod is gone and had saved."""
TAKEN_AWAY = "PodFailurePolicy"
"""Reason of a Job that failed by the rule of its manifest: the cluster took its pod away."""
MESSAGE_CHARS_MAX = 600
GATED = "SchedulingGated"
"""Reason of a pod that another controller keeps the scheduler from."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim whose volume is created on the node of its first pod."""


def job_of(found: Any) -> JobInfo | None:
    """Return a Job's value; None if this launcher did not create the Job."""
    meta, annotations = found.metadata, found.metadata.annotations or {}
    attempt = (meta.labels or {}).get(naming.ATTEMPT, "")
    job = annotations.get(naming.JOB)
    if job is None or not attempt.isdecimal():
        return None
    complete, failed = (_condition(found.status, kind) for kind in ("Complete", "Failed"))
    in_order = complete is not None or (failed is not None and failed.reason == TAKEN_AWAY)
    over = None if failed is None else _text(failed.reason, failed.message)
    return JobInfo(
        meta.name,
        job,
        int(attempt),
        suspended=bool(found.spec.suspend),
        released=naming.RELEASED in annotations,
        queue=_queue_of(found),
        over=IN_ORDER if in_order else over,
        in_order=in_order,
        reason=annotations.get(naming.REASON, ""),
        lasting=naming.LASTING in annotations,
        started_at_s=_start_s(found.status),
        has_ended_pod=bool(found.status and (found.status.failed or found.status.succeeded)),
        pods=found.spec.parallelism or 1,
        host=annotations.get(naming.HOST, ""),
    )


def _start_s(status: Any) -> float:
    start = status.start_time if status is not None else None
    return math.inf if start is None else float(start.timestamp())


def created_job_of(found: Any) -> CreatedJob:
    """Return what a launch needs to know of its Job."""
    released = naming.RELEASED in (found.metadata.annotations or {})
    return CreatedJob(str(found.metadata.uid), released, _queue_of(found))


def _queue_of(found: Any) -> str:
    """Return who admits a Job; empty if it starts without admission."""
    by = found.spec.managed_by or ""
    queue = (found.metadata.labels or {}).get(naming.QUEUE, "")
    return queue or ("" if by == naming.JOB_CONTROLLER else by)


def pod_of(found: Any) -> PodInfo:
    """Return a pod's value, with why it does not start or why it ended."""
    meta, status = found.metadata, found.status
    statuses = {s.name: s for s in (status.container_statuses or [])}
    init_statuses = {s.name: s for s in (status.init_container_statuses or [])}
    main, placer = statuses.get(CONTAINER), init_statuses.get(PLACER)
    ended = main.state.terminated if main is not None and main.state else None
    running = main.state.running if main is not None and main.state else None
    waiting = [s.state.waiting for s in (placer, main) if s is not None and s.state]
    waiting_state = next((w for w in waiting if w is not None and w.reason not in _NORMAL), None)
    lasting = waiting_state is not None and (
        waiting_state.reason in LASTING or NO_SUCH_IMAGE in (waiting_state.message or "")
    )
    return PodInfo(
        name=meta.name,
        of=(meta.labels or {}).get(naming.JOB_NAME_LABEL, ""),
        node=found.spec.node_name or "",
        phase=status.phase or "Pending",
        started=running is not None or ended is not None,
        deletion_grace_s=meta.deletion_grace_period_seconds if meta.deletion_timestamp else None,
        exit_code=_exit_code(ended),
        reason=_end_reason(meta, status, ended, placer),
        trouble=_trouble(status, waiting_state),
        lasting=lasting,
        created_at_s=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        gated=bool(found.spec.scheduling_gates) and not found.spec.node_name,
        message=(ended.message or "") if ended is not None else "",
        claims=tuple(
            volume.persistent_volume_claim.claim_name
            for volume in found.spec.volumes or ()
            if volume.persistent_volume_claim is not None
        ),
        host=(meta.annotations or {}).get(naming.HOST, ""),
    )


def node_of(found: Any) -> Node:
    """Return a node's value."""
    return Node(
        found.metadata.name,
        ready=_condition(found.status, "Ready") is not None,
        schedulable=not found.spec.unschedulable,
        boot_id=found.status.node_info.boot_id if found.status.node_info else "",
        taints=tuple(Taint(t.key, t.value or "", t.effect) for t in found.spec.taints or ()),
    )


def claim_of(found: Any) -> ClaimInfo:
    """Return a volume claim's value."""
    annotations = found.metadata.annotations or {}
    return ClaimInfo(tuple(found.spec.access_modes or ()), annotations.get(SELECTED_NODE, ""))


def warning(events: list[Any]) -> str:
    """Return the text of the newest event if it is a warning; empty if not.

    Of two events in one second the one that is no warning counts: the obstacle is gone, or the next
    event repeats it.
    """
    newest = max(events, key=lambda e: (_at(e), e.type != "Warning"), default=None)
    if newest is None or newest.type != "Warning":
        return ""
    return _text(newest.reason, newest.message)


def _at(event: Any) -> str:
    """Return the time of an event; a series of events has no ``last_timestamp``."""
    series = event.series.last_observed_time if event.series else None
    return str(series or event.last_timestamp or event.event_time or "")


_NORMAL = ("PodInitializing", "ContainerCreating")


def _condition(status: Any, kind: str, value: str = "True") -> Any:
    """Return the condition of this kind if it has this value; else None."""
    conditions = (status.conditions if status is not None else None) or []
    return next((c for c in conditions if (c.type, c.status) == (kind, value)), None)


def _exit_code(ended: Any) -> int | None:
    """Return the exit code of a container that has ended; 0 for each end in order."""
    if ended is None or ended.exit_code in IN_ORDER_CODES:
        return None if ended is None else 0
    return int(ended.exit_code)


def _end_reason(meta: Any, status: Any, ended: Any, placer: Any) -> str:
    """Return what ended the pod, from the most precise source that says it."""
    install = placer.state.terminated if placer is not None and placer.state else None
    if install is not None and install.exit_code != 0:
        message = install.message or install.reason or f"exit code {install.exit_code}"
        return f"the SideCar cannot be installed: {message.strip()}"[:MESSAGE_CHARS_MAX]
    if status.reason or status.message:
        return _text(status.reason, status.message)
    disrupted = _condition(status, "DisruptionTarget")
    if disrupted is not None:
        return _text(disrupted.reason, disrupted.message)
    if ended is None:
        return ""
    if _exit_code(ended):
        return _text(ended.reason, ended.message or f"exit code {ended.exit_code}")
    if meta.deletion_timestamp:
        return "its pod was deleted; no process is left"
    return "ended on request; no process is left"


def _trouble(status: Any, waiting_state: Any) -> str:
    if waiting_state is not None:
        return _text(waiting_state.reason, waiting_state.message)
    unscheduled = _condition(status, "PodScheduled", "False")
    gated = unscheduled is not None and unscheduled.reason == GATED
    return (
        "" if unscheduled is None or gated else _text("it cannot be scheduled", unscheduled.message)
    )


def _text(reason: str | None, message: str | None) -> str:
    words = ": ".join(part for part in (reason, message) if part)
    return " ".join(words.split())[:MESSAGE_CHARS_MAX]
