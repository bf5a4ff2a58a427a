"""A second server, with logins: wrong and changed passwords, rights, and refusals told from faults.

It runs beside the contract of tests/contract on the same server (``make test-ferretdb``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_controller.store.mongo import login as login_module
from reshape_controller.store.mongo.address import Credentials, MongoAddress, parse
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import StoreError, StoreRefused
from tests.support.daemon_bed import Bed, bed, eventually
from tests.support.ferretdb import FerretDb, server
from tests.support.store_values import records

pytestmark = [pytest.mark.ferretdb, pytest.mark.gate]
FIRST, SECOND, THIRD = records(3)


@pytest.fixture(name="bed")
def _bed(tmp_path: Path) -> Iterator[Bed]:
    yield from bed(tmp_path)


@pytest.fixture
def ada(ferretdb: FerretDb) -> Iterator[str]:
    """A user of the server with the password ``s3same``."""
    ferretdb.command({"createUser": "ada", "pwd": "s3same", "roles": []})
    yield "ada"
    ferretdb.command({"dropUser": "ada"})


class File:
    """What a credentials file holds, and how often it was read."""

    def __init__(self, address: MongoAddress) -> None:
        self.address = address
        self.reads = 0

    def read(self) -> MongoAddress:
        self.reads += 1
        return self.address

    def holds(self, password: str) -> None:
        self.address = replace(self.address, credentials=Credentials("ada", password))


def file_of(server: FerretDb, password: str) -> File:
    return File(parse(server.bare("logins"), Credentials("ada", password)))


def test_a_wrong_password_is_a_refusal_with_a_remedy_and_without_the_password(
    ferretdb: FerretDb, ada: str
) -> None:
    store = MongoStore(file_of(ferretdb, "0pen").address)
    with pytest.raises(StoreRefused) as refused:
        asyncio.run(store.open())
    assert refused.value.login
    assert "rejects the user or password" in str(refused.value)
    assert "0pen" not in str(refused.value)


def test_a_user_without_a_login_is_refused_too(ferretdb: FerretDb) -> None:
    with pytest.raises(StoreRefused, match="denies this"):
        asyncio.run(MongoStore(ferretdb.bare("logins")).open())


def test_a_server_that_is_away_is_a_fault_and_no_refusal(
    tmp_path: Path, ferretdb: FerretDb
) -> None:
    with server(tmp_path) as other:
        address = other.address("gone")
    with pytest.raises(StoreError, match="does not answer") as fault:
        asyncio.run(MongoStore(address).open())
    assert not isinstance(fault.value, StoreRefused)


def test_a_changed_password_is_read_again_and_the_store_goes_on(
    tmp_path: Path, ferretdb: FerretDb, ada: str
) -> None:
    file = file_of(ferretdb, "s3same")

    async def scenario() -> None:
        store = MongoStore(file.read(), file.read)
        await store.open()
        try:
            await store.append(FIRST)
            ferretdb.command({"updateUser": "ada", "pwd": "n3w"})
            file.holds("n3w")
            await drop_connections(store)
            await store.append(SECOND)
            assert await store.last_seq() == 2
        finally:
            await store.close()

    asyncio.run(scenario())
    assert file.reads == 2, "at the start, and once the server refused"


def test_a_wrong_password_is_not_sent_again_and_again(
    ferretdb: FerretDb, ada: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop appends again each second; the server sees two logins, not twenty."""
    file = file_of(ferretdb, "s3same")
    calls = 0
    connected = MongoStore._call

    async def counted(self: MongoStore, *args: object) -> object:
        nonlocal calls
        calls += 1
        return await connected(self, *args)  # type: ignore[arg-type]

    async def scenario() -> None:
        store = MongoStore(file.read(), file.read)
        await store.open()
        ferretdb.command({"updateUser": "ada", "pwd": "n3w"})
        await drop_connections(store)
        monkeypatch.setattr(MongoStore, "_call", counted)
        for _ in range(20):
            with pytest.raises(StoreRefused):
                await store.last_seq()
        assert calls == 1
        monkeypatch.setattr(login_module, "REFUSED_AGAIN_S", 0.0)
        store._login._again_at_s = 0.0
        with pytest.raises(StoreRefused):
            await store.last_seq()
        assert calls == 2, "after a while it asks: the user may have been mended on the server"
        file.holds("n3w")
        assert await store.last_seq() >= 0, "the file is read again before each refusal"
        await store.close()

    asyncio.run(scenario())


async def drop_connections(store: MongoStore) -> None:
    """As a server does that starts again: the next call has to log in."""
    assert store._client is not None
    await store._client.close()
    store._client = store._connected()


def test_a_daemon_goes_on_after_its_credentials_file_was_changed(
    bed: Bed, ferretdb: FerretDb, tmp_path: Path, ada: str
) -> None:
    secret = tmp_path / "credentials"
    secret.write_text("ada:s3same")
    secret.chmod(0o600)
    folder = tmp_path / "server"
    folder.mkdir()
    with server(folder) as first:
        first.command({"createUser": "ada", "pwd": "s3same", "roles": []})
        words = ("--store", first.bare("daemon"), "--store-credentials", str(secret))
        bed.up(*words)
        bed.reaches(bed.submit("first", steps=3), "completed")
        first.command({"updateUser": "ada", "pwd": "n3w"})
        port = first.port
    with server(folder, port):  # its connections are gone, and each has to log in
        status = eventually(lambda: refused_status(bed), text=bed.log.read_text)
        assert "rejects the user or password" in status
        secret.write_text("ada:n3w")
        eventually(lambda: bed.json("status")["ready"], text=bed.log.read_text)
        bed.reaches(bed.submit("second", steps=3), "completed")
        assert "s3same" not in bed.log.read_text()
        assert "n3w" not in bed.log.read_text()
        bed.stop()


def refused_status(bed: Bed) -> str:
    """Why the daemon is not ready, once its store refuses it."""
    bed.reshape("submit", str(bed.record("unseen")))
    reason = str(bed.json("status")["reason"])
    return reason if "rejects" in reason else ""
