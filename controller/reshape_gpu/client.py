"""The client of the HTTP API.

Does: find the daemon as a command does, send requests, and turn every failure into an error with a
remedy. Never: touch the store, or repeat a request that changes state.
"""

from __future__ import annotations

import http.client
import os
import time
import urllib.parse
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Self, TypeVar

from reshape_gpu import answers, flows, lines, record, requests
from reshape_gpu.connection import ANSWER_S, Connection, seconds
from reshape_gpu.errors import ClientError
from reshape_gpu.flows import Flow, Item, LogPart, Pause, Run
from reshape_gpu.record import Record
from reshape_gpu.requests import Request, Response
from reshape_gpu.usage import By, Usage
from reshape_gpu.values import (
    DecisionView,
    EventView,
    GpuView,
    IdentityView,
    JobPage,
    JobView,
    Trial,
)

T = TypeVar("T")


class Client(Connection):
    """A client of a daemon. ``key`` of each method is a job's id or name.

    Every method raises ClientError: NotFound, Refused, RecordRejected, Unreachable.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing stays open between requests."""

    def submit(self, job: Record | str | os.PathLike[str], *, key: str | None = None) -> JobView:
        """Submit a record, or the file of one; return the job.

        ``key``: a repeat with the same name and key is the same job.
        """
        return self.ask(requests.submit(record.read(job), key))

    def submit_array(self, jobs: Record | str | os.PathLike[str]) -> tuple[str, ...]:
        """Submit a record with ``array``: all of its members, or none; return the ids."""
        return self.ask(requests.submit_array(record.read(jobs))).jobs

    def try_out(self, job: Record | str | os.PathLike[str]) -> Trial:
        """Return what would happen to a record if it were submitted; nothing changes."""
        return self.ask(requests.trial(record.read(job)))

    def get(self, key: str) -> JobView:
        """Return a job."""
        return self.ask(requests.job(key))

    def jobs(
        self,
        *,
        state: str | None = None,
        user: str | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> tuple[JobView, ...]:
        """Return jobs, oldest first. ``state``: several with commas; ``name``: a pattern."""
        return self.run(flows.all_jobs(state, user, name, limit)).jobs

    def page(
        self,
        *,
        limit: int | None = None,
        after: str | None = None,
        state: str | None = None,
        user: str | None = None,
        name: str | None = None,
    ) -> JobPage:
        """Return a page of jobs. ``after``: the ``next_after`` of the page before."""
        return self.ask(requests.jobs(limit, after, state, user, name))

    def wait(self, key: str, *, timeout_s: float | None = None) -> JobView:
        """Return the job once it has ended, or is paused for an error. Raises WaitTimeout."""
        return self.run(flows.wait(key, timeout_s))

    def logs(
        self, key: str, *, follow: bool = False, tail: int = 200, file: str = "training.log"
    ) -> Iterator[str]:
        """Yield the last lines of a log; with ``follow`` also new ones, until the job ends."""
        return lines.joined(self.log_parts(key, follow=follow, tail=tail, file=file))

    def log_parts(
        self, key: str, *, follow: bool = False, tail: int = 200, file: str = "training.log"
    ) -> Iterator[LogPart]:
        """Yield a log as bytes, and how many are missing."""
        return self._items(flows.log(key, file, tail, follow=follow))

    def events(self, key: str, *, follow: bool = False) -> Iterator[EventView]:
        """Yield the history of a job; with ``follow`` also new entries, until it ends."""
        return self._items(flows.events(key, follow=follow))

    def explain(self, key: str) -> tuple[DecisionView, ...]:
        """Return the decisions about a job, oldest first; ``explanation`` has each in words."""
        return self.ask(requests.decisions(key)).decisions

    def usage(
        self,
        from_s: float | datetime | None = None,
        to_s: float | datetime | None = None,
        *,
        by: By | str = By.USER,
        user: str | None = None,
    ) -> Usage:
        """Return GPU-seconds in a stretch of time (Unix seconds); default: up to now."""
        return self.ask(requests.usage(seconds(from_s), seconds(to_s), str(by), user))

    def cancel(self, key: str) -> JobView:
        """Cancel a job for good."""
        return self.ask(requests.act(key, "cancel"))

    def pause(self, key: str) -> JobView:
        """Ask for a checkpoint and the release of its GPUs."""
        return self.ask(requests.act(key, "pause"))

    def resume(self, key: str) -> JobView:
        """Queue a paused job again."""
        return self.ask(requests.act(key, "resume"))

    def pin(self, key: str, size: int | None) -> JobView:
        """Fix a job's number of GPUs; None allows all of its numbers again."""
        return self.ask(requests.pin(key, size))

    def gpus(self) -> tuple[GpuView, ...]:
        """Return the GPUs."""
        return self.ask(requests.gpus()).gpus

    def whoami(self) -> IdentityView:
        """Return the identity of the token."""
        return self.ask(requests.whoami())

    def ask(self, request: Request[T]) -> T:
        """Send a request; return the value of its answer."""
        return self.run(flows.asked(request, self.patience_s))

    def run(self, flow: Flow[T]) -> T:
        """Carry out a flow without items; return its result."""
        run = Run(flow)
        for _ in self._steps(run):
            pass
        return run.result  # type: ignore[return-value]

    def _items(self, flow: Flow[None]) -> Iterator[Any]:
        return self._steps(Run(flow))

    def _steps(self, run: Run[Any]) -> Iterator[Any]:
        """Carry out the steps of a flow; yield its items."""
        while (step := run.next_step()) is not None:
            match step:
                case Request():
                    try:
                        run.answered(answers.value(self.target, step, self._exchange(step)))
                    except ClientError as error:
                        run.failed(error)
                case Pause(pause_s):
                    time.sleep(pause_s)
                case Item(value):
                    yield value

    def _exchange(self, request: Request[Any]) -> Response:
        parts = urllib.parse.urlsplit(self.url)
        connection = self._connection(parts)
        try:
            path = parts.path + request.target
            connection.request(request.method, path, request.data, self._headers(request))
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise answers.unreachable(self.target, error) from None
        finally:
            connection.close()
        return self._response(answer.status, dict(answer.getheaders()), data)

    def _connection(self, parts: urllib.parse.SplitResult) -> http.client.HTTPConnection:
        """Return a connection, not open yet. Raises SettingError."""
        host, tls = parts.hostname or "", self._tls()
        if tls is None:
            return http.client.HTTPConnection(host, parts.port or 80, timeout=ANSWER_S)
        return http.client.HTTPSConnection(host, parts.port or 443, timeout=ANSWER_S, context=tls)
