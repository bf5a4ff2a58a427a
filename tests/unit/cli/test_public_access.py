"""The socket for people elsewhere: TLS or a trusted proxy, and nothing without."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.cli.serve import public_access as module
from reshape_controller.cli.serve.public_access import PublicAccess, public_access
from reshape_gpu.client import Client
from reshape_gpu.config import load
from reshape_gpu.errors import ClientError
from reshape_gpu.target import Target
from tests.support.http_bed import TOKEN, Api, api


def certificate(folder: Path, name: str = "first") -> dict[str, str]:
    """Settings with a new certificate for 127.0.0.1 that is its own CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.fromtimestamp(time.time(), datetime.UTC)
    addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(form))
    plain = serialization.NoEncryption()
    bytes_of_key = key.private_bytes(form, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(bytes_of_key)
    return {
        "public_bind": "127.0.0.1:7443",
        "tls_cert": str(folder / "cert.pem"),
        "tls_key": str(folder / "key.pem"),
    }


def settings(**flags: str) -> PublicAccess | None:
    return public_access(load(flags, {"XDG_CONFIG_HOME": "/nowhere"}))


def refused(**flags: str) -> str:
    with pytest.raises(CliError) as error:
        settings(**flags)
    assert error.value.code is Exit.USAGE
    return error.value.text()


def test_a_bind_beyond_loopback_needs_tls_or_a_trusted_proxy(tmp_path: Path) -> None:
    assert settings() is None
    text = refused(public_bind="0.0.0.0:7443")
    assert "without TLS" in text
    assert "--tls-cert" in text
    assert "--trusted-proxy" in text
    behind = settings(public_bind="0.0.0.0:7443", trusted_proxy="10.0.0.2")
    assert behind is not None
    assert behind.peers == frozenset({"10.0.0.2", "127.0.0.1", "::1"})
    own = settings(**certificate(tmp_path), public_names="gpu.lab, GPU2.lab")
    assert own is not None
    assert own.peers is None
    assert {"gpu.lab", "gpu2.lab", "127.0.0.1", socket.gethostname().lower()} == own.names


def test_each_wrong_setting_is_named_with_its_remedy(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    assert "is not IP-ADDRESS:PORT" in refused(public_bind="lab:7443", trusted_proxy="10.0.0.2")
    assert "is not an IP address" in refused(public_bind="0.0.0.0:1", trusted_proxy="proxy")
    assert "tls_cert is only one half" in refused(public_bind="0.0.0.0:1", tls_cert="x")
    assert "tls_key needs public_bind" in refused(tls_key="x")
    (tmp_path / "key.pem").write_text("no key")
    assert "the certificate cannot be used" in refused(**files)


async def serving(folder: Path, given: PublicAccess, test: object) -> None:
    async with api(folder) as it:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        server = given.server(listening, it.context)
        server.start()
        try:
            await asyncio.to_thread(test, it, listening.getsockname()[1])  # type: ignore[arg-type]
        finally:
            await server.stop()


def at(url: str, token: str = TOKEN, ca: Path | None = None) -> Client:
    return Client.at(Target(url, token, "", "", ca))


def test_people_elsewhere_ask_over_tls_and_trust_only_the_given_ca(tmp_path: Path) -> None:
    flags = certificate(tmp_path)
    given = settings(**flags)
    assert given is not None

    def ask(it: Api, port: int) -> None:
        url, ca = f"https://127.0.0.1:{port}", Path(flags["tls_cert"])
        found = at(url, ca=ca).whoami()
        assert (found.name, found.role) == ("operator", "operator")
        with pytest.raises(ClientError, match="certificate verify failed") as error:
            at(url).whoami()
        assert "--ca FILE" in error.value.text()
        with pytest.raises(ClientError, match="cannot be reached"):
            at(f"http://127.0.0.1:{port}").whoami()
        with pytest.raises(ClientError, match="refuses the token"):
            at(url, "wrong", ca).whoami()

    asyncio.run(serving(tmp_path, given, ask))


def test_only_the_trusted_proxy_may_connect_without_tls(tmp_path: Path) -> None:
    class Elsewhere(PublicAccess):
        peers = frozenset({"192.0.2.1"})

    def ask(it: Api, port: int) -> None:
        with pytest.raises(ClientError, match=r"127\.0\.0\.1 is not the trusted proxy"):
            at(f"http://127.0.0.1:{port}").whoami()

    given = Elsewhere("127.0.0.1", 1, frozenset(), None, "192.0.2.1")
    asyncio.run(serving(tmp_path, given, ask))


def test_a_renewed_certificate_is_used_and_a_damaged_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.02)
    flags = certificate(tmp_path)
    given = settings(**flags)
    assert given is not None
    assert given.certificate is not None

    def ask(it: Api, port: int) -> None:
        ca = tmp_path / "ca.pem"
        ca.write_bytes(Path(flags["tls_cert"]).read_bytes())
        client = at(f"https://127.0.0.1:{port}", ca=ca)
        client.whoami()
        Path(flags["tls_cert"]).write_text("damaged")
        asyncio.run(asyncio.sleep(0.1))
        client.whoami()
        certificate(tmp_path, "second")
        client = at(f"https://127.0.0.1:{port}", ca=Path(flags["tls_cert"]))
        client.patience_s = 20.0
        client.whoami()

    async def both() -> None:
        assert given is not None
        assert given.certificate is not None
        following = asyncio.create_task(given.certificate.follow())
        try:
            await serving(tmp_path, given, ask)
        finally:
            following.cancel()

    asyncio.run(both())
