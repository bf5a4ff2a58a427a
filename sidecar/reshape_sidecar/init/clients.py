"""The connections to init's socket: requests come in, the status goes out.

Does: reads JSON lines and answers each with the status. A client of another user, one that sends
garbage, and one that does not read are disconnected.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from reshape_sidecar import codec
from reshape_sidecar.init import files, logs
from reshape_sidecar.init.values import InitStatus, Request
from reshape_sidecar.limits import REQUEST_BYTES_MAX

READ_BYTES = 1 << 16
_UCRED = struct.Struct("3i")


class Clients:
    """All connections on init's socket, served by one selector."""

    def __init__(
        self,
        path: Path,
        selector: selectors.BaseSelector,
        serve: Callable[[Request], None],
        status: Callable[[], InitStatus],
    ) -> None:
        self._selector = selector
        self._serve = serve
        self._status = status
        self._open: dict[socket.socket, bytearray] = {}
        self._server = files.listen(path)
        selector.register(self._server, selectors.EVENT_READ, self._accept)

    def broadcast(self) -> None:
        """Send the status to every client."""
        line = codec.dumps(self._status()).encode() + b"\n"
        for client in list(self._open):
            self._send(client, line)

    def _accept(self) -> None:
        try:
            client, _ = self._server.accept()
        except OSError:
            return
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        _, user, _ = _UCRED.unpack(credentials)
        if user not in (os.getuid(), 0):
            logs.write_line(f"user {user} was refused on the socket")
            client.close()
            return
        client.setblocking(False)
        self._open[client] = bytearray()
        self._selector.register(client, selectors.EVENT_READ, lambda: self._read(client))

    def _read(self, client: socket.socket) -> None:
        try:
            data = client.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        buffer = self._open[client]
        buffer += data
        if not data or len(buffer) > REQUEST_BYTES_MAX:
            self._close(client)
            return
        while client in self._open and b"\n" in buffer:
            line, _, rest = bytes(buffer).partition(b"\n")
            buffer[:] = rest
            self._answer(client, line)

    def _answer(self, client: socket.socket, line: bytes) -> None:
        try:
            request: Request = codec.loads(Request, line)  # type: ignore[arg-type]
        except codec.CodecError as error:
            logs.write_line(f"a request was refused: {error}")
            self._close(client)
            return
        self._serve(request)
        self._send(client, codec.dumps(self._status()).encode() + b"\n")

    def _send(self, client: socket.socket, line: bytes) -> None:
        try:
            # A status is far smaller than the kernel's buffer: if that is full, the client hangs.
            if client.send(line) != len(line):
                self._close(client)
        except OSError:
            self._close(client)

    def _close(self, client: socket.socket) -> None:
        if self._open.pop(client, None) is not None:
            self._selector.unregister(client)
            client.close()
