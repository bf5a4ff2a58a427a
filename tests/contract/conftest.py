"""The stores that the contract is run against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import Store
from reshape_controller.store.sqlite.store import SqliteStore


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("mongo", marks=[pytest.mark.mongo, pytest.mark.gate]),
        pytest.param("ferretdb", marks=[pytest.mark.ferretdb, pytest.mark.gate]),
    ]
)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the same store each time that it is called: twice means a restart."""
    if request.param == "sqlite":
        yield lambda: SqliteStore(tmp_path / "reshape.db")
        return
    fixture = "address" if request.param == "mongo" else "ferretdb_address"
    address = request.getfixturevalue(fixture)
    yield lambda: MongoStore(address)
