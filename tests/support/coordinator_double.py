"""A coordinator for tests of the SideCar: a real Tornado server with the real long poll.

Does: holds one desired state, records every report, and can be away, refuse, or send garbage. It
runs in its own thread, so that tests read as a plain sequence.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from reshape_launcher.spec import worker_token
from reshape_sidecar import codec
from reshape_sidecar.wire import LEVEL_HEADER, WIRE_LEVEL, Desired, Mode, Observed
from reshape_sidecar.wire_levels import desired_at_level, level_in

PATIENCE_S = 30.0
"""Longest wait of a test; far more than an idle machine needs."""
POLL_S = 0.01


@dataclass
class CoordinatorDouble:
    """Start with ``start()``, end with ``stop()``; both may be repeated on the same port."""

    token: str = "secret"
    port: int = 0
    address: str = "127.0.0.1"
    desired: Desired | None = None
    reports: list[Observed] = field(default_factory=list)
    answer: tuple[int, bytes] | None = None
    """Status and body of every answer, if set."""
    level: int = WIRE_LEVEL
    """Level of the reports that it knows; at level 1 it says nothing of it."""
    refused: int = 0
    """Requests with a wrong token."""

    def start(self) -> CoordinatorDouble:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)))
        self._thread.start()
        assert ready.wait(PATIENCE_S)
        return self

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(PATIENCE_S)

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._changed = asyncio.Event()
        route = (r"/v1/sidecar/([^/]+)/(\d+)", _Handler, {"double": self})
        server = HTTPServer(Application([route], log_function=lambda handler: None))
        sockets = bind_sockets(self.port, self.address)
        self.port = sockets[0].getsockname()[1]
        server.add_sockets(sockets)
        ready.set()
        await self._stopped.wait()
        server.stop()
        self._changed.set()
        await server.close_all_connections()

    def want(self, mode: Mode, *devices: str, **fields: object) -> int:
        """Set the next desired state; gives its generation."""
        generation = 1 if self.desired is None else self.desired.generation + 1
        values: dict[str, object] = {"epoch": 1, "job": "job-1", "attempt": 1}
        values |= {"generation": generation, "mode": mode, "devices": devices} | fields
        self.set(Desired(**values))  # type: ignore[arg-type]
        return generation

    def set(self, desired: Desired) -> None:
        self.desired = desired
        self._loop.call_soon_threadsafe(self._changed.set)

    @property
    def newest(self) -> Observed | None:
        return max(self.reports, key=lambda report: report.sequence, default=None)

    def has_news(self, observed: Observed, level: int) -> bool:
        """Whether the desired state differs from the one that a SideCar reports."""
        if self.desired is None:
            return False
        desired = desired_at_level(self.desired, level)
        there = (observed.generation, observed.prepare)
        return (desired.generation, desired.prepare) != there

    def until(self, what: str, holds: Callable[[Observed], bool]) -> Observed:
        """Wait until the newest report is as described; fails with that report otherwise."""
        give_up_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_s:
            newest = self.newest
            if newest is not None and holds(newest):
                return newest
            time.sleep(POLL_S)
        raise AssertionError(f"not within {PATIENCE_S:g} s: {what}; the newest is {self.newest}")


class _Handler(RequestHandler):
    def initialize(self, double: CoordinatorDouble) -> None:
        self.double = double

    async def post(self, job: str, attempt: str) -> None:
        double = self.double
        if double.answer is not None:
            self.set_status(double.answer[0])
            self.finish(double.answer[1])
            return
        worker = int(self.get_query_argument("worker", "0"))
        token = worker_token(double.token, worker)
        if self.request.headers.get("Authorization") != f"Bearer {token}":
            double.refused += 1
            self.set_status(401)
            return
        if double.level > 1:
            self.set_header(LEVEL_HEADER, str(double.level))
        observed = codec.loads(Observed, self.request.body)
        level = min(double.level, level_in(self.request.headers.get(LEVEL_HEADER)))
        double.reports.append(observed)
        wait_until_s = time.monotonic() + float(self.get_query_argument("wait_s"))
        while not double.has_news(observed, level):
            left_s = wait_until_s - time.monotonic()
            if left_s <= 0 or double._stopped.is_set():
                break
            double._changed.clear()
            try:
                await asyncio.wait_for(double._changed.wait(), left_s)
            except TimeoutError:
                break
        if double.desired is None:
            self.set_status(404)
        else:
            self.finish(codec.dumps(desired_at_level(double.desired, level)))
