"""Requests that users wrote into the store themselves: plain inserts and request fields.

Does: polls the inbox, parses each item like any other request, posts it, and acknowledges it after
the append; many records become one append. An item that is no valid record becomes a rejected job
that says why. Never: loses an item, or takes one twice (its id gives the job's id). State: none.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

import structlog

from reshape_controller.core import events as ev
from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.model import FieldError, JobId, JobSpec
from reshape_controller.live.admission import Admission, Refused, job_id
from reshape_controller.live.control import Conflict, Control, NotReady
from reshape_controller.live.journal import Fenced
from reshape_controller.live.loop import CannotTake, Loop
from reshape_controller.records import RecordInvalid, from_json, load_json, printable
from reshape_controller.records.limits import NAME_LENGTH_MAX
from reshape_controller.store.protocol import InboxItem, RequestKind, StoreError
from reshape_profiles.loader import parse

POLL_S = 1.0
"""From one look to the next, whatever the first took."""
PAUSE_MIN_S = 0.1
"""Between a look and the next at least; and before another look at what had to be deferred."""
REQUESTS_MAX = 100
"""Items taken per poll."""

log = structlog.get_logger("reshape.inbox")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A record on its way into the log; without an event it is there already."""

    item: str
    event: ev.JobSubmitted | ev.JobRejected | None
    admitted: JobSpec | None = None


async def watch(loop: Loop, admission: Admission, control: Control) -> None:
    """Take in requests until cancelled. Raises Fenced."""
    clock, deferred = asyncio.get_running_loop().time, ""
    while True:
        due_s = clock() + POLL_S
        try:
            items = await loop.store.requests(REQUESTS_MAX)
            loop.journal.answered()
            await _take(loop, admission, control, items)
            deferred = ""
            if len(items) == REQUESTS_MAX:
                continue  # more are waiting
        except StoreError as error:
            loop.journal.failed(str(error))
            log.error("inbox-unreadable", error=str(error))
        except Fenced:
            raise
        except ReshapeError as error:
            if deferred != str(error):
                log.warning("inbox-deferred", error=str(error))
            due_s, deferred = 0.0, str(error)
        await loop.store.wait_for_requests(max(due_s - clock(), min(PAUSE_MIN_S, POLL_S)))


async def _take(
    loop: Loop, admission: Admission, control: Control, items: tuple[InboxItem, ...]
) -> None:
    """Everything that was read, in its order; records between two requests share an append."""
    entries: list[_Entry] = []
    try:
        for item in items:
            if item.kind == RequestKind.SUBMIT:
                entries.append(await _entry(loop, admission, item))
                continue
            await _commit(loop, admission, entries)
            refusal = await _refusal(control, item)
            if refusal:
                await loop.journal.check_fence()  # who leads may well do what this one cannot
                await loop.store.refuse(item.id, refusal)
            else:
                await loop.store.acknowledge((item.id,))
        await _commit(loop, admission, entries)
    finally:
        _let_go(admission, entries)


async def _entry(loop: Loop, admission: Admission, item: InboxItem) -> _Entry:
    """What a submitted record becomes. Raises StoreError, NotReady."""
    try:
        spec = from_json(item.body)
        job = job_id(spec.name, item.id)
        if await _known(loop, job):
            return _Entry(item.id, None)
        admission.admit(spec)
    except (RecordInvalid, Refused) as error:
        return await _rejection(loop, item, error.errors)
    return _Entry(item.id, ev.JobSubmitted(job, spec), spec)


async def _rejection(loop: Loop, item: InboxItem, errors: tuple[FieldError, ...]) -> _Entry:
    name, user = _author(item.body)
    job = job_id(name, item.id)
    if await _known(loop, job):
        return _Entry(item.id, None)
    return _Entry(item.id, ev.JobRejected(job, name, errors, user))


async def _commit(loop: Loop, admission: Admission, entries: list[_Entry]) -> None:
    """Post all entries, wait until they are in the log, acknowledge them together."""
    if not entries:
        return
    posted = [entry for entry in entries if entry.event is not None]
    commits = (loop.commit(entry.event) for entry in posted if entry.event is not None)
    results = await asyncio.gather(*commits, return_exceptions=True)
    for entry, result in zip(posted, results, strict=True):
        if isinstance(result, CannotTake):  # taken again, it would end every daemon to come
            await loop.store.refuse(entry.item, str(result))
    for result in results:
        if isinstance(result, BaseException):
            raise result
    await loop.store.acknowledge(tuple(entry.item for entry in entries))
    _let_go(admission, entries)


def _let_go(admission: Admission, entries: list[_Entry]) -> None:
    for entry in entries:
        if entry.admitted is not None:
            admission.entered(entry.admitted)
    entries.clear()


async def _known(loop: Loop, job: JobId) -> bool:
    """Whether the log has this job already. Raises StoreError; NotReady while that is not known."""
    if job in loop.engine.state.jobs:
        return True
    if loop.journal.owes_projections:
        raise NotReady("the projections are behind the log, and an item may be in it already")
    row = await loop.store.job(job)
    return row is not None and row.id == job


async def _refusal(control: Control, item: InboxItem) -> str:
    """Carry out what is asked; why not, or nothing. Raises StoreError, NotReady."""
    try:
        await _ask(control, item)
    except (StoreError, NotReady):
        raise
    except Conflict as error:
        # Asked twice, or done before the answer could be written: it is as it was wished.
        return "" if error.as_asked else _logged(item, str(error))
    except (ReshapeError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        return _logged(item, what)
    return ""


def _logged(item: InboxItem, error: str) -> str:
    log.warning("inbox-refused", id=item.id[:100], kind=item.kind[:100], error=error)
    return error


async def _ask(control: Control, item: InboxItem) -> None:
    kind = _kind(item.kind)
    body = load_json(item.body)
    if not isinstance(body, dict):
        raise ValueError("the body is not an object")
    user = _user(body.get("user"))
    match kind:
        case RequestKind.CANCEL:
            await control.cancel(str(body["job"]), user)
        case RequestKind.HALT:
            await control.halt(str(body["job"]), user)
        case RequestKind.RESUME:
            await control.resume(str(body["job"]), user)
        case RequestKind.PIN:
            await control.pin(str(body["job"]), body["size"], user)
        case RequestKind.DRAIN:
            await control.drain(str(body["host"]), user)
        case RequestKind.UNDRAIN:
            await control.undrain(str(body["host"]), user)
        case RequestKind.CLEAR:
            await control.clear(str(body["gpu"]), user)
        case RequestKind.PROFILE:
            await control.record(parse({"profile": body["profile"]}, "body").profiles)


def _kind(text: str) -> RequestKind:
    try:
        return RequestKind(text)
    except ValueError:
        known = ", ".join(RequestKind)
        raise ValueError(f"unknown request {text!r:.40}; use one of: {known}") from None


def _author(body: str) -> tuple[str, str]:
    """Name and user of a record that cannot be read as a whole; the name goes into an id."""
    try:
        value = load_json(body)
    except RecordInvalid:
        return "unreadable", ""
    found = value if isinstance(value, dict) else {}
    name = found.get("name")
    named = re.sub(r"[^A-Za-z0-9._-]+", "-", name[:63]).strip("-") if isinstance(name, str) else ""
    return named or "unnamed", _user(found.get("user"))


def _user(value: object) -> str:
    """Who asks, as it may stand in every table and history."""
    text = value if isinstance(value, str) else ""
    return printable(text[:NAME_LENGTH_MAX])
