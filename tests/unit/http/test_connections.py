"""Clients that send nothing, little, or too much at once: they keep no other client out."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from pathlib import Path

import pytest

from reshape_controller.access.identity import OPERATOR
from reshape_controller.http import app, base, connections, room
from reshape_controller.http.connections import connections_max
from tests.support.http_bed import TOKEN, api

PART = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = PART + b"\r\n"
UNFINISHED = b"Content-Length: 9\r\n\r\n{"
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
            token = f"Authorization: Bearer {TOKEN}\r\n".encode()
            body = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\n" + token + UNFINISHED
            busy = [await opened(it.port, body) for _ in range(BOUND)]
            await asyncio.sleep(0.3)
            reader, writer = await opened(it.port, WHOLE)
            with pytest.raises(TimeoutError):  # there is no room: it waits
                await asyncio.wait_for(reader.read(12), 0.5)
            writer.close()
            _, first = busy[0]
            first.close()
            reader, writer = await opened(it.port, WHOLE)
            assert (await asyncio.wait_for(reader.read(12), 10)) == b"HTTP/1.1 200"
            for each in (writer, *(w for _, w in busy)):
                each.close()

    asyncio.run(inside())


@pytest.mark.usefixtures("_few")
@pytest.mark.parametrize("path", [b"/v1/jobs", b"/v1/session", b"/v1/sidecar/job-1/1"])
def test_a_stranger_with_unfinished_bodies_keeps_nobody_out(tmp_path: Path, path: bytes) -> None:
    """A request is permitted at its headers; until then its connection gives way."""

    async def inside() -> None:
        async with api(tmp_path) as it:
            body = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + UNFINISHED
            strangers = [await opened(it.port, body) for _ in range(3 * BOUND)]
            began_s = time.monotonic()
            for _ in range(20):
                assert (await it.get("/v1/jobs")).code == 200
            assert time.monotonic() - began_s < 5
            for _, writer in strangers:
                writer.close()

    asyncio.run(inside())


def test_a_refused_request_gets_its_answer_though_its_body_comes_later(tmp_path: Path) -> None:
    async def inside() -> None:
        async with api(tmp_path) as it:
            head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
            reader, writer = await opened(it.port, head)
            await asyncio.sleep(0.3)
            writer.write(b"x" * 100_000)
            answer = await asyncio.wait_for(reader.read(65536), 10)
            assert answer.startswith(b"HTTP/1.1 401")
            writer.close()
            reader, writer = await opened(it.port, head)
            answer = await asyncio.wait_for(reader.read(65536), 5)
            assert answer.startswith(b"HTTP/1.1 401"), "without the body, after a second"
            writer.close()

    asyncio.run(inside())


def test_a_client_that_takes_no_answer_loses_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "SEND_S", 0.5)

    async def inside() -> None:
        async with api(tmp_path) as it:
            token = f"Authorization: Bearer {TOKEN}\r\n\r\n"
            head = "GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n" + token
            readers = []
            for _ in range(5):
                made = socket.socket()
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                made.connect(("127.0.0.1", it.port))
                made.sendall(head.encode() * 100)
                readers.append(made)
            async with asyncio.timeout(20):
                while it.context.room.under_way(OPERATOR.name):
                    await asyncio.sleep(0.1)
            assert (await it.get("/v1/jobs")).code == 200
            for made in readers:
                made.close()

    asyncio.run(inside())


def test_one_identity_leaves_others_room_for_their_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "UNDER_WAY_MIN", 2)
    monkeypatch.setattr(room, "connections_max", lambda: 4)

    async def inside() -> None:
        async with api(tmp_path) as it:
            waits = [asyncio.create_task(it.get("/v1/events?wait_s=2")) for _ in range(6)]
            codes = sorted([(await each).code for each in waits])
            assert codes == [200, *[429] * 5], "half of what is free"
            assert (await it.get("/v1/jobs")).code == 200

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
