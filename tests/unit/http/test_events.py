"""The stream of records: nothing is lost or doubled, and no text of another's job is shown."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import Role
from reshape_controller.access.token_file import NamedToken, TokenFile, digest
from reshape_controller.http import events as module
from reshape_controller.http import feed, history_parts
from reshape_controller.http import room as bounds
from tests.support.http_bed import DEADLINE_S, RECORD, TOKEN, Api, run

ROLES = {"ada": Role.USER, "bob": Role.USER, "vera": Role.VIEWER}


@dataclass(frozen=True)
class Event:
    id: int
    kind: str
    data: Any

    @property
    def kinds(self) -> set[str]:
        return {entry["kind"] for entry in self.data["history"]}


def parsed(body: bytes) -> list[Event]:
    found = []
    for block in body.decode().split("\n\n"):
        lines = [line.partition(": ")[::2] for line in block.splitlines() if line[:1] != ":"]
        fields = dict(lines)
        if fields:
            assert list(fields) == ["id", "event", "data"], block
            found.append(Event(int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


async def events(it: Api, after: int | None = None, token: str = TOKEN) -> list[Event]:
    """What a reader gets that does not wait."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    answer = await it.ask("GET", "/v1/events?wait_s=0", token=token, **headers)
    assert answer.code == 200, answer.body
    assert answer.headers["content-type"].startswith("text/event-stream")
    return parsed(answer.body)


def shared(file: list[TokenFile], users_see_all: bool = True) -> Identities:
    tokens = (NamedToken(name, role, digest(name.encode()), 1.0) for name, role in ROLES.items())
    file.append(TokenFile(tuple(tokens)))
    return Identities(lambda: TOKEN, lambda: file[0], users_see_all=users_see_all)


def test_a_reader_that_goes_on_after_its_last_event_misses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    parts: list[Event] = []

    async def before(it: Api) -> None:
        first = await events(it)
        assert [(event.kind, event.data["seq"]) for event in first] == [("ready", first[0].id)]
        parts.extend((await events(it, 0))[1:])
        for name in ("first", "second"):
            await it.post("/v1/jobs", {**RECORD, "name": name, "optional_gpus": [2]})
            await it.reaches(name, "running")
            parts.extend((await events(it, parts[-1].id))[1:])

    async def after_a_restart(it: Api) -> None:
        await it.post("/v1/jobs/first/cancel")
        await it.reaches("first", "cancelled")
        parts.extend((await events(it, parts[-1].id))[1:])
        whole = [event for event in await events(it, 0) if event.id <= parts[-1].id]
        assert parts == whole[1:]

    run(tmp_path, before)
    run(tmp_path, after_a_restart)
    ids = [event.id for event in parts]
    assert ids == sorted(set(ids))
    assert {event.kind for event in parts} == {"record"}
    kinds = [kind for event in parts for kind in sorted(event.kinds)]
    assert (kinds.count("submitted"), kinds.count("granted"), kinds.count("cancelled")) == (2, 2, 1)
    assert kinds.count("controller-started") == 2
    last = next(e for e in parts if "cancelled" in e.kinds).data["jobs"]
    assert {(job["name"], job["state"], job["size"]) for job in last} >= {("first", "cancelled", 0)}


def test_an_event_comes_within_a_second_of_its_append(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        waiting = asyncio.create_task(it.get("/v1/events?wait_s=3"))
        await asyncio.sleep(0.5)
        await it.post("/v1/jobs", RECORD)
        reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
        host = f"Host: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        writer.write(f"GET /v1/events HTTP/1.1\r\n{host}\r\n".encode())
        await reader.readuntil(b"event: ready")
        begin_s = time.monotonic()
        await it.post("/v1/jobs/job/cancel")
        await asyncio.wait_for(reader.readuntil(b'"cancelled"'), 10)
        assert time.monotonic() - begin_s < 1.0 + 2.0, "two seconds more for a busy machine"
        writer.close()
        kinds = {kind for event in parsed((await waiting).body)[1:] for kind in event.kinds}
        assert {"submitted", "cancelled"} <= kinds

    run(tmp_path, test)


def test_no_event_comes_before_the_tables_show_it(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        for number in range(5):
            await it.post("/v1/jobs", {**RECORD, "name": f"job-{number}", "optional_gpus": [2]})
            for event in (await events(it, 0))[1:]:
                for job in event.data["jobs"]:
                    assert (await it.get(f"/v1/jobs/{job['id']}")).json["seq"] >= event.id

    run(tmp_path, test)


def test_a_reader_that_was_away_too_long_or_had_another_log_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "RECORDS_MAX", 2)

    async def test(it: Api) -> None:
        await it.post("/v1/jobs", RECORD)
        await it.reaches("job", "running")
        for last in (0, 10**9):
            found = await events(it, last)
            assert [event.kind for event in found[:2]] == ["ready", "reset"]
            assert 2 < found[1].data["seq"] < 10**9
            assert found[1].id == found[1].data["seq"]

    run(tmp_path, test)


def test_records_with_many_entries_are_remembered_in_smaller_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "ENTRIES_MAX", 20)
    found = feed.Feed()
    job = feed.ChangedJob("job-1", "job", "ada", "running", 2)
    for seq, count in enumerate((1, 8, 8, 8, 1), 1):
        found.add(feed.Change(seq, 1.0, (), (job,) * count))
    assert found.after(1, 5) is None
    assert [change.seq for change in found.after(2, 5) or ()] == [3, 4, 5]
    for seq in range(6, 20):
        found.add(feed.Change(seq, 1.0, (), (job,)))
    assert [change.seq for change in found.after(4, 19) or ()] == list(range(5, 20))


def test_other_requests_run_between_many_old_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []
    visible = module.Events._visible

    def counted(self: module.Events, change: feed.Change) -> module.RecordEvent:
        rendered.append(len(turns))
        return visible(self, change)

    async def many(*asked: object) -> tuple[feed.Change, ...]:
        return tuple(feed.Change(seq, 1.0, (), ()) for seq in range(1, 501))

    async def take_turns() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    async def test(it: Api) -> None:
        monkeypatch.setattr(module.Events, "_visible", counted)
        monkeypatch.setattr(it.context.timeline, "changes", many)
        other = asyncio.create_task(take_turns())
        await events(it, 0)
        other.cancel()
        assert len(rendered) >= 500
        assert max(Counter(rendered).values()) <= 50

    rendered: list[int] = []
    run(tmp_path, test)


def test_a_last_id_that_is_no_number_is_refused_by_its_name(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        for text in ("x", "-1", "1.5", "9" * 20):
            refused = await it.ask("GET", "/v1/events?wait_s=0", **{"Last-Event-ID": text})
            assert (refused.code, refused.json["path"]) == (400, "header Last-Event-ID")

    run(tmp_path, test)


@pytest.mark.parametrize("users_see_all", [True, False])
def test_a_user_gets_texts_of_own_jobs_alone(tmp_path: Path, users_see_all: bool) -> None:
    async def test(it: Api) -> None:
        job = (await it.ask("POST", "/v1/jobs", RECORD, token="ada")).json["id"]
        await it.reaches("job", "running")

        end = (await events(it))[0].id

        async def lines(token: str) -> list[dict[str, Any]]:
            found = [event for event in (await events(it, 0, token))[1:] if event.id <= end]
            return [entry for event in found for entry in event.data["history"]]

        mine = [entry for entry in await lines("ada") if entry["job"] == job]
        assert any("by ada" in entry["text"] for entry in mine)
        for other in ("bob", "vera"):
            theirs = [entry for entry in await lines(other) if entry["job"] == job]
            sees = users_see_all or other == "vera"
            assert [entry["kind"] for entry in theirs] == [e["kind"] for e in mine if sees]
            assert {entry["text"] for entry in theirs} <= {""}
        if not users_see_all:
            bobs = json.dumps([event.data for event in await events(it, 0, "bob")])
            assert job not in bobs

    run(tmp_path, test, shared([], users_see_all))


def test_a_revoked_token_ends_the_stream(tmp_path: Path) -> None:
    file: list[TokenFile] = []

    async def test(it: Api) -> None:
        waiting = asyncio.create_task(it.ask("GET", "/v1/events?wait_s=20", token="ada"))
        await asyncio.sleep(0.5)
        file[0] = file[0].revoked("ada")
        begin_s = time.monotonic()
        assert (await waiting).code == 200
        assert time.monotonic() - begin_s < 5
        assert (await it.ask("GET", "/v1/events", token="ada")).code == 401

    run(tmp_path, test, shared(file))


def streams(it: Api) -> int:
    """Number of event streams that are open."""
    return it.context.room.held


async def become(it: Api, count: int) -> None:
    """Wait until so many event streams are open."""
    async with asyncio.timeout(DEADLINE_S):
        while streams(it) != count:
            await asyncio.sleep(0.02)


def test_no_identity_and_no_crowd_opens_more_streams_than_the_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HELD_MAX", 4)

    async def test(it: Api) -> None:
        stream = "/v1/events?wait_s=2"
        tokens = ("ada", "ada", "bob", "vera")
        waiting = [asyncio.create_task(it.ask("GET", stream, token=name)) for name in tokens[:2]]
        await become(it, 2)
        refused = [await it.ask("GET", "/v1/events?wait_s=0", token="ada")]
        waiting += [asyncio.create_task(it.ask("GET", stream, token=name)) for name in tokens[2:]]
        await become(it, 4)
        refused.append(await it.ask("GET", "/v1/events?wait_s=0"))
        for answer, what in zip(
            refused, ("ada has 2 requests that wait", "4 requests wait for"), strict=True
        ):
            assert (answer.code, answer.json["code"]) == (429, "too-many-requests")
            assert what in answer.json["message"]
            assert answer.json["path"]
            assert answer.json["hint"]
        assert (await it.get("/v1/jobs")).code == 200
        assert [(await each).code for each in waiting] == [200] * 4
        assert (await it.ask("GET", "/v1/events?wait_s=0", token="ada")).code == 200
        assert streams(it) == 0

    run(tmp_path, test, shared([]))


def test_a_client_that_reads_nothing_loses_its_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FLUSH_S", 0.2)
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(module, "POLL_S", 0.0)
    write = module.Events.write
    monkeypatch.setattr(module.Events, "write", lambda self, text: write(self, text * 100_000))

    async def test(it: Api) -> None:
        with closing(socket.create_connection(("127.0.0.1", it.port))) as client:
            host = f"Host: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
            client.sendall(f"GET /v1/events HTTP/1.1\r\n{host}\r\n".encode())
            await become(it, 1)
            await become(it, 0)

    run(tmp_path, test)


def test_a_revoked_token_ends_a_stream_in_the_middle_of_old_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AUTHORIZE_S", 0.0)
    file: list[TokenFile] = []
    send = module.Events._send

    async def revoke(self: module.Events, kind: str, seq: int, text: str) -> None:
        await send(self, kind, seq, text)
        if kind == "record":
            file[0] = file[0].revoked("ada")

    monkeypatch.setattr(module.Events, "_send", revoke)

    async def test(it: Api) -> None:
        await it.post("/v1/jobs", RECORD)
        await it.reaches("job", "running")
        assert [event.kind for event in await events(it, 0, "ada")] == ["ready", "record"]

    run(tmp_path, test, shared(file))


def test_a_stop_of_the_daemon_ends_a_stream_and_logs_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = socket.socket()

    async def test(it: Api) -> None:
        client.connect(("127.0.0.1", it.port))
        host = f"Host: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        client.sendall(f"GET /v1/events HTTP/1.1\r\n{host}\r\n".encode())
        async with asyncio.timeout(DEADLINE_S):
            while b"event: ready" not in await asyncio.to_thread(client.recv, 4096):
                pass

    with closing(client):
        run(tmp_path, test)
    assert [record.message for record in caplog.records if record.name.startswith("tornado")] == []


def test_the_newest_entries_of_the_history_are_there_and_the_events_go_on_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_parts, "RECORDS", 1)

    async def test(it: Api) -> None:
        await it.post("/v1/jobs", RECORD)
        await it.reaches("job", "running")
        recent = (await it.get("/v1/history?limit=200")).json
        newest = (await it.get("/v1/history?limit=2")).json["events"]
        whole = [entry for event in (await events(it, 0))[1:] for entry in event.data["history"]]
        assert recent["events"] == whole[: len(recent["events"])]
        assert {"submitted", "granted"} <= {entry["kind"] for entry in recent["events"]}
        assert newest in [whole[at : at + 2] for at in range(len(whole))], (
            "more may have come since"
        )
        await it.post("/v1/jobs/job/cancel")
        later = (await events(it, recent["seq"]))[1:]
        assert "cancelled" in {kind for event in later for kind in event.kinds}
        assert (await it.get("/v1/history?limit=0")).code == 400

    run(tmp_path, test)


@pytest.mark.parametrize("sees_all", [True, False])
def test_of_anothers_jobs_the_newest_entries_show_no_text(tmp_path: Path, sees_all: bool) -> None:
    async def test(it: Api) -> None:
        await it.ask("POST", "/v1/jobs", {**RECORD, "name": "secret"}, token="ada")
        mine = (await it.ask("GET", "/v1/history", token="ada")).json["events"]
        theirs = (await it.ask("GET", "/v1/history", token="bob")).json["events"]
        assert "secret by ada" in [entry["text"] for entry in mine]
        of_job = [entry for entry in theirs if entry["job"] is not None]
        assert bool(of_job) is sees_all
        assert {entry["text"] for entry in of_job} <= {""}
        assert sees_all or {entry["text"] for entry in theirs} <= {""}

    run(tmp_path, test, shared([], sees_all))
