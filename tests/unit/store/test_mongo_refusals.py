"""Errors of the driver as errors of the protocol: refusals, faults, and replies it cannot read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pymongo.errors import AutoReconnect, DocumentTooLarge, OperationFailure

from reshape_controller.store.mongo.address import parse
from reshape_controller.store.mongo.login import REFUSED_AGAIN_S, Login
from reshape_controller.store.mongo.store import MongoStore, of_driver
from reshape_controller.store.protocol import StoreError, StoreRefused

ADDRESS = "mongodb://ada:s3same@127.0.0.1:1/x"


def translated(error: Exception) -> StoreError:
    return MongoStore(ADDRESS)._translated(error)


@pytest.mark.parametrize(("code", "login"), [(18, True), (8000, True), (13, False), (115, False)])
def test_a_refusal_says_whether_it_refuses_the_login(code: int, login: bool) -> None:
    found = translated(OperationFailure("no", code))
    assert isinstance(found, StoreRefused)
    assert found.login is login


@pytest.mark.parametrize(
    "error", [AutoReconnect("away"), OperationFailure("full", 14031), OperationFailure("odd", 1)]
)
def test_a_fault_is_no_refusal(error: Exception) -> None:
    assert not isinstance(translated(error), StoreRefused)


def test_a_document_that_is_too_large_is_refused() -> None:
    assert isinstance(translated(DocumentTooLarge("16 MB")), StoreRefused)


def raised_by_the_driver() -> KeyError:
    """As pymongo does it at a bulk reply without ``nModified``."""
    from pymongo.bulk_shared import _merge_command

    result: dict[str, Any] = {
        "nInserted": 0, "nUpserted": 0, "nMatched": 0, "nModified": 0, "nRemoved": 0,
        "upserted": [], "writeErrors": [], "writeConcernErrors": [],
    }  # fmt: skip

    class Run:
        op_type = 1

    try:
        _merge_command(Run(), result, 0, {"ok": 1, "n": 1})  # type: ignore[arg-type]
    except KeyError as error:
        return error
    raise AssertionError("the driver reads such a reply now")


def test_a_key_error_of_the_driver_is_one_of_the_store_and_ours_is_a_defect() -> None:
    theirs = raised_by_the_driver()
    assert of_driver(theirs)
    assert "the driver cannot read" in str(translated(theirs))
    with pytest.raises(KeyError) as ours:
        dict[str, str]()["ours"]
    assert not of_driver(ours.value)


def test_a_call_that_the_driver_cannot_finish_raises_a_store_error() -> None:
    async def fails(_: object) -> None:
        raise raised_by_the_driver()

    async def ours(_: object) -> None:
        raise KeyError("ours")

    async def scenario() -> None:
        store = MongoStore(ADDRESS)
        store._client = store._connected()
        with pytest.raises(StoreError, match="cannot read"):
            await store._on(fails)
        with pytest.raises(KeyError):
            await store._on(ours)
        await store.close()

    asyncio.run(scenario())


def test_a_refusal_holds_for_a_while_and_ends_with_other_credentials() -> None:
    now = [0.0]
    first, second = parse(ADDRESS), parse(ADDRESS)
    login = Login(first, lambda: second, lambda: now[0])
    login.on_refusal(StoreRefused("refused", login=True))
    with pytest.raises(StoreRefused):
        login.check()
    assert not login.renew(), "the same credentials as before"
    now[0] = REFUSED_AGAIN_S
    login.check()
    assert login.refused


def test_a_credentials_file_that_cannot_be_read_now_changes_nothing() -> None:
    def unreadable() -> Any:
        raise StoreError("half of it")

    login = Login(parse(ADDRESS), unreadable)
    assert not login.renew()
    assert login.address == parse(ADDRESS)
