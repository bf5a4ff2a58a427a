"""Connections while the process has no file descriptor left for another one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

from structlog.testing import capture_logs

from tests.support.http_bed import api

FULL_S = 0.8
ANSWER_S = 10.0


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_without_a_descriptor_connections_wait_and_the_log_says_it_once(tmp_path: Path) -> None:
    async def inside() -> None:
        loop, failed = asyncio.get_running_loop(), list[object]()
        loop.set_exception_handler(lambda _, context: failed.append(context))
        async with api(tmp_path) as it:
            with socket.socket() as client, capture_logs() as said:
                client.setblocking(False)
                with no_descriptor_left():
                    await loop.sock_connect(client, ("127.0.0.1", it.port))
                    await asyncio.sleep(FULL_S)
                request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
                await loop.sock_sendall(client, request)
                answer = await asyncio.wait_for(loop.sock_recv(client, 100), ANSWER_S)
        assert answer.startswith(b"HTTP/1.1 200")
        assert [line["event"] for line in said] == ["no-connections-left"]
        assert failed == []

    asyncio.run(inside())
