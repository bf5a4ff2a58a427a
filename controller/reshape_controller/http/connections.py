"""Bounds on the connections of a server: their number, and the time until a request's headers.

Does: keeps descriptors free for the daemon's own work (the store, launches, checks of releases); at
the bound closes the connection that has waited longest without a permitted request, so that clients
that send nothing, or a part of a body, keep no other client out. Who was told when to ask again and
asks earlier is refused before a handler is made. State: since when each open connection has waited,
and who was told to wait.
"""

from __future__ import annotations

import resource
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
import tornado.httpserver
from tornado import httputil
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream

HEADER_S = 10.0
"""Longest time from a connection's start until the headers of its first request are there."""
OPEN_MAX = 16
"""Requests whose bodies may be awaited at once without a token, such as logins, and those that are
refused."""
GIVE_WAY_S = 0.05
"""Time that a connection has before it gives way, or a burst of them would close its own first."""
RESERVED_FILES = 256
"""Descriptors that connections leave to the daemon itself; of a low limit it is the half."""
TLS_BEGINS = b"\x16"
"""First byte of a TLS connection; none of HTTP's methods begins with it."""
TOLD_MAX = 1_000
"""Credentials that are refused for a while; with more, the oldest is forgotten."""
SESSION_COOKIE = "reshape"
"""Part of the name of each session's cookie."""
TOO_SOON = {
    "Cache-Control": "no-store",
    "Content-Type": "application/json; charset=utf-8",
    "Retry-After": "1",
    "Server": "reshape",
    "X-Content-Type-Options": "nosniff",
}
LOG_AGAIN_S = 60.0
"""Least time between two log entries about a full server."""

log = structlog.get_logger("reshape.http")


def connections_max(servers: int = 1) -> int:
    """Connections that each of ``servers`` may have open, by this process's limit of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 20
    return max(1, (soft - min(RESERVED_FILES, soft // 2)) // servers)


def credential(headers: httputil.HTTPHeaders) -> str:
    """Return the token of a request, else the cookies of its session, however they are written
    around it; empty without one."""
    words = headers.get("Authorization", "").split()
    if words:
        return words[-1]
    cookies = (each.strip() for each in headers.get("Cookie", "").split(";"))
    return ";".join(each for each in cookies if SESSION_COOKIE in each.partition("=")[0])


class BoundedServer(tornado.httpserver.HTTPServer):
    """An HTTP server with at most ``connections_max`` open connections."""

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        self._connections_max: int = kwargs.pop("connections_max")
        self._tls_too: ssl.SSLContext | None = kwargs.pop("tls_too", None)
        self._unknown: dict[socket.socket, float] = {}
        """Connections that have sent nothing, of which it is not known whether they speak TLS; the
        longest wait first."""
        super().initialize(*args, **kwargs)
        self._streams: set[IOStream] = set()
        self._waiting: dict[IOStream, float] = {}
        """Connections without a request that was permitted or has come whole; the longest wait
        first."""
        self._open: dict[IOStream, None] = {}
        """Those of them whose request is refused, or needs no token, and waits for its body: they
        give way at once."""
        self._asked: set[IOStream] = set()
        """Connections on which a request has come."""
        self._told: dict[str, tuple[float, bytes]] = {}
        """By credential: until when its requests are refused, and the answer."""
        self._log_at_s = 0.0
        self.on_room: Callable[[], None] = lambda: None
        """Called when a connection has closed."""

    @property
    def open_connections(self) -> int:
        """Number of connections that hold a descriptor."""
        return len(self._streams) + len(self._unknown)

    def has_room(self) -> bool:
        """Whether a connection can be taken, if need be in place of one that gives way."""
        if self.open_connections < self._connections_max or self._open:
            return True
        oldest = (next(iter(each.values()), None) for each in (self._unknown, self._waiting))
        since_s = min((at_s for at_s in oldest if at_s is not None), default=None)
        return since_s is not None and time.monotonic() - since_s >= GIVE_WAY_S

    def stop(self) -> None:
        """Accept no more connections, and close those that have sent nothing."""
        super().stop()
        for connection in tuple(self._unknown):
            self._drop(connection)

    def _handle_connection(self, connection: socket.socket, address: Any) -> None:
        """Serve a new connection; with ``tls_too`` once its first byte says whether it has TLS."""
        if self._tls_too is None:
            super()._handle_connection(connection, address)
            return
        if self.open_connections >= self._connections_max and not self._make_room():
            connection.close()
            return
        self._unknown[connection] = time.monotonic()
        loop = IOLoop.current()
        loop.add_handler(connection, lambda *_: self._on_first_byte(connection, address), loop.READ)
        loop.call_later(HEADER_S, self._drop, connection)

    def _on_first_byte(self, connection: socket.socket, address: Any) -> None:
        try:
            first = connection.recv(1, socket.MSG_PEEK)
        except OSError:
            first = b""
        if not first:
            self._drop(connection)
            return
        del self._unknown[connection]
        IOLoop.current().remove_handler(connection)
        self.ssl_options = self._tls_too if first == TLS_BEGINS else None
        super()._handle_connection(connection, address)

    def _drop(self, connection: socket.socket) -> None:
        if self._unknown.pop(connection, None) is not None:
            IOLoop.current().remove_handler(connection)
            connection.close()
            self.on_room()

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Serve a new connection, in place of an idle one if there is no room."""
        if self.open_connections >= self._connections_max and not self._make_room():
            stream.close()
            return
        self._streams.add(stream)
        super().handle_stream(stream, address)
        IOLoop.current().call_later(HEADER_S, self._close_if_silent, stream)

    def start_request(
        self, server_conn: Any, request_conn: httputil.HTTPConnection
    ) -> httputil.HTTPMessageDelegate:
        """Begin to wait for the headers of a connection's next request."""
        self._waiting[server_conn.stream] = time.monotonic()
        delegate = super().start_request(server_conn, request_conn)
        return _UntilHeaders(delegate, self, server_conn.stream, request_conn)

    def on_headers(self, stream: IOStream) -> None:
        """Note that the headers of a request have come."""
        self._waiting.pop(stream, None)
        self._waiting[stream] = time.monotonic()
        self._asked.add(stream)

    def refuse(self, whose: str, wait_s: float, body: bytes) -> None:
        """Answer requests with this credential with 429 for so long."""
        self._told.pop(whose, None)
        self._told[whose] = time.monotonic() + wait_s, body
        if len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]

    def refusal(self, whose: str) -> bytes | None:
        """The answer to a request that comes before it may; None if it may come."""
        until_s, body = self._told.get(whose, (0.0, b""))
        return body if time.monotonic() < until_s else None

    def on_permitted(self, stream: IOStream | None, *, is_open: bool) -> None:
        """Note that a request is permitted by its headers. ``is_open``: it needs no token, so until
        it is whole its connection still gives way; a few of these may wait."""
        if stream is None:
            return
        if is_open:
            self.on_refused(stream)
        else:
            self._waiting.pop(stream, None)

    def on_refused(self, stream: IOStream | None) -> None:
        """Note that a request waits for its body only, and nobody needs that more than a new
        connection."""
        if stream is None or stream not in self._waiting:
            return
        self._open[stream] = None
        if len(self._open) > OPEN_MAX:
            self._close(next(iter(self._open)))

    def on_request(self, stream: IOStream) -> None:
        """Note that a request is whole."""
        self._waiting.pop(stream, None)
        self._open.pop(stream, None)

    def on_close(self, server_conn: Any) -> None:
        self._forget(server_conn.stream)
        super().on_close(server_conn)

    def _make_room(self) -> bool:
        """Close the connection that has waited longest for a request; False if none waits."""
        now_s = time.monotonic()
        if now_s >= self._log_at_s:
            self._log_at_s = now_s + LOG_AGAIN_S
            consequence = "idle connections are closed for new ones"
            count = self._connections_max
            log.warning("connections-full", connections=count, consequence=consequence)
        unknown, stream = next(iter(self._unknown), None), next(iter(self._waiting), None)
        if self._open:
            self._close(next(iter(self._open)))
        elif unknown is not None:
            self._drop(unknown)
        elif stream is not None:
            self._close(stream)
        else:
            return False
        return True

    def _close_if_silent(self, stream: IOStream) -> None:
        if stream in self._waiting and stream not in self._asked:
            self._close(stream)

    def _close(self, stream: IOStream) -> None:
        self._forget(stream)
        stream.close()

    def _forget(self, stream: IOStream) -> None:
        self._streams.discard(stream)
        self._waiting.pop(stream, None)
        self._open.pop(stream, None)
        self._asked.discard(stream)
        self.on_room()


class _UntilHeaders(httputil.HTTPMessageDelegate):
    """Passes a request on, and tells the server when its headers are there, and when all of it."""

    def __init__(
        self,
        inner: httputil.HTTPMessageDelegate,
        server: BoundedServer,
        stream: IOStream,
        connection: httputil.HTTPConnection,
    ) -> None:
        self._inner = inner
        self._server = server
        self._stream = stream
        self._connection = connection

    def headers_received(
        self,
        start_line: httputil.RequestStartLine | httputil.ResponseStartLine,
        headers: httputil.HTTPHeaders,
    ) -> Awaitable[None] | None:
        self._server.on_headers(self._stream)
        body = self._server.refusal(credential(headers))
        if body is not None:
            self._inner = _TooSoon(self._connection, body)
        return self._inner.headers_received(start_line, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        return self._inner.data_received(chunk)

    def finish(self) -> None:
        self._server.on_request(self._stream)
        self._inner.finish()

    def on_connection_close(self) -> None:
        self._inner.on_connection_close()


class _TooSoon(httputil.HTTPMessageDelegate):
    """Answers a request that was told to wait, once it is whole: less would lose the answer."""

    def __init__(self, connection: httputil.HTTPConnection, body: bytes) -> None:
        self._connection = connection
        self._body = body

    def finish(self) -> None:
        headers = httputil.HTTPHeaders(TOO_SOON | {"Content-Length": str(len(self._body))})
        line = httputil.ResponseStartLine("HTTP/1.1", 429, "Too Many Requests")
        self._connection.write_headers(line, headers, self._body)
        self._connection.finish()
