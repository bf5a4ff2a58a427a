"""From the API's objects to what the launcher knows of Jobs, pods and nodes. Pure.

Does: reads only fields that it names, each once. Never: keeps an API object, or calls a pod gone
that was only deleted. State: none.
"""

from __future__ import annotations

from typing import Any

from reshape_launcher.kubernetes import naming
from reshape_launcher.kubernetes.pod import CONTAINER, PLACER
from reshape_launcher.kubernetes.values import ClaimSeen, JobSeen, Node, PodSeen

LASTING = ("InvalidImageName", "ErrImageNeverPull")
"""Reasons of a waiting container that neither waiting nor another attempt cures."""
NO_SUCH_IMAGE = "code = NotFound"
"""In the message of a failed pull: the registry answered, and has no such image."""
IN_ORDER = "it ended normally, as after a deletion or an eviction"
"""What is left to say of a Job whose pod is gone and had saved."""
MESSAGE_CHARS_MAX = 600
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim whose volume is made where its first pod comes to."""


def job_of(found: Any) -> JobSeen | None:
    """One Job; None if it is not of the form that we make."""
    meta, annotations = found.metadata, found.metadata.annotations or {}
    attempt = (meta.labels or {}).get(naming.ATTEMPT, "")
    job = annotations.get(naming.JOB)
    if job is None or not attempt.isdecimal():
        return None
    complete = _condition(found.status, "Complete") is not None
    return JobSeen(
        meta.name,
        job,
        int(attempt),
        suspended=bool(found.spec.suspend),
        over=IN_ORDER if complete else _failed(found.status),
        in_order=complete,
        reason=annotations.get(naming.REASON, ""),
        lasting=naming.LASTING in annotations,
        bereft=bool(found.status and (found.status.failed or found.status.succeeded)),
        pods=found.spec.parallelism or 1,
    )


def pod_of(found: Any) -> PodSeen:
    """One pod, with why it does not come up or why it ended."""
    meta, status = found.metadata, found.status
    statuses = {s.name: s for s in (status.container_statuses or [])}
    placers = {s.name: s for s in (status.init_container_statuses or [])}
    main, placer = statuses.get(CONTAINER), placers.get(PLACER)
    ended = main.state.terminated if main is not None and main.state else None
    running = main.state.running if main is not None and main.state else None
    waiting = [s.state.waiting for s in (placer, main) if s is not None and s.state]
    blocked = next((w for w in waiting if w is not None and w.reason not in _NORMAL), None)
    lasting = blocked is not None and (
        blocked.reason in LASTING or NO_SUCH_IMAGE in (blocked.message or "")
    )
    return PodSeen(
        name=meta.name,
        of=(meta.labels or {}).get(naming.JOB_NAME_LABEL, ""),
        node=found.spec.node_name or "",
        phase=status.phase or "Pending",
        started=running is not None or ended is not None,
        ends_within_s=meta.deletion_grace_period_seconds if meta.deletion_timestamp else None,
        exit_code=ended.exit_code if ended is not None else None,
        reason=_end_reason(meta, status, ended, placer),
        trouble=_trouble(status, blocked),
        lasting=lasting,
        message=(ended.message or "") if ended is not None else "",
        claims=tuple(
            volume.persistent_volume_claim.claim_name
            for volume in found.spec.volumes or ()
            if volume.persistent_volume_claim is not None
        ),
    )


def node_of(found: Any) -> Node:
    """One node."""
    return Node(
        found.metadata.name,
        ready=_condition(found.status, "Ready") is not None,
        schedulable=not found.spec.unschedulable,
        boot_id=found.status.node_info.boot_id if found.status.node_info else "",
    )


def claim_of(found: Any) -> ClaimSeen:
    """One volume claim."""
    annotations = found.metadata.annotations or {}
    return ClaimSeen(tuple(found.spec.access_modes or ()), annotations.get(SELECTED_NODE, ""))


def warning(events: list[Any]) -> str:
    """The newest event if it is a warning. Of two in one second the other one counts: what was in
    the way is not any more, or is said again."""
    newest = max(events, key=lambda e: (_at(e), e.type != "Warning"), default=None)
    if newest is None or newest.type != "Warning":
        return ""
    return _text(newest.reason, newest.message)


def _at(event: Any) -> str:
    """Who writes a series of events tells no ``last_timestamp``."""
    series = event.series.last_observed_time if event.series else None
    return str(series or event.last_timestamp or event.event_time or "")


_NORMAL = ("PodInitializing", "ContainerCreating")


def _condition(status: Any, kind: str, value: str = "True") -> Any:
    """The condition of this kind, if it has this value; else None."""
    conditions = (status.conditions if status is not None else None) or []
    return next((c for c in conditions if (c.type, c.status) == (kind, value)), None)


def _failed(status: Any) -> str | None:
    failed = _condition(status, "Failed")
    return None if failed is None else _text(failed.reason, failed.message)


def _end_reason(meta: Any, status: Any, ended: Any, placer: Any) -> str:
    """What ended the pod, in the words of whoever knows it best."""
    placed = placer.state.terminated if placer is not None and placer.state else None
    if placed is not None and placed.exit_code != 0:
        said = placed.message or placed.reason or f"exit code {placed.exit_code}"
        return f"the SideCar cannot be installed: {said.strip()}"[:MESSAGE_CHARS_MAX]
    if status.reason or status.message:
        return _text(status.reason, status.message)
    disrupted = _condition(status, "DisruptionTarget")
    if disrupted is not None:
        return _text(disrupted.reason, disrupted.message)
    if ended is None:
        return ""
    if ended.exit_code != 0:
        return _text(ended.reason, ended.message or f"exit code {ended.exit_code}")
    if meta.deletion_timestamp:
        return "its pod was deleted; no process is left"
    return "ended on request; no process is left"


def _trouble(status: Any, blocked: Any) -> str:
    if blocked is not None:
        return _text(blocked.reason, blocked.message)
    unscheduled = _condition(status, "PodScheduled", "False")
    return "" if unscheduled is None else _text("it cannot be scheduled", unscheduled.message)


def _text(reason: str | None, message: str | None) -> str:
    words = ": ".join(part for part in (reason, message) if part)
    return " ".join(words.split())[:MESSAGE_CHARS_MAX]
