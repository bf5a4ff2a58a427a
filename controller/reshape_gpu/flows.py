"""What takes several requests: wait, follow, read all pages. One text for both clients.

A flow is a generator. It yields a request, and is sent the value of the answer or thrown the
error; it yields a pause; and it yields items for the caller. It returns its result. Never: sends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from reshape_gpu import requests
from reshape_gpu.errors import ClientError, TooManyRequests, Unreachable, WaitTimeout
from reshape_gpu.requests import Request
from reshape_gpu.values import EventView, JobPage, JobView

T = TypeVar("T")

ASK_AGAIN_S = 0.5
PATIENCE_S = 120.0
"""Time for which a flow that follows a job asks again, to survive a restart of the daemon."""
SHARE_S = 60.0
"""Time for which any request is sent again while its user asks too often."""
POLL_S = 0.5
LOG_WAIT_S = 20.0
PAGE = 500
HISTORY_MAX = 1000
"""Largest number of entries in an answer; the newest."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Go on after a time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """A value for the caller, while the flow goes on."""

    value: T


Step = Request[Any] | Pause | Item[Any]
Flow = Generator[Step, Any, T]


class Run(Generic[T]):
    """A flow and what it waits for; a client carries out its steps."""

    def __init__(self, flow: Flow[T]) -> None:
        self._flow = flow
        self._answer: object = None
        self._error: ClientError | None = None
        self.result: T | None = None

    def next_step(self) -> Step | None:
        """Return what is to be done now; None at the end. Raises ClientError."""
        answer, error = self._answer, self._error
        self._answer = self._error = None
        try:
            return self._flow.send(answer) if error is None else self._flow.throw(error)
        except StopIteration as end:
            self.result = end.value
            return None

    def answered(self, answer: object) -> None:
        """Give the flow the value that its request is answered with."""
        self._answer = answer

    def failed(self, error: ClientError) -> None:
        """Give the flow the error of its request."""
        self._error = error


@dataclass(frozen=True, slots=True)
class LogPart:
    """Bytes of a log file. ``missed``: bytes before them that are gone; None: an unknown number."""

    data: bytes
    missed: int | None
    is_last: bool


def asked(
    request: Request[T], patience_s: float, clock: Callable[[], float] = time.monotonic
) -> Flow[T]:
    """Send a request; a GET again for some time while no daemon answers, and any request when the
    daemon says so, because its user asks too often."""
    now_s = clock()
    until_s = now_s + (patience_s if request.method == "GET" else 0.0)
    share_until_s = now_s + SHARE_S
    while True:
        pause_s = ASK_AGAIN_S
        try:
            answer: T = yield request
            return answer
        except Unreachable:
            if clock() >= until_s:
                raise
        except TooManyRequests as error:
            pause_s = error.again_after_s
            if clock() + pause_s >= share_until_s:
                raise
        yield Pause(pause_s)


def wait(
    key: str, timeout_s: float | None, clock: Callable[[], float] = time.monotonic
) -> Flow[JobView]:
    """Return the job once it has ended, or is paused for an error.

    Raises WaitTimeout, also if no daemon answers when the time is over.
    """
    until_s = None if timeout_s is None else clock() + timeout_s
    while True:
        patience_s = PATIENCE_S if until_s is None else min(PATIENCE_S, until_s - clock())
        try:
            job = yield from asked(requests.job(key), patience_s, clock)
        except Unreachable as error:
            if until_s is None or clock() < until_s:
                raise
            away = error.problems[0].what
            what = f"it is not known whether {key} has ended after {timeout_s:g} s: {away}"
            raise WaitTimeout.of(what, f"timeout_s={timeout_s:g}", "wait again later") from None
        if job.has_ended or job.is_paused_for_error:
            return job
        if until_s is not None and clock() >= until_s:
            what = f"{job.id} has not ended after {timeout_s:g} s: it is {job.state}"
            raise WaitTimeout.of(what, f"timeout_s={timeout_s:g}", "wait longer, or cancel it")
        key = job.id  # another job may get its name
        yield Pause(POLL_S)


def log(key: str, file: str, tail: int, *, follow: bool) -> Flow[None]:
    """Yield the parts of a log file; with ``follow`` until the job has ended."""
    patience_s, wait_s = (PATIENCE_S, LOG_WAIT_S) if follow else (0.0, 0.0)
    if follow:  # by its id, because another job may get its name
        key = (yield from asked(requests.job(key), patience_s)).id
    request = requests.logs(key, file, tail=tail, wait_s=wait_s)
    while True:
        answer = yield from asked(request, patience_s)
        head = {name.removeprefix("reshape-log-"): text for name, text in answer.headers.items()}
        attempt, following = int(head["attempt"]), int(head["next"])
        more = following < int(head["size"])
        is_last = head["ended"] == "true" or not (follow or more)
        missed = head.get("missed", "0")
        yield Item(LogPart(answer.body, int(missed) if missed.isdecimal() else None, is_last))
        if is_last:
            return
        if attempt:
            request = requests.logs(key, file, offset=following, attempt=attempt, wait_s=wait_s)


def events(key: str, *, follow: bool) -> Flow[None]:
    """Yield the entries of a job's history; with ``follow`` new ones until the job has ended."""
    patience_s = PATIENCE_S if follow else 0.0
    before: tuple[EventView, ...] = ()
    while True:
        job = yield from asked(requests.job(key), patience_s)
        key = job.id
        entries = (yield from asked(requests.history(key), patience_s)).events
        for entry in entries[overlap(before, entries) :]:
            yield Item(entry)
        if not follow or job.has_ended:
            return
        before = entries
        yield Pause(POLL_S)


def overlap(before: tuple[EventView, ...], entries: tuple[EventView, ...]) -> int:
    """Return how many of the entries were in the answer before.

    Below the largest number, entries only come; at it, the oldest also leave.
    """
    if len(entries) < HISTORY_MAX:
        return len(before)
    for number in range(min(len(before), len(entries)), 0, -1):
        if before[-number:] == entries[:number]:
            return number
    return 0


def all_jobs(
    state: str | None,
    user: str | None,
    name: str | None,
    limit: int | None,
    after: str | None = None,
) -> Flow[JobPage]:
    """Return all jobs that are chosen, or the first ``limit`` of them, oldest first."""
    found: tuple[JobView, ...] = ()
    while True:
        size = PAGE if limit is None else min(PAGE, limit - len(found))
        request = requests.jobs(size, after, state, user, name)
        page = yield from asked(request, 0.0)
        found, after = found + page.jobs, page.next_after
        if after is None or len(found) == limit:
            return JobPage(found, page.total, None)
