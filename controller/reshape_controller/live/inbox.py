"""Requests that users wrote into the store themselves: plain inserts and request fields.

Does: polls the inbox, parses each item like any other request, posts it, and acknowledges it after
the append; many records share one append. An invalid record becomes a rejected job that says why.
A job's id is made from its item's id, so an item that is read twice is taken once.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

import structlog

from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import OPERATOR, Role
from reshape_controller.access.rights import Right, Verdict, decide, refusal
from reshape_controller.access.submission import Denied, owned
from reshape_controller.access.token_file import TokenFileError
from reshape_controller.core import events as ev
from reshape_controller.core.errors import ReshapeError, UnknownJob
from reshape_controller.core.model import FieldError, JobId, JobSpec
from reshape_controller.live import user_bounds
from reshape_controller.live.admission import Admission, Refused, job_id
from reshape_controller.live.control import Conflict, Control, NotReady
from reshape_controller.live.journal import Fenced, Pauses
from reshape_controller.live.loop import CannotTake, Loop
from reshape_controller.records import RecordInvalid, from_json, load_json, printable
from reshape_controller.records.limits import NAME_LENGTH_MAX
from reshape_controller.store.protocol import InboxItem, RequestKind, StoreError
from reshape_profiles.loader import parse

POLL_S = 1.0
"""Time from the start of a poll to the start of the next."""
PAUSE_MIN_S = 0.1
"""Least pause between two polls, and the pause before a deferred item is tried again."""
REQUESTS_MAX = 100
"""Items taken per poll."""

log = structlog.get_logger("reshape.inbox")


class RequestForbidden(ReshapeError):
    """The author of an insert may not do this."""


@dataclass(frozen=True, slots=True)
class _Submission:
    """A record on its way into the log."""

    item: str
    event: ev.JobSubmitted | ev.JobRejected | None
    """None: the log has it already."""
    admitted: JobSpec | None = None
    """Record whose name Admission reserves until the append."""


async def watch(loop: Loop, admission: Admission, control: Control, identities: Identities) -> None:
    """Carry out requests until cancelled. Raises Fenced."""
    clock, deferred, pauses = asyncio.get_running_loop().time, "", Pauses()
    while True:
        due_s = clock() + POLL_S
        try:
            items = await loop.store.requests(REQUESTS_MAX)
            loop.journal.on_success()
            pauses = Pauses()
            await _take(loop, admission, control, identities, items)
            deferred = ""
            if len(items) == REQUESTS_MAX:
                continue  # more are waiting
        except StoreError as error:
            loop.journal.on_failure(str(error))
            log.error("inbox-unreadable", error=str(error))
            due_s = clock() + pauses.after(error)
        except Fenced:
            raise
        except ReshapeError as error:
            if deferred != str(error):
                log.warning("inbox-deferred", error=str(error))
            due_s, deferred = 0.0, str(error)
        await loop.store.wait_for_requests(max(due_s - clock(), min(PAUSE_MIN_S, POLL_S)))


async def _take(
    loop: Loop,
    admission: Admission,
    control: Control,
    identities: Identities,
    items: tuple[InboxItem, ...],
) -> None:
    """Carry out items in order; records between two requests share an append."""
    entries: list[_Submission] = []
    try:
        for item in items:
            if item.kind == RequestKind.SUBMIT:
                entries.append(await _entry(loop, admission, identities, item))
                continue
            await _commit(loop, admission, entries)
            why = await _refusal(control, identities, item)
            if why:
                await loop.journal.check_fence()  # a new leader may be able to carry it out
                await loop.store.refuse(item.id, why)
            else:
                await loop.store.acknowledge((item.id,))
        await _commit(loop, admission, entries)
    except TokenFileError:
        await _commit(loop, admission, entries)  # these wait for no token
        raise
    finally:
        _release_names(admission, entries)


async def _entry(
    loop: Loop, admission: Admission, identities: Identities, item: InboxItem
) -> _Submission:
    """Parse and admit a submitted record. Raises StoreError, NotReady, TokenFileError."""
    try:
        spec = _owned(from_json(item.body, looks=_looks(identities, item)), identities, item.owner)
        job = job_id(spec.name, item.id)
        if await _is_in_log(loop, job):
            return _Submission(item.id, None)
        errors = user_bounds.refusals((spec,), loop.engine.state.jobs.values())
        if errors:
            raise Refused(errors)
        admission.admit(spec)
    except (RecordInvalid, Refused, Denied) as error:
        return await _rejection(loop, identities, item, error.errors)
    return _Submission(item.id, ev.JobSubmitted(job, spec), spec)


def _owned(spec: JobSpec, identities: Identities, owner: str) -> JobSpec:
    """The record with its owner and uid. Raises Denied, TokenFileError."""
    identity = identities.of_insert(spec.user, owner)
    verdict = decide(Right.SUBMIT, identity)
    if identity is None or verdict is not Verdict.ALLOWED:
        what = refusal(identity, Right.SUBMIT) if identity is not None else _no_token(owner)
        raise Denied((FieldError("user", what, "ask an operator for a token"),))
    if identity is OPERATOR and not spec.user:
        return spec
    return owned(spec, identity, identities.uids())


def _looks(identities: Identities, item: InboxItem) -> bool:
    """Whether a record's errors may say which paths exist on this machine."""
    identity = identities.of_insert("", item.owner)
    return identity is not None and identity.role is Role.OPERATOR


def _no_token(owner: str) -> str:
    return f"{owner} has no valid token"


async def _rejection(
    loop: Loop, identities: Identities, item: InboxItem, errors: tuple[FieldError, ...]
) -> _Submission:
    name, claim = _author(item.body)
    identity = identities.of_insert(claim, item.owner)
    user = item.owner
    if identity is not None:
        user = claim if identity.role is Role.OPERATOR else identity.name
    job = job_id(name, item.id)
    if await _is_in_log(loop, job):
        return _Submission(item.id, None)
    return _Submission(item.id, ev.JobRejected(job, name, errors, user))


async def _commit(loop: Loop, admission: Admission, entries: list[_Submission]) -> None:
    """Post all entries, wait until they are in the log, acknowledge them together."""
    if not entries:
        return
    posted = [entry for entry in entries if entry.event is not None]
    commits = (loop.commit(entry.event) for entry in posted if entry.event is not None)
    results = await asyncio.gather(*commits, return_exceptions=True)
    refused = []
    for entry, result in zip(posted, results, strict=True):
        if isinstance(result, CannotTake):
            await loop.store.refuse(entry.item, str(result))
            refused.append(entry.item)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, CannotTake):
            raise result
    taken = tuple(entry.item for entry in entries if entry.item not in refused)
    await loop.store.acknowledge(taken)
    _release_names(admission, entries)


def _release_names(admission: Admission, entries: list[_Submission]) -> None:
    for entry in entries:
        if entry.admitted is not None:
            admission.entered(entry.admitted)
    entries.clear()


async def _is_in_log(loop: Loop, job: JobId) -> bool:
    """Whether the log has this job. Raises StoreError, and NotReady while that is unknown."""
    if job in loop.engine.state.jobs:
        return True
    if loop.journal.has_pending_projections:
        raise NotReady("the projections are behind the log, and an item may be in it already")
    row = await loop.store.job(job)
    return row is not None and row.id == job


async def _refusal(control: Control, identities: Identities, item: InboxItem) -> str:
    """Carry out a request; return why it was refused, or nothing.

    Raises StoreError, NotReady and TokenFileError: the request stays in the inbox.
    """
    try:
        await _carry_out(control, identities, item)
    except (StoreError, NotReady, TokenFileError):
        raise
    except Conflict as error:
        # A repeated request, or one whose acknowledgement was lost, has its effect already.
        return "" if error.already_done else _logged(item, str(error))
    except (ReshapeError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        return _logged(item, what)
    return ""


def _logged(item: InboxItem, error: str) -> str:
    log.warning("inbox-refused", id=item.id[:100], kind=item.kind[:100], error=error)
    return error


_RIGHTS = {
    RequestKind.CANCEL: Right.CHANGE_JOB,
    RequestKind.HALT: Right.CHANGE_JOB,
    RequestKind.RESUME: Right.CHANGE_JOB,
    RequestKind.PIN: Right.PIN_JOB,
    RequestKind.DRAIN: Right.OPERATE,
    RequestKind.UNDRAIN: Right.OPERATE,
    RequestKind.CLEAR: Right.OPERATE,
    RequestKind.PROFILE: Right.OPERATE,
}


async def _authorized(
    control: Control, identities: Identities, item: InboxItem, claim: str, job: str
) -> str:
    """Return the author of a request, for the history.

    Raises RequestForbidden, UnknownJob, TokenFileError.
    """
    identity, right = identities.of_insert(claim, item.owner), _RIGHTS[_kind(item.kind)]
    if identity is None:
        raise RequestForbidden(_no_token(item.owner))
    if identity.role is Role.OPERATOR:
        return claim
    owner = None
    if right.about_job:
        row = await control.store.job(job, identity.name)
        if row is None:
            raise UnknownJob(f"unknown job {job!r}")
        owner = row.user
    verdict = decide(right, identity, owner, users_see_all=identities.users_see_all)
    if verdict is Verdict.HIDDEN:
        raise UnknownJob(f"unknown job {job!r}")
    if verdict is not Verdict.ALLOWED:
        raise RequestForbidden(refusal(identity, right))
    return identity.name


async def _carry_out(control: Control, identities: Identities, item: InboxItem) -> None:
    kind = _kind(item.kind)
    body = load_json(item.body)
    if not isinstance(body, dict):
        raise ValueError("the body is not an object")
    claim, job = _user(body.get("user")), str(body.get("job"))
    user = await _authorized(control, identities, item, claim, job)
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
    record = value if isinstance(value, dict) else {}
    name = record.get("name")
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name[:63]).strip("-") if isinstance(name, str) else ""
    return safe or "unnamed", _user(record.get("user"))


def _user(value: object) -> str:
    """The requesting user's name, printable and of bounded length."""
    text = value if isinstance(value, str) else ""
    return printable(text[:NAME_LENGTH_MAX])
