"""A server that is not there, cut connections, lost replies, restarts."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import InboxItem, SeqTaken, StoreError
from tests.support.mongo_bed import run
from tests.support.mongo_proxy import Proxy
from tests.support.mongo_server import server
from tests.support.store_values import changes, job_row, records

pytestmark = pytest.mark.mongo


@pytest.mark.parametrize("uri", ["mongodb://", "http://host/", "mongodb://a:b@h:1/x y?w=%", "x"])
def test_an_address_that_cannot_be_used_is_refused_with_its_form(uri: str) -> None:
    with pytest.raises(StoreError, match="remedy: write mongodb://"):
        MongoStore(uri)


@pytest.mark.parametrize("rest", ["a%00b", "db?tlsCAFile=/nope", "db?authMechanism=MONGODB-OIDC"])
def test_an_address_that_only_the_driver_finds_wrong_is_refused_too(rest: str) -> None:
    async def main() -> None:
        with pytest.raises(StoreError, match="cannot be used"):
            await MongoStore(f"mongodb://127.0.0.1:9/{rest}").open()

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_server_that_is_not_there_is_named_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reshape_controller.store.mongo.store.SELECT_TIMEOUT_S", 0.2)

    async def main() -> None:
        store = MongoStore("mongodb://ada:sesame@127.0.0.1:9/mine")
        with pytest.raises(StoreError, match="does not answer") as caught:
            await store.open()
        assert str(caught.value) == (
            "mongodb://127.0.0.1:9/mine: does not answer (127.0.0.1:9: [Errno 111] Connect call "
            "failed ('127.0.0.1', 9)); remedy: check that it runs and can be reached"
        )
        with pytest.raises(StoreError, match="not open"):
            await store.last_seq()

    asyncio.run(main())
    gc.collect()  # the driver forgets a socket whose connecting is cancelled by its end


# --- cancelled callers, cut connections and restarts


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_caller_that_is_cancelled_at_any_moment_ends(address: str) -> None:
    """The driver (PyMongo 4.20) leaves a socket that was just being connected to the collector."""

    async def work(store: MongoStore) -> None:
        async def reads_for_ever() -> None:
            while True:
                await store.requests(10)

        for number in range(60):
            task = asyncio.create_task(reads_for_ever())
            await asyncio.sleep(number * 0.0004)
            task.cancel()
            await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 10)
            assert task.cancelled()
        assert await store.last_seq() == 0

    run(address, work)
    gc.collect()  # what the driver left is collected here, and not in another test


def test_what_fails_after_its_caller_was_cancelled_is_not_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reshape_controller.store.mongo.store.REPLY_TIMEOUT_S", 0.5)
    monkeypatch.setattr("reshape_controller.store.mongo.store.SELECT_TIMEOUT_S", 0.5)
    said: list[dict[str, object]] = []

    async def main(port: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: said.append(what))
        with Proxy(port) as proxy:
            store = MongoStore(f"mongodb://127.0.0.1:{proxy.port}/left")
            await store.open()
            with proxy.silent():
                task = asyncio.create_task(store.requests(10))
                await asyncio.sleep(0.1)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert task.cancelled()
                while store._under_way:
                    await asyncio.sleep(0.05)
            await store.close()
        gc.collect()

    with server(tmp_path) as running:
        asyncio.run(main(running.port))
    assert said == []


def test_a_control_write_may_be_repeated_after_a_lost_reply(tmp_path: Path) -> None:
    first, second = records(2)
    item = InboxItem("r1", "submit", "{}")
    change = changes(1, job_row(1, 1))

    async def main(port: int) -> None:
        with Proxy(port) as proxy:
            store = MongoStore(f"mongodb://127.0.0.1:{proxy.port}/lost_replies")
            await store.open()
            try:
                await store.append(first)
                # The append: done, unheard; the repeat finds its own record.
                proxy.cut_next("insert")
                with pytest.raises(StoreError, match="does not answer"):
                    await store.append(second)
                with pytest.raises(SeqTaken) as own:
                    await store.append(second)
                assert own.value.existing == second
                writes: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
                    ("insert", lambda: store.put_request(item)),
                    ("update", lambda: store.project(change)),
                    ("update", lambda: store.write_snapshot(2, ("a", "b"))),
                    ("delete", lambda: store.acknowledge(("r1",))),
                )
                for command, write in writes:
                    proxy.cut_next(command)
                    with pytest.raises(StoreError, match="does not answer"):
                        await write()
                    await write()
                    await write()
                assert proxy.cuts == 5
                assert [each async for each in store.read(0)] == [first, second]
                assert await store.requests(10) == ()
                assert (await store.jobs()).rows == change.jobs
                assert await store.history(None) == change.history
                assert await store.decisions(None) == change.decisions
                assert await store.projected_seq() == 1
                assert await store.latest_snapshot() == (2, ("a", "b"))
            finally:
                await store.close()

    with server(tmp_path) as running:
        asyncio.run(main(running.port))


def test_a_server_that_is_restarted_is_used_again_without_a_new_controller(
    tmp_path: Path,
) -> None:
    file = tmp_path / "data.h2"
    made = records(3)

    async def before(store: MongoStore) -> None:
        await store.open()
        for each in made[:2]:
            await store.append(each)

    with asyncio.Runner() as runner:
        with server(tmp_path, file=file) as running:
            store = MongoStore(f"{running.uri}kept")
            runner.run(before(store))
            port = running.port
        with pytest.raises(StoreError, match="does not answer"):
            runner.run(store.append(made[2]))
        with server(tmp_path, port=port, file=file):
            runner.run(store.append(made[2]))
            assert runner.run(store.last_seq()) == 3
            runner.run(store.close())
