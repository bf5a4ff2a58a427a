"""Who asks more often than its share is told when to ask again, and everybody else is answered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tornado import httputil

from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import OPERATOR, Identity, Role
from reshape_controller.access.token_file import NamedToken, TokenFile, digest
from reshape_controller.http import connections, events, room
from reshape_controller.http.errors import TooSoon
from reshape_controller.live.pace import NAMES_MAX
from reshape_sidecar import codec
from tests.support.http_bed import RECORD, TOKEN, Answer, Api, run

GREEDY, OTHER = (
    NamedToken(name, Role.USER, digest(name.encode()), 0.0) for name in ("greedy", "other")
)
PEOPLE = Identities(lambda: TOKEN, lambda: TokenFile((GREEDY, OTHER)))
USER = Identity("greedy", Role.USER)
OFTEN = int(room.PACE_BURST) + 100


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def taken(paces: room.Paces, identity: Identity | None, share: str, times: int) -> int:
    """How many requests of so many at once are taken."""
    count = 0
    for _ in range(times):
        try:
            paces.take(identity, share)
        except TooSoon:
            continue
        count += 1
    return count


def test_an_identity_has_its_burst_at_once_and_then_its_pace() -> None:
    clock = Clock()
    paces = room.Paces(clock)
    assert taken(paces, USER, "greedy", 10_000) == room.PACE_BURST
    with pytest.raises(TooSoon, match="greedy sends more than 50 requests a second") as error:
        paces.take(USER, "greedy")
    assert (error.value.status, error.value.again_after_s) == (429, 1)
    for _ in range(60):
        clock.now_s += 1.0
        assert taken(paces, USER, "greedy", 1000) == room.PACE, "refused requests cost nothing"
    clock.now_s += 3600.0
    assert taken(paces, USER, "greedy", 10_000) == room.PACE_BURST


def test_each_has_a_pace_of_its_own_and_an_operator_none() -> None:
    paces = room.Paces(Clock())
    sidecar = Identity("job-1/1", Role.SIDECAR)
    assert taken(paces, None, "192.0.2.1", 1000) == room.STRANGER_BURST
    assert taken(paces, None, "192.0.2.2", 1) == 1
    assert taken(paces, sidecar, "job-1/1/0", 1000) == room.WORKER_BURST
    assert taken(paces, sidecar, "job-1/1/1", 1) == 1
    assert taken(paces, USER, "192.0.2.1", 1) == 1, "a name is no address"
    assert taken(paces, OPERATOR, OPERATOR.name, 100_000) == 100_000


def test_a_stranger_with_many_addresses_takes_no_memory() -> None:
    paces = room.Paces(Clock())
    for number in range(NAMES_MAX + 100):
        paces.take(None, f"address-{number}")
    assert len(paces._strangers._full_at_s) == NAMES_MAX


async def asked(it: Api, times: int, token: str, path: str = "/v1/jobs?limit=1") -> list[Answer]:
    return list(await asyncio.gather(*[it.ask("GET", path, token=token) for _ in range(times)]))


def test_a_greedy_user_is_refused_in_one_form_and_the_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "PACE", 1.0)

    async def test(it: Api) -> None:
        answers = [each for _ in range(4) for each in await asked(it, OFTEN // 4, "greedy")]
        refused = [each for each in answers if each.code == 429]
        assert len(refused) >= 50
        for each in refused:
            assert each.json["code"] == "too-many-requests"
            assert each.headers["retry-after"] == "1"
            assert each.headers["content-type"].startswith("application/json")
        posted = await it.ask("POST", "/v1/jobs", RECORD | {"name": "late"}, token="greedy")
        assert posted.code == 429
        assert [each.code for each in await asked(it, 5, "other")] == [200] * 5
        assert [each.code for each in await asked(it, 5, TOKEN)] == [200] * 5
        await asyncio.sleep(1.1)
        assert (await it.ask("GET", "/v1/jobs", token="greedy")).json["jobs"] == []

    run(tmp_path, test, PEOPLE)


def test_a_sidecar_reports_and_a_job_starts_while_one_user_asks_without_end(
    tmp_path: Path,
) -> None:
    async def test(it: Api) -> None:
        job = (await it.post("/v1/jobs", RECORD)).json["id"]
        await it.reaches(job, "running")
        report, token = codec.dumps(it.launcher.job(job).observed), it.tokens.of(job, 1)
        greedy = [asyncio.create_task(without_end(it.port)) for _ in range(20)]
        await asyncio.sleep(1.0)
        async with asyncio.timeout(10.0):
            for _ in range(10):
                answer = await it.ask("POST", f"/v1/sidecar/{job}/1", report, token=token)
                assert answer.code == 200, answer.body
            await it.post("/v1/jobs", RECORD | {"name": "second", "optional_gpus": [1]})
            await it.reaches("second", "running")
        assert (await it.ask("GET", "/v1/jobs", token="greedy")).code == 429
        for task in greedy:
            task.cancel()
        await asyncio.gather(*greedy, return_exceptions=True)

    run(tmp_path, test, PEOPLE)


async def without_end(port: int) -> None:
    """Ask again each 10 ms, whatever the answer."""
    request = (
        b"GET /v1/jobs?limit=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer greedy\r\n"
    )
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request + b"Connection: close\r\n\r\n")
            await reader.read()
        finally:
            writer.close()
        await asyncio.sleep(0.01)


def test_a_worker_that_reports_without_end_is_refused_alone(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        job = (await it.post("/v1/jobs", RECORD)).json["id"]
        await it.reaches(job, "running")
        report, token = codec.dumps(it.launcher.job(job).observed), it.tokens.of(job, 1)
        path = f"/v1/sidecar/{job}/1"
        asks = [it.ask("POST", path, report, token=token) for _ in range(100)]
        codes = [each.code for each in await asyncio.gather(*asks)]
        assert 429 in codes
        assert set(codes) == {200, 429}
        assert (await it.get(f"/v1/jobs/{job}")).json["state"] == "running"
        await asyncio.sleep(1.1)
        assert (await it.ask("POST", path, report, token=token)).code == 200

    run(tmp_path, test)


def test_a_stream_goes_on_while_its_user_asks_too_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "PACE_BURST", 20.0)
    monkeypatch.setattr(room, "PACE", 0.1)
    monkeypatch.setattr(events, "AUTHORIZE_S", 0.05)

    async def test(it: Api) -> None:
        path = "/v1/events?wait_s=3"
        stream = asyncio.create_task(it.ask("GET", path, token="greedy"))
        await asyncio.sleep(0.5)
        assert {each.code for each in await asked(it, 60, "greedy")} == {200, 429}
        await asyncio.sleep(1.0)
        assert (await it.post("/v1/jobs", RECORD)).code == 201
        assert b"event: record" in (await stream).body

    run(tmp_path, test, PEOPLE)


def test_probes_and_the_page_are_answered_while_strangers_of_the_same_address_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "STRANGER_BURST", 20.0)

    async def test(it: Api) -> None:
        codes = [each.code for each in await asked(it, 60, "wrong")]
        assert codes.count(401) >= 20
        assert 429 in codes
        for path in ("/healthz", "/page/"):
            assert (await it.ask("GET", path, token=None)).code == 200
        assert (await it.get("/v1/jobs")).code == 200

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("name", "values", "found"),
    [
        ("Authorization", ("Bearer abc", "bEaReR abc", "Bearer    abc  ", "Bearer\tabc"), "abc"),
        ("Cookie", ("reshape-1=x", "a=1; reshape-1=x", "b=;reshape-1=x ;c=2"), "reshape-1=x"),
        ("Cookie", ("__Host-reshape=y", "a=1; __Host-reshape=y"), "__Host-reshape=y"),
        ("Cookie", ("a=reshape", ""), ""),
        ("Authorization", ("", "  "), ""),
    ],
)
def test_a_credential_is_one_however_it_is_written(
    name: str, values: tuple[str, ...], found: str
) -> None:
    headers = [httputil.HTTPHeaders({name: value}) for value in values]
    assert {connections.credential(each) for each in headers} == {found}


def test_who_is_told_to_wait_is_forgotten_after_a_while_and_with_many_others() -> None:
    told = dict[str, tuple[float, bytes]]()
    server = connections.BoundedServer(lambda request: None, connections_max=9)
    server._told = told
    server.refuse("Bearer a", 60.0, b"a")
    server.refuse("Bearer b", -1.0, b"b")
    assert (server.refusal("Bearer a"), server.refusal("Bearer b")) == (b"a", None)
    assert server.refusal("") is None
    for number in range(connections.TOLD_MAX):
        server.refuse(f"Bearer {number}", 60.0, json.dumps(number).encode())
    assert server.refusal("Bearer a") is None
    assert len(told) == connections.TOLD_MAX
