"""Clients that send nothing, little, or too much at once: they keep no other client out."""

from __future__ import annotations

import asyncio
import resource
import time
from pathlib import Path

import pytest

from reshape_controller.http import app, connections
from reshape_controller.http.connections import connections_max
from tests.support.http_bed import api

PART = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = PART + b"\r\n"
BOUND = 20


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "connections_max", lambda: BOUND)


async def opened(port: int, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    await writer.drain()
    return reader, writer


@pytest.mark.usefixtures("_few")
def test_headers_that_drip_in_end_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_S", 0.5)

    async def inside() -> None:
        async with api(tmp_path) as it:
            reader, writer = await opened(it.port, PART)
            begin_s = time.monotonic()
            drip = asyncio.create_task(dripping(writer))
            assert await asyncio.wait_for(reader.read(), 10) == b""
            assert time.monotonic() - begin_s < 5
            drip.cancel()
            kept, keeps = await opened(it.port, WHOLE)
            assert (await kept.read(12)) == b"HTTP/1.1 200"
            await asyncio.sleep(1.0)
            keeps.write(WHOLE)
            assert b"HTTP/1.1 200" in await kept.read(2000) + await kept.read(2000)
            for each in (writer, keeps):
                each.close()

    asyncio.run(inside())


async def dripping(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"X")
        await asyncio.sleep(0.05)


@pytest.mark.usefixtures("_few")
def test_idle_connections_make_room_for_one_that_asks(tmp_path: Path) -> None:
    async def inside() -> None:
        async with api(tmp_path) as it:
            idle = [await opened(it.port, PART) for _ in range(5 * BOUND)]
            before = time.monotonic()
            for _ in range(10):
                assert (await it.get("/v1/gpus")).code == 200
            assert time.monotonic() - before < 10
            for _, writer in idle:
                writer.close()

    asyncio.run(inside())


@pytest.mark.usefixtures("_few")
def test_a_request_under_way_is_not_closed_for_a_new_connection(tmp_path: Path) -> None:
    """A long poll is such a request: every SideCar has one open."""

    async def inside() -> None:
        async with api(tmp_path) as it:
            body = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
            busy = [await opened(it.port, body) for _ in range(BOUND)]
            await asyncio.sleep(0.3)
            reader, writer = await opened(it.port, WHOLE)
            assert await asyncio.wait_for(reader.read(), 10) == b"", "there is no room"
            writer.close()
            _, first = busy[0]
            first.close()
            await asyncio.sleep(0.3)
            reader, writer = await opened(it.port, WHOLE)
            assert (await asyncio.wait_for(reader.read(12), 10)) == b"HTTP/1.1 200"
            for each in (writer, *(w for _, w in busy)):
                each.close()

    asyncio.run(inside())


def test_connections_leave_descriptors_to_the_daemon() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
        assert connections_max() == min(1024, hard) - connections.RESERVED_FILES
        assert connections_max(2) == (min(1024, hard) - connections.RESERVED_FILES) // 2
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
        assert connections_max() == 50
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
