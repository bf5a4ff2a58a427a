"""Two people with a machine each share a daemon: by token, login and TLS, as documented."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_bed import Bed, bed
from tests.unit.cli.test_public_access import certificate

FOREVER = "import time; print('begins', flush=True); time.sleep(600)"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Bed]:
    yield from bed(tmp_path)


class Person:
    """A person with a folder of settings; nothing of the daemon's home is in it."""

    def __init__(self, daemon: Bed, name: str) -> None:
        self._daemon, self.name = daemon, name
        self._folder = daemon.folder / name
        made = daemon.reshape("token", "create", name)
        assert made.returncode == 0, made.stderr
        self.token = made.stdout.strip()

    def reshape(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        places = {"XDG_CONFIG_HOME": str(self._folder), "RESHAPE_HOME": ""}
        return self._daemon.reshape(*words, stdin=stdin, **places)


def test_each_submits_reads_and_cancels_only_jobs_of_their_own(daemon: Bed, tmp_path: Path) -> None:
    files = certificate(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    tls = ("--tls-cert", files["tls_cert"], "--tls-key", files["tls_key"])
    # Whether or not the daemon is root, which would take jobs only of people with uids.
    daemon.up("--public-bind", f"127.0.0.1:{port}", *tls, "--root-jobs", "allow")
    url = f"https://127.0.0.1:{port}"
    ada, bob = (Person(daemon, name) for name in ("ada", "bob"))
    for person in (ada, bob):
        done = person.reshape("login", url, "--ca", files["tls_cert"], stdin=person.token)
        assert done.returncode == 0, done.stderr
        assert f"as {person.name} (user)" in done.stderr
    record = daemon.record("mine", FOREVER, steps=None)
    assert ada.reshape("submit", str(record)).returncode == 0
    assert daemon.reaches("mine", "running")["user"] == "ada"
    assert "mine" in bob.reshape("get").stdout
    for words in (("cancel", "mine"), ("pause", "mine"), ("pin", "mine", "2"), ("logs", "mine")):
        refused = bob.reshape(*words)
        assert refused.returncode == 5, words
        assert "belongs to another user than bob" in refused.stderr
    assert daemon.job("mine")["state"] == "running"
    assert bob.reshape("drain", "local").returncode == 5
    assert "begins" in ada.reshape("logs", "mine").stdout
    assert daemon.reshape("token", "revoke", "bob").returncode == 0
    out = bob.reshape("get")
    assert out.returncode == 5
    assert f"{url} (from login 127.0.0.1" in out.stderr
    assert ada.reshape("cancel", "mine").returncode == 0
    daemon.reaches("mine", "cancelled")
