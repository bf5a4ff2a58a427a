"""Who may ask, under which name, and how much: before anything else is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.access.rights import Right
from reshape_controller.http.app import ROUTES, CannotListen, bind
from reshape_controller.http.base import BODY_BYTES_MAX, Gate
from reshape_controller.http.routes import rights_of
from tests.support.http_bed import RECORD, TOKEN, Api, run

PATHS = (
    "/v1/jobs",
    "/v1/jobs/x",
    "/v1/jobs/x/history",
    "/v1/jobs/x/decisions",
    "/v1/jobs/x/logs",
    "/v1/gpus",
    "/v1/hosts",
    "/v1/timeline",
    "/v1/usage",
    "/v1/state",
    "/v1/status",
    "/v1/openapi.json",
    "/metrics",
    "/readyz",
    "/nowhere",
)


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "ü"])
def test_without_the_right_token_nothing_is_told(tmp_path: Path, token: str | None) -> None:
    async def test(it: Api) -> None:
        for path in PATHS:
            answer = await it.ask("GET", path, token=token)
            assert answer.code == 401, path
            assert answer.json["code"] == "unauthorized"
        for path in ("/v1/jobs", "/v1/jobs/x/cancel", "/v1/hosts/local/drain"):
            assert (await it.ask("POST", path, RECORD, token=token)).code == 401, path
        assert (await it.get("/v1/jobs")).json["total"] == 0

    run(tmp_path, test)


def test_every_route_but_healthz_and_the_login_asks_for_a_token() -> None:
    handlers = [handler for _, handler in ROUTES]
    own_tokens = [handler.__name__ for handler in handlers if "identify" in handler.__dict__]
    assert own_tokens == ["SideCar"], "each attempt has a token of its own"
    decides = ("prepare", "authorize", "verdict", "obey", "right")
    assert not [h.__name__ for h in handlers for name in decides if name in h.__dict__]
    opened = [
        (method, pattern)
        for pattern, _ in ROUTES
        for method, right in rights_of(pattern).items()
        if right is Right.OPEN
    ]
    assert opened == [("POST", "/v1/session"), ("GET", "/healthz")]
    assert all(issubclass(handler, Gate) for handler in handlers)


def test_health_needs_no_token_and_tells_nothing_else(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        answer = await it.ask("GET", "/healthz", token=None)
        assert (answer.code, answer.json) == (200, {"status": "ok", "reason": "", "role": "leader"})

    run(tmp_path, test)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
def test_a_name_that_is_not_the_daemons_is_refused(tmp_path: Path, host: str) -> None:
    """What a page in a browser sends after its name was pointed at loopback."""

    async def test(it: Api) -> None:
        for path in ("/healthz", "/v1/jobs"):
            lines = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
            assert b" 403 " in (await it.raw(lines.encode())).splitlines()[0]

    run(tmp_path, test)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1:99", "[::1]:80"])
def test_every_name_of_loopback_is_good(tmp_path: Path, host: str) -> None:
    async def test(it: Api) -> None:
        assert (await it.get("/v1/jobs", Host=host)).code == 200

    run(tmp_path, test)


def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        answer = await it.post("/v1/jobs", b" " * (BODY_BYTES_MAX + 1))
        assert (answer.code, answer.json["code"]) == (413, "too-large")
        assert answer.json["path"] == "body"
        assert answer.json["hint"].startswith("send less")
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        for digits in ("9" * 5000, "0" * 5000, "²"):
            odd = await it.raw(f"{head}Content-Length: {digits}\r\n\r\n".encode())
            assert b" 500 " not in odd[:20], odd[:200]
        found = await it.raw(f"{head}Content-Length: 99999999\r\n\r\n".encode())
        assert b" 400 " in found.splitlines()[0] or found == b""
        assert (await it.get("/v1/jobs")).code == 200, "and work goes on"

    run(tmp_path, test)


@pytest.mark.parametrize("address", ["0.0.0.0", "192.0.2.1", "::", "example.org", ""])
def test_binding_beyond_loopback_is_refused(address: str) -> None:
    with pytest.raises(CannotListen, match="loopback only") as refused:
        bind(address, 0)
    assert refused.value.refused


def test_a_port_that_is_taken_is_named() -> None:
    first = bind("127.0.0.1", 0)
    port = first.getsockname()[1]
    with first, pytest.raises(CannotListen, match=f"port {port} of 127.0.0.1 is in use") as taken:
        bind("127.0.0.1", port)
    assert "--port" in taken.value.remedy


@pytest.mark.parametrize(
    "host",
    [
        "",
        "[",
        "[::1",
        "[::1]x",
        "localhost:x",
        "localhost:1:2",
        "localhost:99999",
        "a b",
        "@",
        "%zz",
    ],
)
def test_an_odd_host_is_a_bad_request(tmp_path: Path, host: str) -> None:
    async def test(it: Api) -> None:
        token = f"Authorization: Bearer {TOKEN}"
        request = f"GET /v1/jobs HTTP/1.1\r\nHost: {host}\r\n{token}\r\n\r\n"
        assert (await it.raw(request.encode())).startswith(b"HTTP/1.1 400 ")
        for good in ("localhost", "LOCALHOST:80", "127.0.0.1:7470", "[::1]", "[::1]:7470"):
            request = f"GET /v1/jobs HTTP/1.1\r\nHost: {good}\r\n{token}\r\n\r\n"
            assert (await it.raw(request.encode())).startswith(b"HTTP/1.1 200 ")

    run(tmp_path, test)
