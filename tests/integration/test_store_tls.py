"""A server with a certificate, and one that wants to know who asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_bed import Bed, bed
from tests.support.mongo_server import Certificate, certificate, server

pytestmark = pytest.mark.mongo


@pytest.fixture(name="bed")
def _bed(tmp_path: Path) -> Iterator[Bed]:
    yield from bed(tmp_path)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("tls"), "server")


@pytest.fixture(scope="module")
def port(key: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a server that speaks TLS and nothing else."""
    with server(tmp_path_factory.mktemp("server"), tls=key) as running:
        yield running.port


def test_a_daemon_works_on_a_server_whose_certificate_the_named_ca_signed(
    bed: Bed, port: int, key: Certificate
) -> None:
    bed.up("--store", f"mongodb://127.0.0.1:{port}/secret", "--store-ca", str(key.ca))
    bed.reaches(bed.submit("first", steps=3), "completed")
    bed.stop()
    found = bed.json(
        *("db", "check", "--store", f"mongodb://127.0.0.1:{port}/secret"),
        *("--store-ca", str(key.ca)),
    )
    assert (found["problems"], found["wrong"], found["compared"]) == ([], [], True)


def test_a_certificate_that_cannot_be_checked_is_refused_with_what_to_do(
    bed: Bed, port: int, key: Certificate, tmp_path: Path
) -> None:
    other = certificate(tmp_path, "other")
    asked = (
        # nobody's word for it; the word of another; another name than the certificate has
        (f"mongodb://127.0.0.1:{port}/mine?tls=true", ()),
        (f"mongodb://127.0.0.1:{port}/mine", ("--store-ca", str(other.ca))),
        (f"mongodb://localhost:{port}/mine", ("--store-ca", str(key.ca))),
    )
    for uri, words in asked:
        refused = bed.reshape("db", "init", "--store", uri, *words)
        assert refused.returncode == 1, refused.stdout
        assert "the server's certificate is not trusted" in refused.stderr
        assert "--store-ca" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_server_is_not_spoken_to_in_the_clear_when_a_ca_is_named(
    bed: Bed, tmp_path: Path, key: Certificate
) -> None:
    with server(tmp_path) as plain:
        refused = bed.reshape("db", "init", "--store", plain.uri, "--store-ca", str(key.ca))
    assert refused.returncode == 1
    assert "does not answer" in refused.stderr


def test_a_user_that_the_server_does_not_accept_is_told_so_without_the_password(
    bed: Bed, tmp_path: Path
) -> None:
    secret = tmp_path / "credentials"
    secret.write_text("ada:s3same")
    secret.chmod(0o600)
    with server(tmp_path) as running:  # it knows no users at all
        uri = f"{running.uri}mine"
        for command in (("db", "init"), ("db", "check"), ("up", "--simulated-gpus", "1")):
            refused = bed.reshape(*command, "--store", uri, "--store-credentials", str(secret))
            assert refused.returncode == 1
            assert "remedy" in refused.stderr
            assert "s3same" not in refused.stdout + refused.stderr
    secret.chmod(0o640)
    open_to_others = bed.reshape("db", "init", "--store", uri, "--store-credentials", str(secret))
    assert open_to_others.returncode == 1
    assert f"chmod 600 {secret}" in open_to_others.stderr
