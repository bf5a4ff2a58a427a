"""A proxy of the test's own between a store and its server: what a bad network does.

Does: forwards message by message; drops a connection after the server has done what was asked and
before its reply gets through; cuts all connections, or keeps what it is sent to itself, for as long
as it is told to. Never: changes a message. State: its threads, which end with the ``with`` block.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import TracebackType


class Proxy:
    """Forwards to ``port`` on loopback while it is entered; its own port is ``self.port``, at the
    address of this machine that is given.

    ``cuts`` counts the messages that the server did and whose replies were lost.
    """

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self._port = port
        self._server = socket.create_server((address, 0))
        self.port: int = self._server.getsockname()[1]
        self._commands: tuple[bytes, ...] = ()
        self._to_cut = 0
        self._to_pass = 0
        self.cuts = 0
        self._guard = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._closed = False
        self._down = False
        self._speaks = threading.Event()
        self._speaks.set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Proxy:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        self._speaks.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._drop()
        for thread in self._threads:
            thread.join(10)

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Cut every connection, and each new one at once, until the block ends."""
        self._down = True
        self._drop()
        try:
            yield
        finally:
            self._down = False

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Take connections and messages, and answer none until the block ends. The server then gets
        what it was sent, whoever has given up waiting."""
        self._speaks.clear()
        try:
            yield
        finally:
            self._speaks.set()

    def cut_next(self, *commands: str, count: int = 1, after: int = 0) -> None:
        """The server does the next commands of these names; their replies are lost. The first
        ``after`` of them get theirs."""
        with self._guard:
            # As BSON writes it: a text under this name, and not a text that says so.
            self._commands = tuple(b"\x02" + name.encode() + b"\x00" for name in commands)
            self._to_cut, self._to_pass = count, after

    def _start(self, work: object, *arguments: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client:
            if self._down:
                return
            try:
                upstream = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                return
            with upstream:
                pair = (client, upstream)
                with self._guard:
                    self._pairs.add(pair)
                try:
                    while not self._down and self._forward(client, upstream):
                        pass
                except OSError:
                    return
                finally:
                    with self._guard:
                        self._pairs.discard(pair)

    def _forward(self, client: socket.socket, upstream: socket.socket) -> bool:
        """One message there and its reply back; False at the end."""
        request = _message(client)
        if not request:
            return False
        self._speaks.wait()
        upstream.sendall(request)
        reply = _message(upstream)
        with self._guard:
            meant = self._to_cut > 0 and any(name in request for name in self._commands)
            lost = meant and self._to_pass == 0
            self._to_pass -= meant and not lost
            self._to_cut -= lost
            self.cuts += lost
        if lost or not reply:
            return False
        client.sendall(reply)
        return True

    def _drop(self) -> None:
        with self._guard:
            for pair in self._pairs:
                for each in pair:
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)


def _message(source: socket.socket) -> bytes:
    """One message of the wire protocol; empty when the connection has ended."""
    head = _exactly(source, 4)
    rest = _exactly(source, int.from_bytes(head, "little") - 4) if head else b""
    return head + rest if rest else b""


def _exactly(source: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        chunk = source.recv(size - len(found))
        if not chunk:
            return b""
        found += chunk
    return bytes(found)
