"""The CLI's end of the HTTP API.

Does: finds the daemon by its home, asks, and turns every failure into what, where, remedy and exit
code. Never: touches the store, or retries something that changes state. State: none.
"""

from __future__ import annotations

import getpass
import http.client
import json
import shlex
import time
import urllib.parse
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from reshape_controller.cli.exits import CliError, Exit, Problem, failed
from reshape_controller.cli.home import Home
from reshape_sidecar import codec

T = TypeVar("T")

ANSWER_S = 60.0
"""Longest wait for an answer; the daemon answers ``not ready`` long before."""

ASK_AGAIN_S = 0.5
PATIENCE_S = 120.0
"""What follows a job outlives a restart of the daemon, as the job does."""

_CODES = {
    400: Exit.REJECTED,
    401: Exit.REJECTED,
    403: Exit.REJECTED,
    404: Exit.NOT_FOUND,
    409: Exit.REJECTED,
    413: Exit.REJECTED,
    422: Exit.REJECTED,
    503: Exit.UNREACHABLE,
}


class RecordRefused(CliError):
    """The daemon does not accept a record; ``where`` of its problems are fields of the record."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A success: the body as it came, and its headers in lower case."""

    body: bytes
    headers: dict[str, str]


class Client:
    """Asks one daemon."""

    def __init__(self, url: str, token: str, home: Home) -> None:
        self.url = url
        self.patience_s = 0.0
        """A question (never a request) is asked again for so long while nobody answers."""
        self.now_s = time.time()
        """What time it was for the daemon at its newest answer: its clock makes no jumps."""
        self._token = token
        self._home = home

    def get(self, kind: type[T], path: str, **query: object) -> T:
        """The value at ``path``. Raises CliError."""
        return self._typed(kind, self.ask("GET", path, query=query))

    def post(self, kind: type[T], path: str, body: object = None) -> T:
        """The answer to a request that changes something. Raises CliError."""
        text = json.dumps(body) if body is not None else ""
        return self._typed(kind, self.ask("POST", path, text))

    def ask(
        self, method: str, path: str, body: str = "", query: dict[str, object] | None = None
    ) -> Answer:
        """One request. Raises CliError for everything but success."""
        patience_s = self.patience_s if method == "GET" else 0.0
        until_s = time.monotonic() + patience_s
        while True:
            try:
                return self._once(method, path, body, query)
            except CliError as error:
                if error.code is not Exit.UNREACHABLE or time.monotonic() >= until_s:
                    raise
            time.sleep(ASK_AGAIN_S)

    def _once(self, method: str, path: str, body: str, query: dict[str, object] | None) -> Answer:
        parts = urllib.parse.urlsplit(self.url)
        given = {key: value for key, value in (query or {}).items() if value is not None}
        target = urllib.parse.quote(path) + (f"?{urllib.parse.urlencode(given)}" if given else "")
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "Reshape-User": _user(),
        }
        connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port or 80, timeout=ANSWER_S
        )
        try:
            connection.request(method, target, body.encode(), headers)
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()
        if answer.status >= 300:
            raise self._refused(answer.status, data)
        self.now_s = _number(answer.getheader("Reshape-Now")) or time.time()
        return Answer(data, {key.lower(): value for key, value in answer.getheaders()})

    def _typed(self, kind: type[T], answer: Answer) -> T:
        try:
            return codec.loads(kind, answer.body)
        except codec.CodecError as error:
            raise failed(
                Exit.FAILED,
                f"the daemon's answer does not match this version of reshape ({error})",
                self.url,
                "daemon and command have different versions: restart the daemon",
            ) from None

    def _unreachable(self, error: Exception) -> CliError:
        why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
        # Of one that runs a second one would be refused.
        waits = "it runs, but is still starting or waits for its store: see its log"
        remedy = waits if self._home.has_daemon() else _start_it(self._home)
        return failed(
            Exit.UNREACHABLE,
            f"the daemon cannot be reached: {why}",
            f"{self.url} (from {self._home.address_file})",
            remedy,
        )

    def _refused(self, status: int, data: bytes) -> CliError:
        code = _CODES.get(status, Exit.FAILED)
        try:
            body = json.loads(data)
            found = [body, *body.get("errors", [])][1:] or [body]
            problems = [_problem(entry) for entry in found]
        except (ValueError, AttributeError, TypeError, KeyError):
            what = f"the answer is not from a Reshape daemon (HTTP status {status})"
            problems = [Problem(what, self.url, "check which program uses this port")]
        if status == 401:
            remedy = f"{self._home.token_file} has another daemon's token; give the right --home"
            problems = [Problem("the daemon refuses the token", self.url, remedy)]
        if status != 422:
            here = f"the daemon of {self._home.folder}"
            problems = [replace(p, where=p.where or here) for p in problems]
        kind = RecordRefused if status == 422 else CliError
        return kind(code, *problems)


def connect(home: Home) -> Client:
    """A client of the daemon of ``home``. Raises CliError when there never was one."""
    address, token = home.address(), home.read_token()
    if address is None or token is None:
        raise failed(
            Exit.UNREACHABLE,
            "no daemon has ever run in this home",
            str(home.folder),
            "start one: reshape up; or give another home: --home DIR or RESHAPE_HOME",
        )
    if not home.has_daemon():
        raise failed(
            Exit.UNREACHABLE,
            "the daemon is not running (running jobs train on)",
            str(home.folder),
            _start_it(home),
        )
    return Client(address.url, token, home)


def _start_it(home: Home) -> str:
    """The remedy where no daemon answers, as a shell takes it."""
    return f"start it: reshape up --home {shlex.quote(str(home.folder))}"


def _problem(entry: Any) -> Problem:
    return Problem(str(entry["message"]), str(entry.get("path", "")), str(entry.get("hint", "")))


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"
