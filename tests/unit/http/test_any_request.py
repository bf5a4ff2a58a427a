"""Requests drawn from the API's own description: none of them finds a defect (5xx)."""

from __future__ import annotations

import asyncio
import json
import random
import urllib.parse
from pathlib import Path
from typing import Any

from reshape_controller.http.errors import ErrorBody
from reshape_controller.http.openapi import document
from reshape_controller.http.routes import OPERATIONS
from tests.support.hostile_texts import HOSTILE
from tests.support.http_bed import RECORD, api

REQUESTS = 700
SEED = 36
NUMBERS = (0, -1, 1, 2**31, 2**63, -(2**70), 1.5, 1e308, -1e-300)


def value(draw: random.Random, depth: int = 3) -> Any:
    """A JSON value."""
    kinds = ["null", "bool", "number", "text"] + ["list", "object"] * (depth > 0)
    match draw.choice(kinds):
        case "null":
            return None
        case "bool":
            return draw.random() < 0.5
        case "number":
            return draw.choice(NUMBERS)
        case "text":
            return draw.choice(HOSTILE)
        case "list":
            return [value(draw, depth - 1) for _ in range(draw.randrange(4))]
    return {text(draw): value(draw, depth - 1) for _ in range(draw.randrange(4))}


def text(draw: random.Random) -> str:
    return str(draw.choice((draw.choice(HOSTILE), draw.choice(tuple(RECORD)), "size", "profile")))


def body(draw: random.Random) -> str | bytes | None:
    """A body: none, a record with some fields exchanged, any JSON, or no JSON."""
    match draw.randrange(5):
        case 0:
            return None
        case 1:
            return json.dumps({**RECORD, "name": f"job-{draw.randrange(10**9)}"})
        case 2:
            changed = {name: value(draw) for name in draw.sample(tuple(RECORD), draw.randrange(3))}
            more = {text(draw): value(draw)} if draw.random() < 0.5 else {}
            return json.dumps({**RECORD, **changed, **more})
        case 3:
            return json.dumps(value(draw))
    return bytes(draw.randrange(256) for _ in range(draw.randrange(64)))


def target(draw: random.Random, path: str, entry: dict[str, Any]) -> str:
    """A path with its parameters, most of them of the right form."""
    asked = []
    for parameter in entry["parameters"]:
        name = parameter["name"]
        drawn = draw.choice(("job", "local", "gpu-0", "1", draw.choice(HOSTILE)))
        if parameter["in"] == "path":
            path = path.replace(f"{{{name}}}", urllib.parse.quote(drawn, safe=""))
        elif name == "wait_s" or draw.random() < 0.5:  # without it a stream stays open
            word = str(draw.choice((drawn, *NUMBERS, "nan", "inf", "")))
            asked.append((name, "0" if name == "wait_s" else word))
    query = urllib.parse.urlencode(asked, errors="surrogatepass")
    return path + (f"?{query}" if query else "")


def test_no_request_is_answered_by_a_defect(tmp_path: Path) -> None:
    async def scenario() -> list[tuple[str, str, object, int, bytes]]:
        draw = random.Random(SEED)
        defects: list[tuple[str, str, object, int, bytes]] = []
        described = document(OPERATIONS, ErrorBody)["paths"]
        operations = [(m, p, e) for p, each in described.items() for m, e in each.items()]
        types = ("application/json", "application/yaml", "text/yaml; charset=x", "", "a/b")
        async with api(tmp_path) as it:
            await it.post("/v1/jobs", RECORD)
            codes = set()
            for _ in range(REQUESTS):
                method, path, entry = draw.choice(operations)
                where, sent = target(draw, path, entry), body(draw)
                if method == "get":
                    sent = None
                answer = await it.ask(method.upper(), where, sent, Content_Type=draw.choice(types))
                codes.add(answer.code)
                if answer.code >= 500:
                    defects.append((method, where, sent, answer.code, answer.body))
            assert {200, 201, 400, 404, 409, 422} <= codes, "each kind of answer was met"
        return defects

    assert asyncio.run(scenario()) == []
