"""Requests that users wrote into the store themselves: plain inserts.

Does: polls the inbox, parses each item like any other request, posts it, and acknowledges it after
the append. An item that is no valid record becomes a rejected job that says why. Never: loses an
item, or takes one twice (its id gives the job's id). State: none.
"""

from __future__ import annotations

import asyncio
import re

import structlog

from reshape_controller.core import events as ev
from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.model import FieldError
from reshape_controller.live.admission import Admission, Refused, job_id
from reshape_controller.live.desk import Desk
from reshape_controller.live.loop import Loop
from reshape_controller.records import RecordInvalid, from_insert, load_json
from reshape_controller.store.protocol import InboxItem, RequestKind, StoreError

POLL_S = 1.0
REQUESTS_MAX = 100
"""Items taken per poll."""

_AUTHOR = ("name", "user")

log = structlog.get_logger("reshape.inbox")


async def watch(loop: Loop, admission: Admission, desk: Desk) -> None:
    """Take in requests until cancelled."""
    while True:
        try:
            items = await loop.store.requests(REQUESTS_MAX)
            for item in items:
                await _take(loop, admission, desk, item)
                await loop.store.acknowledge((item.id,))
        except StoreError as error:
            log.error("inbox-unreadable", error=str(error))
        except ReshapeError as error:
            log.warning("inbox-deferred", error=str(error))
        await asyncio.sleep(POLL_S)


async def _take(loop: Loop, admission: Admission, desk: Desk, item: InboxItem) -> None:
    if item.kind == RequestKind.SUBMIT:
        await _submit(loop, admission, item)
        return
    try:
        await _ask(desk, item)
    except StoreError:
        raise
    except (ReshapeError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("inbox-refused", id=item.id, kind=item.kind, error=str(error))


async def _submit(loop: Loop, admission: Admission, item: InboxItem) -> None:
    try:
        spec = from_insert(item.body)
        job = job_id(spec.name, item.id)
        if await _known(loop, job):
            return
        admission.admit(spec)
    except (RecordInvalid, Refused) as error:
        await _reject(loop, item, error.errors)
        return
    try:
        await loop.commit(ev.JobSubmitted(job, spec))
    finally:
        admission.entered(spec)


async def _reject(loop: Loop, item: InboxItem, errors: tuple[FieldError, ...]) -> None:
    name, user = _author(item.body)
    job = job_id(name, item.id)
    if not await _known(loop, job):
        await loop.commit(ev.JobRejected(job, name, errors, user))


async def _known(loop: Loop, job: str) -> bool:
    row = await loop.store.job(job)
    return row is not None and row.id == job


async def _ask(desk: Desk, item: InboxItem) -> None:
    body = load_json(item.body)
    if not isinstance(body, dict):
        raise ValueError("the body is not an object")
    user = str(body.get("user", ""))
    match RequestKind(item.kind):
        case RequestKind.CANCEL:
            await desk.cancel(str(body["job"]), user)
        case RequestKind.HALT:
            await desk.halt(str(body["job"]), user)
        case RequestKind.RESUME:
            await desk.resume(str(body["job"]), user)
        case RequestKind.DRAIN:
            await desk.drain(str(body["host"]), user)
        case RequestKind.UNDRAIN:
            await desk.undrain(str(body["host"]), user)


def _author(body: str) -> tuple[str, str]:
    """Name and user of a record that cannot be read as a whole; the name goes into an id."""
    try:
        value = load_json(body)
    except RecordInvalid:
        return "unreadable", ""
    found = value if isinstance(value, dict) else {}
    name, user = (text if isinstance(text, str) else "" for text in map(found.get, _AUTHOR))
    named = re.sub(r"[^A-Za-z0-9._-]+", "-", name[:63]).strip("-")
    return named or "unnamed", "".join(c for c in user[:63] if c.isprintable())
