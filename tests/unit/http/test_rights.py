"""Every route times every identity, from the routes' own table; and what refusals reveal."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from reshape_controller.access import token_file
from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import Role
from reshape_controller.access.rights import ROLES, Right
from reshape_controller.access.token_file import NamedToken, TokenFile, digest
from reshape_controller.core.errors import UnknownJob
from reshape_controller.core.model import JobId
from reshape_controller.http.app import ROUTES
from reshape_controller.http.routes import OPERATIONS, rights_of
from tests.support.http_bed import RECORD, TOKEN, Answer, Api, api

NOW_S = time.time()
VIEWERS = {"viewer", "owner", "other", "operator", "named operator"}
OWNERS = {"owner", "operator", "named operator"}
OPERATORS = {"operator", "named operator"}
SIDECAR = {"SideCar of this attempt"}
IDENTITIES = (
    *("none", "empty", "wrong", "expired", "revoked", "viewer", "owner", "other", "operator"),
    *("named operator", "scraper", "SideCar of this attempt", "SideCar of another attempt"),
)
MAY: dict[tuple[str, str], set[str]] = {
    ("post", "/v1/sidecar/{job}/{attempt}"): SIDECAR,
    ("post", "/v1/jobs"): OWNERS | {"other"},
    ("get", "/v1/jobs"): VIEWERS,
    ("get", "/v1/jobs/{key}"): VIEWERS,
    ("post", "/v1/jobs/{key}/cancel"): OWNERS,
    ("post", "/v1/jobs/{key}/pause"): OWNERS,
    ("post", "/v1/jobs/{key}/resume"): OWNERS,
    ("post", "/v1/jobs/{key}/halt"): OWNERS,
    ("post", "/v1/jobs/{key}/pin"): OWNERS,
    ("get", "/v1/jobs/{key}/history"): OWNERS,
    ("get", "/v1/jobs/{key}/decisions"): OWNERS,
    ("get", "/v1/jobs/{key}/logs"): OWNERS,
    ("get", "/v1/jobs/{key}/series"): OWNERS,
    ("get", "/v1/events"): VIEWERS,
    ("get", "/v1/history"): VIEWERS,
    ("get", "/v1/overview"): VIEWERS,
    ("get", "/v1/gpus"): VIEWERS,
    ("post", "/v1/gpus/{gpu}/clear"): OPERATORS,
    ("get", "/v1/hosts"): VIEWERS,
    ("post", "/v1/hosts/{host}/drain"): OPERATORS,
    ("post", "/v1/hosts/{host}/undrain"): OPERATORS,
    ("get", "/v1/profiles"): VIEWERS,
    ("post", "/v1/profiles"): OPERATORS,
    ("get", "/v1/timeline"): VIEWERS,
    ("get", "/v1/usage"): VIEWERS,
    ("post", "/v1/arrays"): OWNERS | {"other"},
    ("post", "/v1/trials"): OWNERS | {"other"},
    ("get", "/v1/state"): OPERATORS,
    ("get", "/v1/openapi.json"): VIEWERS,
    ("get", "/metrics"): VIEWERS | {"scraper"},
    ("get", "/v1/status"): VIEWERS,
    ("get", "/v1/whoami"): VIEWERS | {"scraper"},
    ("get", "/v1/session"): VIEWERS,
    ("post", "/v1/session"): set(IDENTITIES),
    ("delete", "/v1/session"): VIEWERS,
    ("post", "/v1/session/links"): VIEWERS,
    ("get", "/healthz"): set(IDENTITIES),
    ("get", "/readyz"): VIEWERS | {"scraper"},
}
"""The identities that each operation serves: a second opinion beside the table of rights."""


def token(name: str, role: Role, **more: object) -> NamedToken:
    given = NamedToken(name, role, digest(f"{name}s-token".encode()), NOW_S)
    return replace(given, **more)  # type: ignore[arg-type]


FILE = TokenFile(
    (
        token("ada", Role.USER),
        token("bob", Role.USER),
        token("vera", Role.VIEWER),
        token("olga", Role.OPERATOR),
        token("prom", Role.SCRAPER),
        token("eve", Role.OPERATOR, expires_at_s=NOW_S - 1),
    )
)


class Shared:
    """A daemon that two users share; ``file`` may change."""

    def __init__(self, it: Api, file: list[TokenFile | None]) -> None:
        self.it, self.file = it, file
        self.job = ""

    def bearer(self, identity: str) -> str | None:
        named = {"viewer": "vera", "owner": "ada", "other": "bob", "named operator": "olga"}
        named |= {"scraper": "prom", "expired": "eve", "revoked": "rita"}
        match identity:
            case "none":
                return None
            case "empty":
                return ""
            case "wrong":
                return TOKEN + "x"
            case "operator":
                return TOKEN
            case "SideCar of this attempt":
                return self.it.tokens.of(self.job, 1)
            case "SideCar of another attempt":
                return self.it.tokens.of(self.job, 2)
        return f"{named[identity]}s-token"

    async def ask(self, identity: str, method: str, path: str, body: object = None) -> Answer:
        return await self.it.ask(method, path, body, token=self.bearer(identity))


def run(
    folder: Path, test: Callable[[Shared], Awaitable[None]], users_see_all: bool = True
) -> None:
    async def inside() -> None:
        file: list[TokenFile | None] = [FILE]
        identities = Identities(lambda: TOKEN, lambda: file[0], users_see_all=users_see_all)
        async with api(folder, identities=identities) as it:
            shared = Shared(it, file)
            answer = await shared.ask("owner", "POST", "/v1/jobs", RECORD)
            assert (answer.code, answer.json["user"]) == (201, "ada")
            shared.job = answer.json["id"]
            await test(shared)

    asyncio.run(inside())


def path_of(path: str, job: str) -> str:
    values = {"job": job, "attempt": "1", "key": job, "gpu": "gpu-0", "host": "local"}
    found = re.sub(r"\{(\w+)\}", lambda part: values[part[1]], path)
    return f"{found}?wait_s=0" if path == "/v1/events" else found  # else it stays open


def test_every_operation_has_an_entry_in_this_table_and_a_right() -> None:
    assert set(MAY) == {(operation.method, operation.path) for operation in OPERATIONS}
    assert set(ROLES) | {Right.OPEN} == set(Right)
    for pattern, handler in ROUTES:
        methods = {name.upper() for name in ("get", "post", "delete") if name in handler.__dict__}
        assert set(rights_of(pattern)) == methods, f"a method of {pattern} has no right"


def test_every_operation_on_a_job_looks_at_its_owner() -> None:
    for operation in OPERATIONS:
        assert operation.right.about_job == ("{key}" in operation.path), operation.path


@pytest.mark.parametrize("users_see_all", [True, False])
def test_every_operation_serves_its_identities_and_no_other(
    tmp_path: Path, users_see_all: bool
) -> None:
    async def test(shared: Shared) -> None:
        wrong = []
        for (method, path), may in MAY.items():
            hidden = not users_see_all and "{key}" in path
            for identity in IDENTITIES:
                answer = await shared.ask(identity, method.upper(), path_of(path, shared.job))
                expected = 403
                if identity in may:
                    expected = 0
                elif path.startswith("/v1/sidecar") or identity not in VIEWERS | {"scraper"}:
                    expected = 401
                if hidden and identity == "other":
                    expected = 404
                if not users_see_all and path == "/v1/timeline" and identity in ("owner", "other"):
                    expected = 403
                refused = answer.code if answer.code in (401, 403) or expected == 404 else 0
                if refused != expected:
                    wrong.append((method, path, identity, answer.code, expected))
        assert wrong == []

    run(tmp_path, test, users_see_all)


def test_a_refused_request_changes_nothing(tmp_path: Path) -> None:
    async def test(shared: Shared) -> None:
        await shared.it.reaches(shared.job, "running")
        before = (await shared.it.get(f"/v1/jobs/{shared.job}/history")).json
        for identity in ("other", "viewer", "scraper", "expired", "SideCar of this attempt"):
            for action in ("cancel", "pause", "pin"):
                body = {"size": 2} if action == "pin" else None
                path = f"/v1/jobs/{shared.job}/{action}"
                assert (await shared.ask(identity, "POST", path, body)).code in (401, 403)
        assert (await shared.it.get(f"/v1/jobs/{shared.job}/history")).json == before

    run(tmp_path, test)


def test_a_revocation_holds_for_the_next_request(tmp_path: Path) -> None:
    async def test(shared: Shared) -> None:
        assert (await shared.ask("owner", "GET", "/v1/jobs")).code == 200
        assert shared.file[0] is not None
        shared.file[0] = shared.file[0].revoked("ada")
        assert (await shared.ask("owner", "GET", "/v1/jobs")).code == 401
        shared.file[0] = None
        assert (await shared.ask("other", "GET", "/v1/jobs")).code == 401, "the file is unreadable"
        assert (await shared.ask("operator", "GET", "/v1/jobs")).code == 200

    run(tmp_path, test)


def test_a_revocation_ends_a_request_that_waits_for_more_of_a_log(tmp_path: Path) -> None:
    async def test(shared: Shared) -> None:
        path = f"/v1/jobs/{shared.job}/logs?wait_s=20"
        waiting = asyncio.create_task(shared.ask("owner", "GET", path))
        await asyncio.sleep(0.3)
        shared.file[0] = None
        begin_s = time.monotonic()
        assert (await waiting).code == 401
        assert time.monotonic() - begin_s < 5

    run(tmp_path, test)


def test_another_users_job_answers_as_one_that_is_not_there(tmp_path: Path) -> None:
    async def test(shared: Shared) -> None:
        absent, there = "job-00000000", shared.job
        for operation in OPERATIONS:
            if "{key}" not in operation.path:
                continue
            answers = [
                await shared.ask("other", operation.method.upper(), path_of(operation.path, key))
                for key in (absent, there)
            ]
            assert [answer.code for answer in answers] == [404, 404], operation.path
            bodies = [
                answer.body.replace(key.encode(), b"KEY")
                for answer, key in zip(answers, (absent, there), strict=True)
            ]
            assert bodies[0] == bodies[1], operation.path
        page = (await shared.ask("other", "GET", "/v1/jobs")).json
        assert (page["jobs"], page["total"]) == ([], 0)
        assert (await shared.ask("other", "GET", "/v1/jobs?user=ada")).code == 403
        gpus = await shared.ask("other", "GET", "/v1/gpus")
        assert shared.job.encode() not in gpus.body

    run(tmp_path, test, users_see_all=False)


def test_other_users_see_a_jobs_name_and_state_and_nothing_private(tmp_path: Path) -> None:
    async def test(shared: Shared) -> None:
        for identity in ("other", "viewer"):
            seen = (await shared.ask(identity, "GET", f"/v1/jobs/{shared.job}")).json
            assert (seen["name"], seen["user"]) == ("job", "ada")
            assert seen["state"] in ("submitted", "initializing", "running")
            assert (seen["command"], seen["code"], seen["log_folder"]) == ([], None, None)
        mine = (await shared.ask("owner", "GET", f"/v1/jobs/{shared.job}")).json
        assert mine["command"] == ["train"]

    run(tmp_path, test)


def test_a_user_submits_for_nobody_else_and_within_caps(tmp_path: Path) -> None:
    async def test(shared: Shared) -> None:
        record = {**RECORD, "name": "second"}
        for field, value in (("user", "ada"), ("priority", 1)):
            answer = await shared.ask("other", "POST", "/v1/jobs", {**record, field: value})
            assert (answer.code, answer.json["path"]) == (422, field)
            assert "operator" in answer.json["hint"]
        answer = await shared.ask("operator", "POST", "/v1/jobs", {**record, "user": "bob"})
        assert answer.json["user"] == "bob"
        assert (await shared.ask("other", "POST", "/v1/jobs/second/cancel")).code == 200

    run(tmp_path, test)


def test_a_header_gives_a_user_no_other_name(tmp_path: Path) -> None:
    async def test(shared: Shared) -> None:
        bearer = shared.bearer("owner")
        path = f"/v1/jobs/{shared.job}/cancel"
        await shared.it.ask("POST", path, token=bearer, Reshape_User="bob")
        history = (await shared.it.get(f"/v1/jobs/{shared.job}/history")).json["events"]
        assert any("cancelled by ada" in event["text"] for event in history)

    run(tmp_path, test)


def test_a_rotation_under_load_refuses_no_request(tmp_path: Path) -> None:
    """Clients ask without a pause while the token is rotated, and change over at their own time."""
    path = tmp_path / token_file.FILE_NAME
    secrets = [token_file.new_token() for _ in range(4)]
    digests = [digest(secret.encode()) for secret in secrets]
    first = NamedToken("ada", Role.OPERATOR, digests[0], NOW_S)  # a user has a pace
    token_file.edit(path, lambda file: file.created(first))
    newest = 0

    async def client(it: Api, codes: Counter[int], stop: asyncio.Event) -> None:
        while not stop.is_set():
            mine = newest
            for _ in range(3):
                answer = await it.ask("GET", "/v1/whoami", token=secrets[mine])
                codes[answer.code] += 1

    async def inside() -> Counter[int]:
        nonlocal newest
        codes, stop = Counter[int](), asyncio.Event()
        identities = Identities(lambda: TOKEN, token_file.follow(path))
        async with api(tmp_path, identities=identities) as it:
            clients = [asyncio.create_task(client(it, codes, stop)) for _ in range(8)]
            for number in range(1, len(secrets)):
                await asyncio.sleep(0.2)
                change = partial(
                    TokenFile.rotated,
                    name="ada",
                    sha256=digests[number],
                    now_s=time.time(),
                    overlap_s=60.0,
                )
                await asyncio.to_thread(token_file.edit, path, change)
                newest = number
            await asyncio.sleep(0.2)
            stop.set()
            await asyncio.gather(*clients)
            token_file.edit(path, lambda file: file.revoked("ada"))
            begin_s = time.monotonic()
            assert (await it.ask("GET", "/v1/whoami", token=secrets[-1])).code == 401
            assert time.monotonic() - begin_s < 1
        return codes

    codes = asyncio.run(inside())
    assert set(codes) == {200}
    assert codes[200] > 50


def test_the_job_that_was_checked_is_the_one_that_changes(tmp_path: Path) -> None:
    """The name in the path may belong to another user's job a moment later."""

    async def test(shared: Shared) -> None:
        asked: list[str] = []

        async def cancel(key: str, user: str) -> JobId:
            asked.append(key)
            raise UnknownJob(key)

        shared.it.context.control.cancel = cancel  # type: ignore[method-assign]
        await shared.ask("owner", "POST", "/v1/jobs/job/cancel")
        assert asked == [shared.job]

    run(tmp_path, test)


@pytest.mark.parametrize("way", ["/v1/jobs", "yaml", "/v1/arrays", "/v1/trials"])
def test_a_users_record_does_not_tell_which_paths_exist(tmp_path: Path, way: str) -> None:
    places = {name: tmp_path / name for name in ("there", "closed", "gone")}
    places["there"].mkdir()
    places["closed"].mkdir(mode=0)
    (places["there"] / "file").write_text("")
    path = "/v1/jobs" if way == "yaml" else way
    form = {"Content-Type": "application/yaml"} if way == "yaml" else {}

    def record(name: str, code: Path, script: str) -> dict[str, object]:
        folders = {"code": str(code), "dataset": str(code / "data")}
        found = {**RECORD, **folders, "name": name, "checkpoints": str(code / name)}
        if way == "/v1/arrays":
            return {**found, "command": ["python", script, "{lr}"], "array": {"lr": [1]}}
        return {**found, "command": ["python", script]}

    async def test(shared: Shared) -> None:
        scripts = ("file", "gone.py", "../there/file", str(places["there"] / "file"))
        codes = set()
        for number, (code, script) in enumerate(product(places.values(), scripts)):
            asked, token = record(f"job-{number}", code, script), shared.bearer("owner")
            codes.add((await shared.it.ask("POST", path, asked, token=token, **form)).code)
        assert len(codes) == 1
        assert codes <= {200, 201}
        asked = record("operators", places["there"], "gone.py")
        answer = await shared.it.ask("POST", path, asked, **form)
        assert answer.code == 422
        assert "script missing" in answer.json["message"]

    run(tmp_path, test)
