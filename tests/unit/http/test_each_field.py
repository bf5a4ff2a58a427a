"""Every parameter and body field of the API's description, with values of every kind: no 5xx.

Each request differs from a good one in a single place, so that a wrong place hides no other.
"""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.http import room
from reshape_controller.http.errors import ErrorBody
from reshape_controller.http.openapi import document
from reshape_controller.http.routes import OPERATIONS
from reshape_controller.records.fields import NESTED, RecordFields
from reshape_profiles import loader
from reshape_profiles.schema import AccuracyPoint, Overhead, Profile, SpeedPoint, Verification
from reshape_sidecar import codec
from reshape_sidecar.wire import Observed, Phase
from tests.support.http_bed import RECORD, TOKEN, Answer, Api, api

NUMBERS = (0, -1, 1, 2, 2**31, 2**63, -(2**70), 1.5, 1e308, 5e-324)
TEXTS = (
    *("", "job-1", "1", "nan", "inf", "auto", "user", "a\0b", "\ud800", "\u202e", "../.."),
    *("{{ 7 }}", "x" * 5000, "2026-11-26"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, *NUMBERS, *TEXTS, [], [[]], {}, [None], [1, 1], [2**70], ["x", 1]),
    *({"": None}, {"a": {"b": []}}, ["x"] * 2000),
)
FEW = VALUES[::3]
"""For places that the parser of another operation reads with all of ``VALUES``, or that have a
parser of their own for their type."""
PIN = {"size": 2}
PROFILE = Profile(
    *("slow", "a text", 64, 10, (SpeedPoint("testing", 2, 1.0, "x"),)),
    *((AccuracyPoint(5, 0.5, "x"),), Overhead(1.0, 1.0, 1.0, 1.0, 1.0, "x")),
    Verification("exact", "", 8, (2, 1), "2026-11-25", "3.11"),
)
Place = tuple[str | int, ...]
Visit = tuple[str, ...]
Code = tuple[str, int]


@dataclass(frozen=True)
class Request:
    """A request that differs from a good one in ``place``: a name of the description or a body's
    place."""

    method: str
    path: str
    where: str
    place: Place
    target: str
    body: object = None


def places(value: object, before: Place = ()) -> Iterator[Place]:
    """Yield the place of each value within a JSON value, itself included."""
    yield before
    parts: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    for key, part in parts:
        yield from places(part, (*before, key))


def changed(value: Any, place: Place, new: object) -> Any:
    """Return a JSON value with another value at a place."""
    if not place:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = changed(value[place[0]], place[1:], new)
    return copy


def target(path: str, values: dict[str, str], query: dict[str, str]) -> str:
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", urllib.parse.quote(value, safe="", errors="replace"))
    asked = urllib.parse.urlencode(query, errors="surrogatepass")
    return path + (f"?{asked}" if asked else "")


def in_parameters(path: str, method: str, names: list[tuple[str, str]]) -> Iterator[Request]:
    good = {"key": "job", "gpu": "gpu-0", "host": "local", "job": "job", "attempt": "1"}
    good = {name: good[name] for where, name in names if where == "path"}
    at_once = {"wait_s": "0"} if ("query", "wait_s") in names else {}
    for where, name in names:
        for value in map(str, (*NUMBERS, *TEXTS)):
            if where == "path":
                asked = target(path, good | {name: value}, at_once)
            else:
                waits = name == "wait_s" and value not in ("0", "nan", "inf", "")
                asked = target(path, good, at_once | {name: "0" if waits else value})
            yield Request(method, path, where, (name,), asked)


def bodies(path: str, report: dict[str, object]) -> Iterator[tuple[Place, object]]:
    """Yield bodies of an operation that each differ from a good one in one place."""
    match path.rpartition("/")[2]:
        case "pin":
            good: Any = PIN
        case "session":
            yield from session_bodies()
            return
        case "profiles":
            good = loader.document((PROFILE,))
        case "{attempt}":
            yield from (((), value) for value in FEW)
            for field in fields(Observed):
                yield from (((field.name,), {**report, field.name: value}) for value in FEW)
            return
        case _:
            yield from records(path)
            return
    for place in places(good):
        yield from ((place, changed(good, place, value)) for value in FEW)


def session_bodies() -> Iterator[tuple[Place, object]]:
    yield ("token",), {"token": TOKEN}
    yield from (((field,), {field: value}) for value in VALUES for field in ("token", "link"))
    yield from (((), value) for value in FEW)


def records(path: str) -> Iterator[tuple[Place, object]]:
    number = 0
    more: dict[str, object] = {"array": {"lr": [1]}} if path == "/v1/arrays" else {}
    for name in (*RecordFields.model_fields, *more):
        inner = NESTED[name].model_fields if name in NESTED else ("lr",) if name == "array" else ()
        for value in VALUES if path == "/v1/jobs" else FEW:
            for place in ((name,), *((name, each) for each in inner)):
                number += 1
                given = value if len(place) == 1 else {place[1]: value}
                own = {"name": f"{path.rpartition('/')[2]}-{number}"}
                yield place, {**RECORD, **more, **own, name: given}
    yield from (((), value) for value in VALUES)


def requests(report: dict[str, object]) -> Iterator[Request]:
    described = document(OPERATIONS, ErrorBody)["paths"]
    for path, operations in described.items():
        for method, entry in operations.items():
            names = [(each["in"], each["name"]) for each in entry["parameters"]]
            yield from in_parameters(path, method, names)
            if "requestBody" in entry:
                for place, body in bodies(path, report):
                    good = {"key": "job", "job": "job", "attempt": "1"}
                    query = {"wait_s": "0"} if "{attempt}" in path else {}
                    yield Request(method, path, "body", place, target(path, good, query), body)


def report_of(job: str) -> dict[str, object]:
    """A good report, without the fields that have their defaults."""
    value = codec.to_value(Observed(job, 1, 1, 1, Phase.RUNNING))
    assert isinstance(value, dict)
    return value


def at_real_job(request: Request, job: str) -> Request:
    """Return a SideCar's request about a job that there is."""
    if not request.path.startswith("/v1/sidecar"):
        return request
    return replace(request, target=request.target.replace("/sidecar/job/", f"/sidecar/{job}/"))


async def ended(it: Api, answer: Answer) -> None:
    """Cancel what a request has submitted: a long queue takes long to decide about."""
    found = answer.json
    jobs = found.get("jobs", [found.get("id")]) if isinstance(found, dict) else []
    for job in jobs:
        await it.post(f"/v1/jobs/{job}/cancel")


async def scenario(folder: Path) -> tuple[list[tuple[Request, int]], set[Code], set[Visit]]:
    """Send every request; return the defects, the codes met, and the places."""
    defects, codes, visited = [], set(), set()
    async with api(folder) as it:
        job = (await it.post("/v1/jobs", RECORD)).json["id"]
        await it.reaches(job, "running")
        sidecars, form = it.tokens.of(job, 1), {"Content_Type": "application/json"}
        for each in requests(report_of(job)):
            request = at_real_job(each, job)
            body = None if request.method == "get" else json.dumps(request.body)
            token = sidecars if request.path.startswith("/v1/sidecar") else TOKEN
            method = request.method.upper()
            answer = await it.ask(method, request.target, body, token=token, **form)
            if answer.code == 201 or (request.path == "/v1/arrays" and answer.code == 200):
                await ended(it, answer)
            codes.add((request.path, answer.code))
            visited.add((request.method, request.path, request.where, *map(str, request.place[:1])))
            if answer.code >= 500:
                defects.append((request, answer.code))
    return defects, codes, visited


def test_each_parameter_and_field_with_each_kind_of_value_meets_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "WORKER_PACE", 10_000.0)  # all reports are of one SideCar
    defects, codes, visited = asyncio.run(scenario(tmp_path))
    assert defects == []
    described = document(OPERATIONS, ErrorBody)["paths"]
    for path, operations in described.items():
        for method, entry in operations.items():
            for each in entry["parameters"]:
                assert (method, path, each["in"], each["name"]) in visited
            if "requestBody" in entry:
                assert (method, path, "body") in visited
                assert codes & {(path, code) for code in (200, 201, 204)}, f"{path} took none"
                assert codes & {(path, code) for code in (400, 422)}, f"{path} refused none"
    for field in RecordFields.model_fields:
        for path in ("/v1/jobs", "/v1/arrays", "/v1/trials"):
            assert ("post", path, "body", field) in visited
    for each in fields(Observed):
        assert ("post", "/v1/sidecar/{job}/{attempt}", "body", each.name) in visited
