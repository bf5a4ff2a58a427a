"""The page's login over HTTP: cookies, what comes with them, and what ends them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.access.failed_logins import FAILURES_MAX
from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import Role
from reshape_controller.access.token_file import NamedToken, TokenFile, digest
from reshape_controller.cli.serve.public_access import PublicAccess
from reshape_controller.http.app import bind
from tests.support.http_bed import DEADLINE_S, RECORD, TOKEN, Answer, Api, run

ADA = NamedToken("ada", Role.USER, digest(b"adas"), time.time())
PROM = NamedToken("prom", Role.SCRAPER, digest(b"proms"), time.time())


class Browser:
    """A browser that has one daemon's page open."""

    def __init__(self, it: Api) -> None:
        self.it = it
        self.origin = f"http://127.0.0.1:{it.port}"
        self.cookies: SimpleCookie = SimpleCookie()
        self.csrf = ""

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        cookies = "; ".join(f"{each.key}={each.value}" for each in self.cookies.values())
        return await self.it.ask(method, path, body, token=None, Cookie=cookies, **headers)

    async def change(self, method: str, path: str, body: Any = None) -> Answer:
        headers = {"Origin": self.origin, "X_Reshape_CSRF": self.csrf}
        return await self.ask(method, path, body, **headers)

    async def log_in(self, **given: str) -> Answer:
        answer = await self.ask("POST", "/v1/session", given, Origin=self.origin)
        if answer.code == 200:
            self.cookies = SimpleCookie(answer.headers["set-cookie"])
            self.csrf = answer.json["csrf"]
        return answer


def with_browser(
    folder: Path,
    test: Callable[[Browser, list[TokenFile]], Awaitable[None]],
) -> None:
    file = [TokenFile((ADA, PROM))]

    async def inside(it: Api) -> None:
        await test(Browser(it), file)

    run(folder, inside, Identities(lambda: TOKEN, lambda: file[0]))


def test_a_token_is_changed_for_a_cookie_that_no_script_and_no_other_site_gets(
    tmp_path: Path,
) -> None:
    async def test(browser: Browser, _: list[TokenFile]) -> None:
        assert (await browser.ask("GET", "/v1/session")).code == 401
        answer = await browser.log_in(token="adas")
        assert (answer.json["user"], answer.json["role"]) == ("ada", "user")
        assert len(answer.json["csrf"]) == 64
        (cookie,) = browser.cookies.values()
        assert cookie.key == f"reshape-{browser.it.port}"
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")
        assert not cookie["secure"]
        assert (await browser.ask("GET", "/v1/session")).json == answer.json
        assert (await browser.ask("GET", "/v1/jobs")).code == 200
        assert (await browser.ask("GET", "/v1/state")).code == 403, "Ada is no operator"

    with_browser(tmp_path, test)


def test_a_change_by_cookie_needs_the_header_and_the_own_page(tmp_path: Path) -> None:
    async def test(browser: Browser, _: list[TokenFile]) -> None:
        await browser.log_in(token="adas")
        own, csrf = {"Origin": browser.origin}, {"X_Reshape_CSRF": browser.csrf}
        port = browser.it.port
        foreign = (f"http://127.0.0.1:{port + 1}", "http://evil.example", "null", "")
        requests = [own, csrf, {**own, "X_Reshape_CSRF": browser.csrf[:-1] + "x"}]
        requests += [{**csrf, "Origin": each} for each in foreign]
        for headers in requests:
            for path in ("/v1/jobs", "/v1/jobs/x/cancel", "/v1/session/links", "/nowhere"):
                answer = await browser.ask("POST", path, RECORD, **headers)
                assert (answer.code, answer.json["code"]) == (403, "cross-site"), headers
            assert (await browser.ask("DELETE", "/v1/session", **headers)).code == 403
        assert (await browser.it.get("/v1/jobs")).json["total"] == 0
        answer = await browser.change("POST", "/v1/jobs", RECORD)
        assert (answer.code, answer.json["user"]) == (201, "ada")

    with_browser(tmp_path, test)


def test_a_header_of_another_session_does_not_do(tmp_path: Path) -> None:
    async def test(browser: Browser, _: list[TokenFile]) -> None:
        other = Browser(browser.it)
        await browser.log_in(token="adas")
        await other.log_in(token=TOKEN)
        browser.csrf = other.csrf
        assert (await browser.change("POST", "/v1/jobs", RECORD)).code == 403

    with_browser(tmp_path, test)


def test_a_page_of_another_site_cannot_log_a_browser_in(tmp_path: Path) -> None:
    async def test(browser: Browser, _: list[TokenFile]) -> None:
        for origin in ("http://evil.example", "null"):
            answer = await browser.ask("POST", "/v1/session", {"token": "adas"}, Origin=origin)
            assert (answer.code, answer.json["path"]) == (403, "header Origin")
            assert "set-cookie" not in answer.headers

    with_browser(tmp_path, test)


def test_a_token_in_the_header_counts_and_needs_no_more(tmp_path: Path) -> None:
    async def test(browser: Browser, _: list[TokenFile]) -> None:
        await browser.log_in(token="adas")
        (cookie,) = browser.cookies.values()
        headers = {"Cookie": f"{cookie.key}={cookie.value}"}
        who = (await browser.it.get("/v1/session", **headers)).json
        assert who == {"user": "operator", "role": "operator", "csrf": ""}
        assert (await browser.it.post("/v1/jobs", RECORD, **headers)).code == 201
        wrong = await browser.it.ask("GET", "/v1/jobs", token="wrong", **headers)
        assert wrong.code == 401, "a cookie does not stand in for a wrong token"
        assert (await browser.it.ask("DELETE", "/v1/session")).code == 400

    with_browser(tmp_path, test)


def test_a_logout_ends_every_copy_of_the_cookie(tmp_path: Path) -> None:
    async def test(browser: Browser, _: list[TokenFile]) -> None:
        await browser.log_in(token="adas")
        other = Browser(browser.it)
        await other.log_in(token="adas")
        answer = await browser.change("DELETE", "/v1/session")
        assert (answer.code, answer.body) == (204, b"")
        (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
        assert (cookie.value, cookie["expires"] != "") == ("", True)
        assert (await browser.ask("GET", "/v1/jobs")).code == 401, "the browser still sends it"
        assert (await other.ask("GET", "/v1/jobs")).code == 200

    with_browser(tmp_path, test)


async def _lines(browser: Browser, lines: list[bytes]) -> None:
    """Read an event stream until it ends."""
    (cookie,) = browser.cookies.values()
    reader, writer = await asyncio.open_connection("127.0.0.1", browser.it.port)
    request = (
        f"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1:{browser.it.port}\r\n"
        f"Cookie: {cookie.key}={cookie.value}\r\nConnection: close\r\n\r\n"
    )
    writer.write(request.encode())
    while line := await reader.readline():
        lines.append(line)
    writer.close()


@pytest.mark.parametrize("end", ["logout", "revocation"])
def test_event_streams_of_an_ended_login_end(tmp_path: Path, end: str) -> None:
    async def test(browser: Browser, file: list[TokenFile]) -> None:
        await browser.log_in(token="adas")
        lines: list[bytes] = []
        stream = asyncio.create_task(_lines(browser, lines))
        async with asyncio.timeout(DEADLINE_S):
            while b"event: ready\n" not in lines:
                await asyncio.sleep(0.01)
        assert not stream.done()
        if end == "logout":
            assert (await browser.change("DELETE", "/v1/session")).code == 204
        else:
            file[0] = file[0].revoked("ada")
        async with asyncio.timeout(DEADLINE_S):
            await stream

    with_browser(tmp_path, test)


def test_a_link_logs_in_once_and_needs_a_token_to_be_made(tmp_path: Path) -> None:
    async def test(browser: Browser, _: list[TokenFile]) -> None:
        made = await browser.it.ask("POST", "/v1/session/links", token="adas")
        assert (made.code, made.json["expires_in_s"]) == (201, 60.0)
        assert (await browser.log_in(link=made.json["link"])).json["user"] == "ada"
        answer = await Browser(browser.it).log_in(link=made.json["link"])
        assert (answer.code, answer.json["path"]) == (401, "body link")
        assert "reshape page" in answer.json["hint"]
        assert (await browser.change("POST", "/v1/session/links")).code == 403

    with_browser(tmp_path, test)


def test_failed_logins_are_bounded_and_cost_no_session(tmp_path: Path) -> None:
    async def test(browser: Browser, _: list[TokenFile]) -> None:
        await browser.log_in(token="adas")
        other = Browser(browser.it)
        codes = [(await other.log_in(token=f"guess {n}")).code for n in range(FAILURES_MAX + 1)]
        assert codes == [401] * FAILURES_MAX + [429]
        answer = await other.log_in(token="adas")
        assert (answer.code, answer.json["code"]) == (429, "too-many-logins")
        assert answer.json["hint"].startswith("try again in ")
        assert "or use a link of: reshape page" in answer.json["hint"]
        link = (await browser.it.post("/v1/session/links")).json["link"]
        assert (await other.log_in(link=link)).code == 200, "the hint is true"
        assert (await browser.ask("GET", "/v1/jobs")).code == 200
        assert (await browser.it.get("/v1/jobs")).code == 200

    with_browser(tmp_path, test)


def test_a_role_without_a_page_cannot_log_in(tmp_path: Path) -> None:
    async def test(browser: Browser, _: list[TokenFile]) -> None:
        answer = await browser.log_in(token="proms")
        assert (answer.code, answer.json["code"]) == (403, "forbidden")
        assert "set-cookie" not in answer.headers

    with_browser(tmp_path, test)


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", '{"token": 1}', '{"name": "x"}', '{"a":"","b":""}']
)
def test_a_login_that_cannot_be_read_is_named(tmp_path: Path, body: str) -> None:
    async def test(browser: Browser, _: list[TokenFile]) -> None:
        answer = await browser.ask("POST", "/v1/session", body)
        assert (answer.code, answer.json["path"][:4]) == (400, "body")

    with_browser(tmp_path, test)


def test_behind_a_proxy_with_tls_the_cookie_is_secure(tmp_path: Path) -> None:
    async def test(browser: Browser, _: list[TokenFile]) -> None:
        names = frozenset({"gpu.example.org"})
        listening = bind("127.0.0.1", 0)
        port = listening.getsockname()[1]
        server = PublicAccess("127.0.0.1", port, names, None, "127.0.0.1").server(
            listening, browser.it.context
        )
        server.start()
        mine = replace_port(browser, port)
        headers = {"Host": "gpu.example.org", "Origin": "https://gpu.example.org"}
        answer = await mine.ask("POST", "/v1/session", {"token": "adas"}, **headers)
        (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
        assert (cookie.key, cookie["secure"]) == ("__Host-reshape", True)
        mine.cookies, mine.csrf = SimpleCookie(answer.headers["set-cookie"]), answer.json["csrf"]
        headers["X_Reshape_CSRF"] = mine.csrf
        assert (await mine.ask("POST", "/v1/jobs", RECORD, **headers)).code == 201
        with contextlib.suppress(asyncio.CancelledError):
            await server.stop()

    with_browser(tmp_path, test)


def replace_port(browser: Browser, port: int) -> Browser:
    """A browser at another port of the same daemon."""
    it = Api(port, *(getattr(browser.it, name) for name in ("launcher", "tokens", "logs", "clock")))
    it.context = replace(browser.it.context)
    return Browser(it)
