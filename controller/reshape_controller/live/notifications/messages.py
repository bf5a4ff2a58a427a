"""Entries of the history as notifications: what is sent, to whom, and its signature. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass

from reshape_controller.core.attempts import PAUSED
from reshape_controller.core.model import Job
from reshape_controller.core.record import HistoryEntry
from reshape_controller.live.notifications.targets import Event, Target

EVENTS = {
    "completed": (Event.ENDED,),
    "cancelled": (Event.ENDED,),
    "failed": (Event.FAILED, Event.ENDED),
    "failure": (Event.FAILED,),
    "reshape-cost": (Event.RESHAPED,),
    "late": (Event.LATE,),
    "differs": (Event.DIFFERS,),
    "gpu-quarantined": (Event.QUARANTINED,),
    "granted": (Event.WAITING,),
}
"""The events of an entry, by its kind; a target gets the first of them that it wants. ``failure``
counts if it pauses the job, ``granted`` if the job waited too long before it."""
WAIT_ENDS = ("granted", "cancelled", "failed")
"""Kinds of entries that may end the wait for the first GPUs."""


@dataclass(frozen=True, slots=True)
class Message:
    """A notification. A receiver drops one whose ``id`` it has had."""

    id: str
    event: Event
    body: bytes


def of_entry(
    target: Target, seq: int, number: int, entry: HistoryEntry, job: Job | None
) -> Iterator[Message]:
    """Yield what a target gets for an entry. ``job``: the entry's, if it has one."""
    if entry.job is not None and (job is None or target.name not in job.spec.notify):
        return
    if job is not None and entry.kind in WAIT_ENDS and waited_long(target, job, entry.at_s):
        yield of_wait(target, job)
    if entry.kind == "granted":
        return
    if entry.kind == "failure" and (job is None or not job.reason.startswith(PAUSED)):
        return
    for event in EVENTS.get(entry.kind, ()):
        if event in target.events:
            yield _message(f"{seq}-{number}", event, entry.at_s, entry.text, entry.value, job)
            return


def waited_long(target: Target, job: Job, at_s: float) -> bool:
    """Whether a job that has its first GPUs at ``at_s``, or none until then, waited too long."""
    is_first = job.started_at_s is None or job.started_at_s >= at_s
    waited_s = at_s - job.submitted_at_s
    return Event.WAITING in target.events and is_first and waited_s > target.after_s


def wait_id(job: Job) -> str:
    """Return the id of the notification that a job waits for too long."""
    return f"{job.id}-waiting"


def of_wait(target: Target, job: Job) -> Message:
    """Return the notification of a job that waits for too long; it has one such."""
    at_s = job.submitted_at_s + target.after_s
    text = f"waits for its first GPUs for more than {target.after_s:g} s"
    return _message(wait_id(job), Event.WAITING, at_s, text, target.after_s, job)


def headers(target: Target, message: Message, now_s: float) -> dict[str, str]:
    """Return the headers of a notification, with its signature."""
    stamp = str(int(now_s))
    return {
        "Content-Type": "application/json",
        "User-Agent": "reshape",
        "Reshape-Event": message.event.value,
        "Reshape-Id": message.id,
        "Reshape-Timestamp": stamp,
        "Reshape-Signature": f"sha256={signature(target.secret, stamp, message.body)}",
    }


def signature(secret: bytes, stamp: str, body: bytes) -> str:
    """Return the HMAC-SHA256 over the timestamp, a dot and the body."""
    return hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _message(
    key: str, event: Event, at_s: float, text: str, value: float | None, job: Job | None
) -> Message:
    about = None
    if job is not None:
        about = {"id": job.id, "name": job.spec.name, "user": job.spec.user}
    body = {"id": key, "event": event, "at_s": at_s, "text": text, "value": value, "job": about}
    return Message(key, event, json.dumps(body).encode())
