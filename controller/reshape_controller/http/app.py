"""The daemon's web application, and the socket on which it listens.

Does: the table of routes; one server with bounds on time and size; a listening socket that pauses
while no connection can be opened (``Accepting``). The first socket is on loopback; people
elsewhere have another, which its caller protects.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import structlog
import tornado.web
from tornado.ioloop import IOLoop

from reshape_controller.core.errors import ReshapeError
from reshape_controller.http import (
    cluster,
    events,
    jobs,
    logs,
    overview,
    page_files,
    probes,
    recent_history,
    session,
    sidecar,
)
from reshape_controller.http.base import BODY_BYTES_MAX, Gate, NotFound
from reshape_controller.http.connections import BoundedServer, connections_max
from reshape_controller.http.context import Access
from reshape_controller.http.routes import JOB_ACTIONS, OpenApi, rights_of, templates_of
from reshape_gpu.values import KEY

NONE_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of an accept for which there is no descriptor or memory left."""
PAUSE_S = 0.25
"""Pause before the next accept after such an error."""
ROOM_S = 0.02
"""Longest pause before the next accept while every connection has a request under way."""
LOG_AGAIN_S = 60.0
"""Least time between two log entries about it."""

log = structlog.get_logger("reshape.http")


class Accepting(socket.socket):
    """A listening socket that pauses when connections run out, instead of spinning, and while its
    server has no room: clients then wait in the kernel's queue. It belongs to the event loop in
    which it accepts."""

    _log_at_s = 0.0
    _pauses = False
    """Whether it waits for its server's room, and not for descriptors."""
    has_room: Callable[[], bool] | None = None
    """Whether its server can take a connection."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises BlockingIOError also if none can be opened now."""
        if self.has_room is not None and not self.has_room():
            self._pauses = True
            self._pause(ROOM_S)
            raise BlockingIOError
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in NONE_LEFT:
                raise
            self._log(error)
            self._pause(PAUSE_S)
            raise BlockingIOError from None

    def on_room(self) -> None:
        """Accept again at once, because a connection has closed."""
        if self._pauses:
            self._resume(IOLoop.current())

    def _pause(self, pause_s: float) -> None:
        loop = IOLoop.current()
        loop.update_handler(self, 0)
        loop.call_later(pause_s, self._resume, loop)

    def _log(self, error: OSError) -> None:
        now_s = time.monotonic()
        if now_s >= self._log_at_s:
            self._log_at_s = now_s + LOG_AGAIN_S
            consequence = "new connections wait until others are closed"
            log.warning("no-connections-left", error=error.strerror, consequence=consequence)

    def _resume(self, loop: IOLoop) -> None:
        self._pauses = False
        if self.fileno() >= 0:  # otherwise the server was stopped meanwhile
            loop.update_handler(self, IOLoop.READ)


LOOPBACK = "127.0.0.1"
HEADER_BYTES_MAX = 16 * 1024
IDLE_CONNECTION_S = 75.0
BODY_S = 10.0
"""Longest time for a body to arrive."""
BACKLOG = 1024

_KEY = f"({KEY})"

Route = tuple[str, type[Gate]]

_SIDECAR: Route = (rf"/v1/sidecar/{_KEY}/([0-9]{{1,9}})", sidecar.SideCar)
ROUTES: tuple[Route, ...] = (
    _SIDECAR,
    (r"/v1/jobs", jobs.Jobs),
    (r"/v1/arrays", jobs.Arrays),
    (r"/v1/trials", jobs.Trials),
    (rf"/v1/jobs/{_KEY}", jobs.OneJob),
    (rf"/v1/jobs/{_KEY}/({'|'.join(JOB_ACTIONS)})", jobs.JobAction),
    (rf"/v1/jobs/{_KEY}/pin", jobs.JobPin),
    (rf"/v1/jobs/{_KEY}/history", jobs.JobHistory),
    (rf"/v1/jobs/{_KEY}/decisions", jobs.JobDecisions),
    (rf"/v1/jobs/{_KEY}/logs", logs.JobLogs),
    (rf"/v1/jobs/{_KEY}/series", jobs.JobSeries),
    (r"/v1/events", events.Events),
    (r"/v1/history", recent_history.RecentEvents),
    (r"/v1/overview", overview.OverviewPage),
    (r"/v1/gpus", cluster.Gpus),
    (rf"/v1/gpus/{_KEY}/clear", cluster.GpuClear),
    (r"/v1/hosts", cluster.Hosts),
    (rf"/v1/hosts/{_KEY}/(drain|undrain)", cluster.HostAction),
    (r"/v1/profiles", cluster.Profiles),
    (r"/v1/timeline", cluster.TimelinePage),
    (r"/v1/usage", cluster.UsagePage),
    (r"/v1/state", cluster.StatePage),
    (r"/v1/openapi.json", OpenApi),
    (r"/v1/status", cluster.StatusPage),
    (r"/v1/whoami", cluster.WhoAmI),
    (r"/v1/session", session.SessionPage),
    (r"/v1/session/links", session.SessionLinks),
    (r"/metrics", cluster.MetricsPage),
    (r"/healthz", cluster.Healthz),
    (r"/readyz", cluster.Readyz),
)
PAGE_ROUTES: tuple[Route, ...] = (
    (r"/(?:page)?", page_files.ToPage),
    (r"/page/(.*)", page_files.Page),
)
"""Files for browsers; the interface for programs does not describe them."""
LEADER_ROUTES: tuple[Route, ...] = (*ROUTES, *PAGE_ROUTES)
SIDECAR_ROUTES: tuple[Route, ...] = (
    _SIDECAR,
    (r"/healthz", probes.Alive),
    (r"/readyz", probes.Leads),
    (r"/metrics", cluster.ScrapedMetrics),
)
"""Routes for pods: the SideCars' long poll, for which each attempt has a token, the probes by which
the cluster checks that this process answers, and that SideCars should connect to it, and the
figures that it scrapes."""
STANDBY_ROUTES: tuple[Route, ...] = (
    (r"/healthz", probes.Alive),
    (r"/v1/status", probes.StandbyStatus),
)
STANDBY_SIDECAR_ROUTES: tuple[Route, ...] = ((r"/healthz", probes.Alive),)


class CannotListen(ReshapeError):
    """The address cannot be listened on. ``remedy`` says what to do."""

    def __init__(self, message: str, remedy: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.refused = refused


def bind(address: str, port: int) -> socket.socket:
    """Open a listening socket on loopback; port 0 is any free port. Raises CannotListen."""
    try:
        loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise CannotListen(
            f"address {address} is not a loopback address; without TLS the daemon listens on "
            "loopback only",
            f"use --bind {LOOPBACK}; for people elsewhere add --public-bind {address or 'IP'}:PORT "
            f"with --tls-cert and --tls-key, or use: ssh -L PORT:{LOOPBACK}:PORT HOST",
            refused=True,
        )
    return _listening(address, port)


def bind_beyond_loopback(address: str, port: int) -> socket.socket:
    """Open a listening socket that other machines reach: for ``SIDECAR_ROUTES``, or for people
    with TLS or a trusted proxy. Raises CannotListen."""
    return _listening(address, port)


def _listening(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        plain = socket.create_server((address, port), family=family, backlog=BACKLOG)
        listening = Accepting(fileno=plain.detach())
        listening.setblocking(False)
        return listening
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        what = "is in use by another program" if in_use else str(error.strerror)
        raise CannotListen(
            f"port {port} of {address} {what}", "name another port: --port N, or 0 for a free one"
        ) from None


def host_names(address: str) -> frozenset[str]:
    """Names by which a daemon on ``address`` may be addressed."""
    return frozenset({address.lower(), "localhost", LOOPBACK, "::1"})


class Server:
    """Serves the API on a bound socket."""

    def __init__(
        self,
        listening: socket.socket,
        context: Access,
        routes: tuple[Route, ...] = LEADER_ROUTES,
        otherwise: type[Gate] = NotFound,
        connections: int | None = None,
        tls: ssl.SSLContext | None = None,
        tls_too: ssl.SSLContext | None = None,
    ) -> None:
        """``connections``: most that may be open; None: as this process's limit of files allows.
        ``tls_too``: for connections that begin with TLS, where others may be plain."""
        application = tornado.web.Application(
            [
                (
                    pattern,
                    handler,
                    {
                        "context": context,
                        "rights": rights_of(pattern),
                        "templates": templates_of(pattern),
                    },
                )
                for pattern, handler in routes
            ],
            default_handler_class=otherwise,
            default_handler_args={"context": context, "rights": {}, "templates": ()},
            log_function=lambda handler: None,
        )
        self._server = BoundedServer(
            application,
            ssl_options=tls,
            tls_too=tls_too,
            connections_max=connections_max() if connections is None else connections,
            max_header_size=HEADER_BYTES_MAX,
            max_body_size=4 * BODY_BYTES_MAX,
            max_buffer_size=8 * BODY_BYTES_MAX,
            idle_connection_timeout=IDLE_CONNECTION_S,
            body_timeout=BODY_S,
        )
        application.settings["on_permitted"] = self._server.on_permitted
        application.settings["on_refused"] = self._server.on_refused
        application.settings["refuse"] = self._server.refuse
        if isinstance(listening, Accepting):
            listening.has_room = self._server.has_room
            self._server.on_room = listening.on_room
        self._socket = listening

    @property
    def port(self) -> int:
        """The port on which it listens."""
        found: int = self._socket.getsockname()[1]
        return found

    def start(self) -> None:
        """Accept connections; to be called inside a running event loop."""
        self._server.add_sockets([self._socket])

    async def stop(self) -> None:
        """Accept no more connections, and close the open ones."""
        self._server.stop()
        await self._server.close_all_connections()
