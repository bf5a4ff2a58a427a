"""The client of the HTTP API for asyncio: the same methods as ``Client``, to await.

Does: send by Tornado, which is imported at the first request. State: the HTTP client, which belongs
to the event loop of the first request.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar

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

if TYPE_CHECKING:
    import ssl

    from tornado.httpclient import AsyncHTTPClient

T = TypeVar("T")

REQUESTS_MAX = 100
"""Largest number of requests under way; further ones wait."""
BODY_BYTES_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class _Sender:
    """Tornado's HTTP client, and the permits of requests under way: a request that waits in its
    queue instead would soon count as unanswered."""

    http: AsyncHTTPClient
    permits: asyncio.Semaphore
    tls: ssl.SSLContext | None


class AsyncClient(Connection):
    """A client of a daemon, for asyncio. Its methods and errors are those of ``Client``."""

    _sender: _Sender | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the HTTP client; the next request opens another."""
        if self._sender is not None:
            self._sender.http.close()
            self._sender = None

    async def submit(
        self, job: Record | str | os.PathLike[str], *, key: str | None = None
    ) -> JobView:
        return await self.ask(requests.submit(record.read(job), key))

    async def submit_array(self, jobs: Record | str | os.PathLike[str]) -> tuple[str, ...]:
        return (await self.ask(requests.submit_array(record.read(jobs)))).jobs

    async def try_out(self, job: Record | str | os.PathLike[str]) -> Trial:
        return await self.ask(requests.trial(record.read(job)))

    async def get(self, key: str) -> JobView:
        return await self.ask(requests.job(key))

    async def jobs(
        self,
        *,
        state: str | None = None,
        user: str | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> tuple[JobView, ...]:
        return (await self.run(flows.all_jobs(state, user, name, limit))).jobs

    async def page(
        self,
        *,
        limit: int | None = None,
        after: str | None = None,
        state: str | None = None,
        user: str | None = None,
        name: str | None = None,
    ) -> JobPage:
        return await self.ask(requests.jobs(limit, after, state, user, name))

    async def wait(self, key: str, *, timeout_s: float | None = None) -> JobView:
        return await self.run(flows.wait(key, timeout_s))

    def logs(
        self, key: str, *, follow: bool = False, tail: int = 200, file: str = "training.log"
    ) -> AsyncIterator[str]:
        return lines.joined_async(self.log_parts(key, follow=follow, tail=tail, file=file))

    def log_parts(
        self, key: str, *, follow: bool = False, tail: int = 200, file: str = "training.log"
    ) -> AsyncIterator[LogPart]:
        return self._steps(Run(flows.log(key, file, tail, follow=follow)))

    def events(self, key: str, *, follow: bool = False) -> AsyncIterator[EventView]:
        return self._steps(Run(flows.events(key, follow=follow)))

    async def explain(self, key: str) -> tuple[DecisionView, ...]:
        return (await self.ask(requests.decisions(key))).decisions

    async def usage(
        self,
        from_s: float | datetime | None = None,
        to_s: float | datetime | None = None,
        *,
        by: By | str = By.USER,
        user: str | None = None,
    ) -> Usage:
        return await self.ask(requests.usage(seconds(from_s), seconds(to_s), str(by), user))

    async def cancel(self, key: str) -> JobView:
        return await self.ask(requests.act(key, "cancel"))

    async def pause(self, key: str) -> JobView:
        return await self.ask(requests.act(key, "pause"))

    async def resume(self, key: str) -> JobView:
        return await self.ask(requests.act(key, "resume"))

    async def pin(self, key: str, size: int | None) -> JobView:
        return await self.ask(requests.pin(key, size))

    async def gpus(self) -> tuple[GpuView, ...]:
        return (await self.ask(requests.gpus())).gpus

    async def whoami(self) -> IdentityView:
        return await self.ask(requests.whoami())

    async def ask(self, request: Request[T]) -> T:
        """Send a request; return the value of its answer."""
        return await self.run(flows.asked(request, self.patience_s))

    async def run(self, flow: Flow[T]) -> T:
        """Carry out a flow without items; return its result."""
        run = Run(flow)
        async for _ in self._steps(run):
            pass
        return run.result  # type: ignore[return-value]

    async def _steps(self, run: Run[Any]) -> AsyncIterator[Any]:
        """Carry out the steps of a flow; yield its items."""
        while (step := run.next_step()) is not None:
            match step:
                case Request():
                    try:
                        answer = await self._exchange(step)
                        run.answered(answers.value(self.target, step, answer))
                    except ClientError as error:
                        run.failed(error)
                case Pause(pause_s):
                    await asyncio.sleep(pause_s)
                case Item(value):
                    yield value

    async def _exchange(self, request: Request[Any]) -> Response:
        from tornado.httpclient import HTTPClientError, HTTPRequest

        sender = self._open()
        message = HTTPRequest(
            self.url + request.target,
            method=request.method,
            headers=self._headers(request),
            body=request.data if request.method == "POST" else None,
            connect_timeout=ANSWER_S,
            request_timeout=ANSWER_S,
            follow_redirects=False,
            ssl_options=sender.tls,
        )
        try:
            async with sender.permits:
                answer = await sender.http.fetch(message, raise_error=False)
        except HTTPClientError as error:  # the connection was closed, or the time is over
            raise answers.unreachable(self.target, error) from None
        except OSError as error:
            raise answers.unreachable(self.target, error) from None
        return self._response(answer.code, dict(answer.headers.get_all()), answer.body)

    def _open(self) -> _Sender:
        """Return the sender, and make it if there is none. Raises SettingError."""
        if self._sender is None:
            from tornado.simple_httpclient import SimpleAsyncHTTPClient

            tls = self._tls()
            http = SimpleAsyncHTTPClient(
                force_instance=True, max_clients=REQUESTS_MAX, max_body_size=BODY_BYTES_MAX
            )
            self._sender = _Sender(http, asyncio.Semaphore(REQUESTS_MAX), tls)
        return self._sender
