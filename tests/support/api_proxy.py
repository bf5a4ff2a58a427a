"""A proxy of the test's own before an API server: what a bad day of that server does.

Does: forwards request by request over real sockets, also watches and commands in pods; answers some
itself with an error, cuts connections at once, or cuts watches after a time. Never: changes a
request that it forwards. State: the requests that came; its threads end with the ``with`` block.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

CHUNK = 65536
WATCH = "watch=true"


@dataclass(frozen=True)
class Request:
    """A request that came, at a time of the steady clock."""

    at_s: float
    method: str
    path: str
    """With the query."""

    @property
    def watches(self) -> bool:
        return WATCH in self.path


@dataclass(frozen=True)
class Answer:
    """An answer that the proxy gives itself."""

    status: int
    document: dict[str, Any]
    headers: tuple[str, ...] = ()


Fault = Callable[[Request], Answer | None]


def refusal(status: int, reason: str, message: str, *headers: str) -> Answer:
    """An error as an API server writes it."""
    kind = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return Answer(status, {**kind, "code": status, "reason": reason, "message": message}, headers)


TOO_MANY = refusal(429, "TooManyRequests", "too many requests, please try again later")
BROKEN = refusal(500, "InternalError", "etcdserver: request timed out")


class ApiProxy:
    """Forwards to ``url`` while it is entered; ``authority`` trusts an https server.

    ``certificate``: files of a certificate for 127.0.0.1 that is its own authority, and of its key;
    with it clients come by https, without which some send no token.
    """

    def __init__(
        self,
        url: str,
        authority: str | None = None,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        self._to = (parts.hostname or "", parts.port or 443)
        self._trust = None
        if parts.scheme == "https":
            self._trust = ssl.create_default_context(cafile=authority)
        self._own: ssl.SSLContext | None = None
        self._certificate = certificate[0] if certificate is not None else None
        if certificate is not None:
            self._own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._own.load_cert_chain(*certificate)
        self._server = socket.create_server(("127.0.0.1", 0), backlog=128)
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.getsockname()[1]}"
        self.requests: list[Request] = []
        self._fault: Fault = lambda request: None
        self._down = self._closed = False
        self._watch_s: float | None = None
        self._guard = threading.Lock()
        self._open: set[socket.socket] = set()
        self._watches: set[socket.socket] = set()

    def __enter__(self) -> ApiProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._cut(self._open)

    def kubeconfig(self, folder: Path, token: str = "none") -> Path:
        """Write a kubeconfig of this address; its path."""
        cluster, user = {"server": self.url}, {"token": token}
        if self._certificate is not None:
            cluster["certificate-authority"] = str(self._certificate)
        whole = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": cluster}],
            "users": [{"name": "proxy", "user": user}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        }
        path = folder / "proxy.kubeconfig"
        path.write_text(json.dumps(whole))
        return path

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Cut every connection, and each new one at once, until the block ends."""
        self._down = True
        self._cut(self._open)
        try:
            yield
        finally:
            self._down = False

    @contextlib.contextmanager
    def answering(self, fault: Fault | Answer) -> Iterator[None]:
        """Answer requests as ``fault`` says until the block ends; watches are cut at its begin."""
        self._fault = (lambda request: fault) if isinstance(fault, Answer) else fault
        self._cut(self._watches)
        try:
            yield
        finally:
            self._fault = lambda request: None

    @contextlib.contextmanager
    def short_watches(self, watch_s: float) -> Iterator[None]:
        """End each watch in good order after a time, without a change, until the block ends."""
        self._watch_s = watch_s
        self._cut(self._watches)
        try:
            yield
        finally:
            self._watch_s = None

    def since(self, begin_s: float, part: str = "") -> list[Request]:
        """The requests since a time whose path has this part."""
        with self._guard:
            return [r for r in self.requests if r.at_s >= begin_s and part in r.path]

    def _cut(self, those: set[socket.socket]) -> None:
        with self._guard:
            found = tuple(those)
        for each in found:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One request of one connection, which then ends."""
        with self._guard:
            self._open.add(client)
        try:
            if not self._down:
                self._answer_securely(client)
        except (OSError, ValueError, IndexError):
            pass  # either side went away, or was cut
        finally:
            with self._guard:
                self._open.discard(client)
                self._watches.discard(client)
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()

    def _answer_securely(self, client: socket.socket) -> None:
        """Answer on the connection, encrypted if clients come by https."""
        if self._own is None:
            self._answer(client)
            return
        with self._own.wrap_socket(client.dup(), server_side=True) as secure:
            try:
                self._answer(secure)
            finally:
                with self._guard:
                    self._watches.discard(secure)

    def _answer(self, client: socket.socket) -> None:
        head, body = _head(client)
        lines = head.decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ", 2)
        request = Request(time.monotonic(), method, path)
        with self._guard:
            self.requests.append(request)
            if request.watches:
                self._watches.add(client)
        length = next((int(x.split(":")[1]) for x in lines if x.lower().startswith("content-l")), 0)
        while len(body) < length:
            body += _some(client)
        said = self._fault(request)
        if said is not None:
            client.sendall(_written(said))
        elif request.watches and self._watch_s is not None:
            time.sleep(self._watch_s)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        else:
            self._forward(client, lines, body)

    def _forward(self, client: socket.socket, lines: list[str], body: bytes) -> None:
        upgrade = any(line.lower().startswith("upgrade:") for line in lines)
        kept = [line for line in lines if upgrade or not line.lower().startswith("connection:")]
        kept += [] if upgrade else ["Connection: close"]
        kept[1:] = [x for x in kept[1:] if not x.lower().startswith("host:")]
        kept.insert(1, f"Host: {self._to[0]}:{self._to[1]}")
        with self._connected() as server:
            server.sendall("\r\n".join(kept).encode("latin-1") + b"\r\n\r\n" + body)
            back = threading.Thread(target=_pump, args=(client, server), daemon=True)
            back.start()
            try:
                if not upgrade:  # else the client sends its next request down a closed connection
                    head, rest = _head(server)
                    client.sendall(head + b"\r\nConnection: close\r\n\r\n" + rest)
                _pump(server, client)
            finally:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                back.join(10)

    def _connected(self) -> socket.socket:
        plain = socket.create_connection(self._to, 20)
        plain.settimeout(None)
        if self._trust is None:
            return plain
        return self._trust.wrap_socket(plain, server_hostname=self._to[0])


def _head(client: socket.socket) -> tuple[bytes, bytes]:
    """The head of a request or an answer, and what came of its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(client)
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


def _some(client: socket.socket) -> bytes:
    data = client.recv(CHUNK)
    if not data:
        raise ConnectionResetError
    return data


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy until either side ends, and then end the other."""
    with contextlib.suppress(OSError, ValueError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


def _written(answer: Answer) -> bytes:
    body = json.dumps(answer.document).encode()
    lines = (
        f"HTTP/1.1 {answer.status} Said",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *answer.headers,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
