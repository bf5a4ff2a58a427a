"""The MongoDB server that tests marked ``mongo`` share, and what a user has of it; signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pymongo
import pytest

BEDS = [f"tests.support.{path.stem}" for path in Path(__file__).parent.glob("support/*_bed.py")]
pytest.register_assert_rewrite(*BEDS)  # their assertions say what they found, as those of tests do

import tests.support.gate  # noqa: E402, F401 (its Hypothesis profile holds for all tests)
from tests.support.ferretdb import FerretDb  # noqa: E402
from tests.support.ferretdb import server as ferretdb_server  # noqa: E402
from tests.support.mongo_bed import Database  # noqa: E402
from tests.support.mongo_server import any_server, fresh_database  # noqa: E402

# A shell that starts the tests in the background has them, and what they start, ignore the first,
# and nohup the second. A signal that is handled here is as usual in what they start.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, lambda *_: None),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def mongo_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for the whole run."""
    with any_server(tmp_path_factory.mktemp("mongo")) as running:
        yield running.uri


@pytest.fixture
def address(mongo_uri: str) -> Iterator[str]:
    """A database of the test's own."""
    with fresh_database(mongo_uri) as found:
        yield found


@pytest.fixture(scope="session")
def ferretdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FerretDb]:
    """One FerretDB for the whole run."""
    with ferretdb_server(tmp_path_factory.mktemp("ferretdb")) as running:
        yield running


@pytest.fixture
def ferretdb_address(ferretdb: FerretDb) -> Iterator[str]:
    """A database of the test's own on FerretDB."""
    with fresh_database(ferretdb.address("")) as found:
        yield found


@pytest.fixture
def user(address: str) -> Iterator[Database]:
    """Somebody with a client of their own on the same database, and no Reshape in their program."""
    with pymongo.MongoClient[dict[str, object]](address, serverSelectionTimeoutMS=5000) as client:
        yield client.get_default_database()


@pytest.fixture(params=["sqlite", pytest.param("mongo", marks=pytest.mark.mongo)])
def words(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """What a command needs to find the store: a file, then a server."""
    if request.param == "sqlite":
        yield ()
        return
    yield ("--store", request.getfixturevalue("address"))
