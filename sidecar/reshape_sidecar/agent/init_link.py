"""The agent's connection to its init: sends requests, receives every status.

Does: holds the newest status. A request that equals the one before is not sent: init is idempotent,
but each answer would cause the next request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from reshape_sidecar import codec, limits
from reshape_sidecar.init import files
from reshape_sidecar.init.values import GetStatus, InitStatus, Request

RETRY_S = 0.05


class InitGone(Exception):
    """Init is not reachable: without it there is no container."""


class InitLink:
    """One open connection. ``changed`` is called at each new status."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        status: InitStatus,
        changed: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._changed = changed
        self._sent: Request | None = None
        self._status_received = asyncio.Event()
        self.status = status

    @classmethod
    async def open(cls, path: Path, changed: Callable[[], None]) -> InitLink:
        """Connect and receive the first status. Raises InitGone."""
        give_up_s = time.monotonic() + limits.INIT_CONNECT_S
        while True:
            try:
                client = files.connect(path, limits.INIT_CONNECT_S)
                break
            except OSError as error:
                if time.monotonic() >= give_up_s:
                    raise InitGone(f"{path}: {error}") from None
                await asyncio.sleep(RETRY_S)
        client.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=client)
        writer.write(codec.dumps(GetStatus()).encode() + b"\n")
        return cls(reader, writer, await _next(reader), changed)

    def send(self, request: Request) -> bool:
        """Send ``request``; False, without sending, if it equals the request before."""
        if request == self._sent:
            return False
        self._sent = request
        # An environment may hold bytes that are no text; they pass unchanged.
        self._writer.write(codec.dumps(request).encode(errors="surrogatepass") + b"\n")
        return True

    async def ask(self, request: Request) -> bool:
        """Send ``request`` and wait for the next status; False as with ``send``."""
        self._status_received.clear()
        if not self.send(request):
            return False
        await self._status_received.wait()
        return True

    async def listen(self) -> None:
        """Receive each status until init is gone; then raise InitGone."""
        while True:
            status = await _next(self._reader)
            self._status_received.set()
            if status != self.status:
                self.status = status
                self._changed()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def _next(reader: asyncio.StreamReader) -> InitStatus:
    try:
        line = await reader.readline()
    except (OSError, ValueError) as error:
        raise InitGone(str(error)) from None
    if not line.endswith(b"\n"):
        raise InitGone("init closed its socket")
    return codec.loads(InitStatus, line)
