"""Whose a plain insert is, and what it may do."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import Role
from reshape_controller.access.token_file import NamedToken, TokenFile
from reshape_controller.core import events as ev
from reshape_controller.core.model import GpuId, HostId, JobSpec, JobState
from reshape_controller.live import inbox
from reshape_controller.live.admission import Admission
from reshape_controller.live.clock import WallClock
from reshape_controller.live.control import Control
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.store.protocol import InboxItem, JobRow
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.live_fakes import Nothing

WAIT_S = 60.0
RECORD = {"name": "job", "command": ["x"], "optional_gpus": [1], "epochs": 1}
ADA = NamedToken("ada", Role.USER, "0" * 64, 0.0)


class Noting(SqliteStore):
    """A store that notes why requests are refused, and says in whose inbox they were."""

    refusals: list[str]
    owners: dict[str, str]

    async def requests(self, limit: int) -> tuple[InboxItem, ...]:
        items = await super().requests(limit)
        return tuple(replace(item, owner=self.owners.get(item.id, "")) for item in items)

    async def refuse(self, item: str, text: str) -> None:
        self.refusals.append(text)
        await super().refuse(item, text)


class Inbox:
    """A store with a running inbox; ``ada_job`` is a job of Ada's."""

    def __init__(self, store: Noting, ada_job: str) -> None:
        self.store, self.ada_job = store, ada_job
        self._number = 0

    async def put(self, kind: str, body: dict[str, object], owner: str = "") -> str:
        """Insert an item and wait until it is answered; why it was refused, or nothing.

        ``owner``: user whose own inbox it is in.
        """
        self._number += 1
        self.store.refusals = []
        await self.insert(f"r{self._number}", kind, body, owner)
        while await self.store.requests(1):
            await asyncio.sleep(0.01)
        return " ".join(self.store.refusals)

    async def insert(self, item: str, kind: str, body: dict[str, object], owner: str) -> None:
        self.store.owners[item] = owner
        await self.store.put_request(InboxItem(item, kind, json.dumps(body)))

    async def job(self, key: str) -> JobRow:
        row = await self.store.job(key)
        assert row is not None
        return row


@contextlib.asynccontextmanager
async def inbox_of(folder: Path, identities: Identities) -> AsyncIterator[Inbox]:
    store, nothing = Noting(folder / "store.db"), Nothing()
    store.refusals, store.owners = [], {}
    await store.open()
    loop = Loop(store, Settings(nothing), WallClock())
    admission = Admission(lambda: loop.engine.state)
    control = Control(loop, admission, lambda job: None, lambda job: None, lambda job: "")
    await loop.start(nothing)
    work = asyncio.create_task(loop.run())
    await loop.commit(ev.HostAdded(HostId("local"), "testing", (GpuId("gpu-0"),)))
    ada_job = await control.submit(JobSpec("adas", ("x",), (1,), user="ada"))
    watch = asyncio.create_task(inbox.watch(loop, admission, control, identities))
    try:
        async with asyncio.timeout(WAIT_S):
            yield Inbox(store, ada_job)
    finally:
        watch.cancel()
        loop.stop()
        await asyncio.gather(work, watch, return_exceptions=True)
        await store.close()


def identities(*tokens: NamedToken, inserts: str | None = None, all_: bool = True) -> Identities:
    file = TokenFile(tokens)
    return Identities(lambda: "x", lambda: file, users_see_all=all_, inserts=inserts)


@pytest.fixture(autouse=True)
def _polled_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "POLL_S", 0.02)


def test_an_insert_of_the_only_person_is_taken_as_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with inbox_of(tmp_path, identities()) as it:
            assert await it.put("submit", {**RECORD, "user": "bob", "priority": 7}) == ""
            row = await it.job("job")
            assert (row.state, row.user) == (JobState.SUBMITTED, "bob")
            assert await it.put("cancel", {"job": it.ada_job}) == ""
            assert (await it.job(it.ada_job)).state is JobState.CANCELLED

    asyncio.run(scenario())


def test_an_insert_beside_users_is_unverified_and_changes_no_job(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with inbox_of(tmp_path, identities(ADA)) as it:
            await it.put("submit", {**RECORD, "user": "ada"})
            assert (await it.job("job")).user == "unverified:ada"
            await it.put("submit", {**RECORD, "name": "high", "user": "ada", "priority": 1})
            row = await it.job("high")
            assert (row.state, row.user) == (JobState.REJECTED, "unverified:ada")
            assert row.errors[0][0] == "priority"
            for kind in ("cancel", "halt", "resume", "pin"):
                body = {"job": it.ada_job, "user": "ada", "size": 1}
                assert "belongs to another user" in await it.put(kind, body), kind
            for kind, name in (("drain", "host"), ("undrain", "host"), ("clear", "gpu")):
                body = {name: "local", "user": "operator"}
                assert "which may not do this" in await it.put(kind, body), kind
            assert (await it.job(it.ada_job)).state is JobState.SUBMITTED

    asyncio.run(scenario())


def test_a_configured_identity_is_that_of_every_insert(tmp_path: Path) -> None:
    async def scenario() -> None:
        ada = replace(ADA, uid=1001)
        async with inbox_of(tmp_path, identities(ada, inserts="ada")) as it:
            await it.put("submit", RECORD)
            row = await it.job("job")
            assert row.job is not None
            assert (row.user, row.job.spec.uid) == ("ada", 1001)
            await it.put("submit", {**RECORD, "name": "bobs", "user": "bob"})
            assert (await it.job("bobs")).state is JobState.REJECTED
            assert await it.put("cancel", {"job": it.ada_job}) == ""
            assert "which may not do this" in await it.put("drain", {"host": "local"})

    asyncio.run(scenario())


def test_an_insert_of_unknown_user_runs_under_no_uid_of_the_daemon(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with inbox_of(tmp_path, identities(replace(ADA, uid=1001))) as it:
            await it.put("submit", {**RECORD, "user": "ada"})
            row = await it.job("job")
            assert row.state is JobState.REJECTED
            assert row.errors[0][0] == "user"

    asyncio.run(scenario())


def test_where_listing_is_off_another_users_job_is_unknown_to_an_insert(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with inbox_of(tmp_path, identities(ADA, all_=False)) as it:
            there = await it.put("cancel", {"job": it.ada_job})
            absent = await it.put("cancel", {"job": "no-such-job"})
            assert there.replace(it.ada_job, "X") == absent.replace("no-such-job", "X") != ""

    asyncio.run(scenario())


def test_an_insert_into_a_users_own_inbox_is_that_users(tmp_path: Path) -> None:
    async def scenario() -> None:
        ada, bob = replace(ADA, uid=1001), replace(ADA, name="bob", uid=1002)
        async with inbox_of(tmp_path, identities(ada, bob)) as it:
            await it.put("submit", RECORD, "bob")
            row = await it.job("job")
            assert row.job is not None
            assert (row.user, row.job.spec.uid) == ("bob", 1002)
            await it.put("submit", {**RECORD, "name": "theirs", "user": "ada"}, "bob")
            row = await it.job("theirs")
            assert (row.state, row.user, row.errors[0][0]) == (JobState.REJECTED, "bob", "user")
            body: dict[str, object] = {"job": it.ada_job, "user": "ada"}
            assert "belongs to another user" in await it.put("cancel", body, "bob")
            assert "which may not do this" in await it.put("drain", {"host": "local"}, "bob")
            assert await it.put("cancel", body, "ada") == ""
            assert (await it.job(it.ada_job)).state is JobState.CANCELLED

    asyncio.run(scenario())


@pytest.mark.parametrize("token", [None, replace(ADA, expires_at_s=1.0), replace(ADA, sha256="")])
def test_an_own_inbox_without_a_valid_token_is_refused(
    tmp_path: Path, token: NamedToken | None
) -> None:
    async def scenario() -> None:
        async with inbox_of(tmp_path, identities(*(() if token is None else (token,)))) as it:
            await it.put("submit", RECORD, "ada")
            row = await it.job("job")
            assert (row.state, row.user) == (JobState.REJECTED, "ada")
            assert row.errors[0][1] == "ada has no valid token"
            assert "no valid token" in await it.put("cancel", {"job": it.ada_job}, "ada")
            assert (await it.job(it.ada_job)).state is JobState.SUBMITTED

    asyncio.run(scenario())


def test_an_own_inbox_waits_while_the_file_of_tokens_cannot_be_read(tmp_path: Path) -> None:
    file: TokenFile | None = None
    cancel: dict[str, object] = {"job": "adas"}
    drain: dict[str, object] = {"host": "local"}

    async def scenario(kind: str, body: dict[str, object], owner: str) -> str:
        nonlocal file
        file = None
        folder = tmp_path / f"{kind}-{owner}"
        folder.mkdir(mode=0o700)
        known = Identities(lambda: "x", lambda: file, inserts=None if owner else "ada")
        async with inbox_of(folder, known) as it:
            answer = asyncio.create_task(it.put(kind, body, owner))
            await asyncio.sleep(0.2)
            assert not answer.done(), "it is answered once the token is known"
            assert it.store.refusals == []
            file = TokenFile((ADA,))
            return await answer

    for owner in ("ada", ""):
        assert asyncio.run(scenario("cancel", cancel, owner)) == ""
        assert asyncio.run(scenario("submit", RECORD, owner)) == ""
        assert "which may not do this" in asyncio.run(scenario("drain", drain, owner))


def test_a_record_before_one_that_waits_for_its_token_is_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        unreadable = Identities(lambda: "x", lambda: None, inserts="operator")
        async with inbox_of(tmp_path, unreadable) as it:
            await it.insert("r1", "submit", RECORD, "")
            await it.insert("r2", "submit", {**RECORD, "name": "own"}, "ada")
            while len(items := await it.store.requests(9)) == 2:
                await asyncio.sleep(0.01)
            assert [item.id for item in items] == ["r2"]
            assert (await it.job("job")).state is JobState.SUBMITTED

    asyncio.run(scenario())


@pytest.mark.parametrize("role", [Role.VIEWER, Role.SCRAPER])
def test_a_role_that_submits_nothing_inserts_nothing(tmp_path: Path, role: Role) -> None:
    async def scenario() -> None:
        vera = replace(ADA, name="vera", role=role)
        async with inbox_of(tmp_path, identities(vera, inserts="vera")) as it:
            for owner in ("", "vera"):
                await it.put("submit", {**RECORD, "name": f"by{owner}"}, owner)
                row = await it.job(f"by{owner}")
                assert row.state is JobState.REJECTED
                assert "which may not do this" in row.errors[0][1]

    asyncio.run(scenario())


def test_only_an_operators_insert_learns_which_paths_exist(tmp_path: Path) -> None:
    record = {**RECORD, "command": ["python", "gone.py"], "code": str(tmp_path)}

    async def scenario() -> None:
        async with inbox_of(tmp_path, identities(ADA)) as it:
            await it.put("submit", record)
            assert (await it.job("job")).state is JobState.SUBMITTED
        async with inbox_of(tmp_path / "alone", identities()) as it:
            await it.put("submit", record)
            assert "script missing" in (await it.job("job")).errors[0][1]

    (tmp_path / "alone").mkdir(mode=0o700)
    asyncio.run(scenario())
