"""The CLI's client of the HTTP API.

Does: find the daemon by its home, send requests, and turn every failure into an error with a remedy
and an exit code. Never: touch the store, or retry a request that changes state.
"""

from __future__ import annotations

import getpass
import http.client
import json
import shlex
import time
import urllib.parse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from reshape_controller.cli.exits import CliError, Exit, Problem, failed
from reshape_controller.cli.home import Home
from reshape_controller.cli.target import Target
from reshape_sidecar import codec

T = TypeVar("T")

ANSWER_S = 60.0
"""Longest wait for a response; the daemon answers ``not ready`` much earlier."""

ASK_AGAIN_S = 0.5
PATIENCE_S = 120.0
"""Time for which a command that follows a job retries, to survive a restart of the daemon."""

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


class RecordRejected(CliError):
    """The daemon rejects a record; ``where`` of each problem is a field of the record."""


@dataclass(frozen=True, slots=True)
class Response:
    """A successful response: the raw body, and the headers in lower case."""

    body: bytes
    headers: dict[str, str]


class Client:
    """A client of a daemon."""

    def __init__(
        self,
        url: str,
        token: str,
        home: Home | None = None,
        *,
        url_from: str = "",
        token_from: str = "",
        ca: Path | None = None,
    ) -> None:
        """``home``: that of the daemon; None: it is elsewhere. ``url_from``, ``token_from``: where
        they come from, for errors. ``ca``: CA certificates of its TLS; None: the system's."""
        self.url = url
        self.patience_s = 0.0
        """Time for which a GET is retried without an answer; other requests are not retried."""
        self.now_s = time.time()
        """The daemon's time at its newest response; its clock makes no jumps."""
        self._token = token
        self._home = home
        self._url_from = url_from or (str(home.address_file) if home is not None else "")
        self._token_from = token_from or (str(home.token_file) if home is not None else "")
        self._ca = ca

    def get(self, kind: type[T], path: str, **query: object) -> T:
        """Return the value at ``path``. Raises CliError."""
        return self._typed(kind, self.ask("GET", path, query=query))

    def post(self, kind: type[T], path: str, body: object = None) -> T:
        """Send a request that changes state; return the response's value. Raises CliError."""
        text = json.dumps(body) if body is not None else ""
        return self._typed(kind, self.ask("POST", path, text))

    def ask(
        self, method: str, path: str, body: str = "", query: dict[str, object] | None = None
    ) -> Response:
        """Send a request. Raises CliError unless it succeeds."""
        patience_s = self.patience_s if method == "GET" else 0.0
        until_s = time.monotonic() + patience_s
        while True:
            try:
                return self._once(method, path, body, query)
            except CliError as error:
                if error.code is not Exit.UNREACHABLE or time.monotonic() >= until_s:
                    raise
            time.sleep(ASK_AGAIN_S)

    def _once(self, method: str, path: str, body: str, query: dict[str, object] | None) -> Response:
        parts = urllib.parse.urlsplit(self.url)
        given = {key: value for key, value in (query or {}).items() if value is not None}
        query_text = f"?{urllib.parse.urlencode(given)}" if given else ""
        target = parts.path + urllib.parse.quote(path) + query_text
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "Reshape-User": _user(),
        }
        connection = self._connection(parts)
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
        return Response(data, {key.lower(): value for key, value in answer.getheaders()})

    def _connection(self, parts: urllib.parse.SplitResult) -> http.client.HTTPConnection:
        """Return a connection, not open yet. Raises CliError."""
        host = parts.hostname or ""
        if parts.scheme != "https":
            return http.client.HTTPConnection(host, parts.port or 80, timeout=ANSWER_S)
        import ssl  # here, because a daemon on this machine does not need it

        try:
            context = ssl.create_default_context(cafile=self._ca)
        except OSError as error:
            what = f"the CA certificates cannot be read: {error.strerror or error}"
            raise failed(Exit.USAGE, what, str(self._ca), "give PEM: --ca FILE") from None
        return http.client.HTTPSConnection(
            host, parts.port or 443, timeout=ANSWER_S, context=context
        )

    @property
    def _where(self) -> str:
        """The URL, and where it comes from."""
        return f"{self.url} (from {self._url_from})" if self._url_from else self.url

    def _typed(self, kind: type[T], answer: Response) -> T:
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
        if self._home is None:
            remedy = "check the URL, the network, and at its machine that the daemon runs"
            if type(error).__module__ == "ssl":
                remedy = "if its certificate is your own: reshape login URL --ca FILE"
        elif self._home.has_daemon():  # a second daemon is refused
            remedy = "it runs, but is still starting or waits for its store: see its log"
        else:
            remedy = _start_it(self._home)
        what = f"the daemon cannot be reached: {why}"
        return failed(Exit.UNREACHABLE, what, self._where, remedy)

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
            remedy = f"{self._token_from} has another daemon's token; give the right --home"
            if self._home is None or self._token_from != str(self._home.token_file):
                remedy = "it is wrong, expired or revoked: ask an operator, then reshape login URL"
            where = f"{self._where}, token from {self._token_from}"
            problems = [Problem("the daemon refuses the token", where, remedy)]
        if status != 422:
            here = f"the daemon of {self._home.folder}" if self._home is not None else self._where
            problems = [replace(p, where=p.where or here) for p in problems]
        kind = RecordRejected if status == 422 else CliError
        return kind(code, *problems)


def at(target: Target) -> Client:
    """Return a client of a daemon that is known by its URL."""
    return Client(
        target.url,
        target.token,
        url_from=target.url_from,
        token_from=target.token_from,
        ca=target.ca,
    )


def connect(home: Home, given: tuple[str, str] | None = None) -> Client:
    """Return a client of the daemon of ``home``. Raises CliError if it never had a daemon.

    ``given``: a token in place of the home's, and where it comes from.
    """
    if home.is_closed():
        raise failed(
            Exit.UNREACHABLE,
            "this home belongs to another user, who alone can read its address and token",
            str(home.folder),
            "get a token of your own from its operator: reshape login URL; or give another home: "
            "--home DIR",
        )
    address = home.address()
    token, token_from = given or (home.read_token(), "")
    if address is None or token is None:
        raise failed(
            Exit.UNREACHABLE,
            "no daemon has ever run in this home",
            str(home.folder),
            "start one: reshape up; or give another home: --home DIR or RESHAPE_HOME; or log in "
            "at a daemon elsewhere: reshape login URL",
        )
    if not home.has_daemon():
        raise failed(
            Exit.UNREACHABLE,
            "the daemon is not running (running jobs train on)",
            str(home.folder),
            _start_it(home),
        )
    return Client(address.url, token, home, token_from=token_from)


def _start_it(home: Home) -> str:
    """Return the remedy if no daemon answers, as a shell command."""
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
