"""A receiver of notifications on loopback, whose answers a test chooses."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

SECRET = "a secret of a receiver"


@dataclass(frozen=True)
class Received:
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """Answers each request with ``status``; the event ``held`` may hold the answer."""

    def __init__(self, status: int = 204, headers: str = "") -> None:
        self.status, self.headers = status, headers
        self.held: asyncio.Event | None = None
        self.received: list[Received] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?key=path-secret"

    @property
    def ids(self) -> list[str]:
        return [each.json["id"] for each in self.received]

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = (line.split(": ", 1) for line in head[1:] if line)
            headers = {name.lower(): value for name, value in pairs}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.received.append(Received({**headers, "request": head[0]}, body))
            if self.held is not None:
                await self.held.wait()
            writer.write(f"HTTP/1.1 {self.status} x\r\n{self.headers}\r\n".encode())
            await writer.drain()
        finally:
            writer.close()
