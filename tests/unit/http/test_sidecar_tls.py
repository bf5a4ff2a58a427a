"""SideCars in pods take only the key that their spec pins, on the port that also speaks plain HTTP.

Real sockets and OpenSSL: the agent's own link against the daemon's server.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_controller.http import connections, sidecar_tls
from reshape_controller.http.app import SIDECAR_ROUTES, Server, bind
from reshape_controller.http.sidecar_tls import SidecarTls
from reshape_sidecar.agent import coordinator_link, pinned_key
from reshape_sidecar.agent.coordinator_link import CoordinatorLink
from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode
from reshape_sidecar.wire import LEVEL_PINS, Observed, Phase
from tests.support.http_bed import RECORD, Api, api

OURS, OTHERS = (sidecar_tls.sidecar_tls(text) for text in (b"our secret", b"another"))
RFC_8032 = (
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701c"
        "f9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f76098"
        "4dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
)


@pytest.mark.parametrize(("seed", "public", "message", "signature"), RFC_8032)
def test_key_and_signature_are_those_of_the_standard(
    seed: str, public: str, message: str, signature: str
) -> None:
    assert sidecar_tls.public_key(bytes.fromhex(seed)).hex() == public
    assert sidecar_tls.sign(bytes.fromhex(seed), bytes.fromhex(message)).hex() == signature


def test_each_controller_with_the_secret_has_the_key_and_no_other_has_it() -> None:
    assert sidecar_tls.sidecar_tls(b"our secret").key_sha256 == OURS.key_sha256
    assert OTHERS.key_sha256 != OURS.key_sha256


def test_the_url_with_tls_is_that_of_the_same_port() -> None:
    for plain, tls in (
        ("http://192.0.2.7:7471", "https://192.0.2.7:7471"),
        ("http://reshape.training", "https://reshape.training:80"),
        ("http://[2001:db8::7]:7471", "https://[2001:db8::7]:7471"),
    ):
        assert SidecarTls.url(plain) == tls


@pytest.mark.parametrize(
    "data", [b"", b"\x30", b"\x30\x84\xff\xff\xff\xff", b"\x30\x03\x30\x7f\x00"]
)
def test_what_is_no_certificate_has_no_key(data: bytes) -> None:
    with pytest.raises(ValueError, match="it is cut"):
        pinned_key.key_sha256(data)


@contextlib.asynccontextmanager
async def served(it: Api, tls: SidecarTls, connections_max: int = 20) -> AsyncIterator[int]:
    """A server of SideCars beside the daemon's own; its port."""
    listening = bind("127.0.0.1", 0)
    server = Server(
        listening,
        replace(it.context, pins_key=True),
        SIDECAR_ROUTES,
        connections=connections_max,
        tls_too=tls.context,
    )
    server.start()
    try:
        yield server.port
    finally:
        await server.stop()


async def job_of(it: Api) -> str:
    job: str = (await it.post("/v1/jobs", RECORD)).json["id"]
    await it.reaches(job, "running")
    return job


async def reports(it: Api, job: str, url: str, key: str | None) -> tuple[bool, str]:
    """Whether the agent's link can report at a URL, and what troubles it."""
    spec = AttemptSpec(job, 1, job, (), "/", "/", url, 1, DeviceMode.SIMULATED, controller_key=key)
    seen = it.launcher.job(job).observed
    link = CoordinatorLink(
        spec,
        token=lambda: it.tokens.of(job, 1),
        observe=lambda: replace(seen, sequence=seen.sequence + 10),
        learn=lambda desired: True,
        on_acknowledged=lambda: None,
    )
    await link.push_once(10.0)
    return link.sequence_acknowledged > 0, link._trouble or ""


def test_a_sidecar_reports_to_the_pinned_key_alone_and_an_older_one_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def inside() -> None:
        async with api(tmp_path) as it, served(it, OURS) as port, served(it, OTHERS) as other:
            job = await job_of(it)
            tls, plain = f"https://127.0.0.1:{port}", f"http://127.0.0.1:{port}"
            assert await reports(it, job, tls, OURS.key_sha256) == (True, "")
            done, why = await reports(it, job, plain, None)
            assert (done, "HTTP 403" in why) == (False, True), "an attempt of this release"
            with monkeypatch.context() as patched:
                patched.setattr(coordinator_link, "WIRE_LEVEL", LEVEL_PINS - 1)
                assert await reports(it, job, plain, None) == (True, ""), "an attempt of before"
            done, why = await reports(it, job, f"https://127.0.0.1:{other}", OURS.key_sha256)
            assert not done, "another's key"
            assert "this attempt knows" in why
            done, why = await reports(it, job, plain, OURS.key_sha256)
            assert (done, "no token is sent" in why) == (False, True)
            done, why = await reports(it, job, tls, None)
            assert not done, "without a pin the certificate needs a signer, as a proxy's"

    asyncio.run(inside())


def test_a_renewed_certificate_of_the_same_key_is_taken() -> None:
    seed = b"s" * 32
    first = sidecar_tls.certificate(seed)
    renewed = first.replace(b"991231", b"991230")
    assert renewed != first
    assert pinned_key.key_sha256(renewed) == pinned_key.key_sha256(first)


def test_no_byte_of_a_request_reaches_a_server_with_another_key() -> None:
    async def inside() -> bytes:
        heard = bytearray()

        async def listens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.extend(await reader.read(1000))
            writer.close()

        server = await asyncio.start_server(listens, "127.0.0.1", 0, ssl=OTHERS.context)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        spec = AttemptSpec("j", 1, "j", (), "/", "/", url, 1, DeviceMode.SIMULATED)
        link = CoordinatorLink(
            replace(spec, controller_key=OURS.key_sha256),
            token=lambda: "token-to-keep",
            observe=lambda: Observed("j", 1, 1, 1, Phase.RUNNING),
            learn=lambda desired: True,
            on_acknowledged=lambda: None,
        )
        await link.push_once(10.0)
        server.close()
        return bytes(heard)

    assert asyncio.run(inside()) == b""


def test_connections_that_say_nothing_make_room_on_the_port_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_S", 1.0)

    async def inside() -> None:
        async with api(tmp_path) as it, served(it, OURS, connections_max=5) as port:
            job = await job_of(it)
            silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
            for _ in range(3):
                done = await reports(it, job, f"https://127.0.0.1:{port}", OURS.key_sha256)
                assert done == (True, "")
            begun = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
            for each in begun:
                each.sendall(connections.TLS_BEGINS)  # a handshake that never goes on
            done = await reports(it, job, f"https://127.0.0.1:{port}", OURS.key_sha256)
            assert done == (True, "")
            await asyncio.sleep(1.3)
            for each in silent:
                each.setblocking(False)
                with contextlib.suppress(ConnectionResetError):
                    assert each.recv(1) == b"", "closed"
            for each in (*silent, *begun):
                each.close()

    asyncio.run(inside())


def test_what_is_neither_tls_nor_http_is_closed(tmp_path: Path) -> None:
    async def inside() -> None:
        async with api(tmp_path) as it, served(it, OURS) as port:
            for data in (
                b"\x16\x03\x01\x00\x05hello",
                b"\x00" * 100,
                b"\xff\r\n\r\n",
                b"\x16" * 70_000,
            ):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(data)
                writer.write_eof()
                with contextlib.suppress(ConnectionResetError):
                    assert b"200" not in await asyncio.wait_for(reader.read(), 20)
                writer.close()
            job = await job_of(it)
            assert (await reports(it, job, f"https://127.0.0.1:{port}", OURS.key_sha256))[0]

    asyncio.run(inside())
