"""The base of every handler: authorization, size of bodies, form of answers and errors.

Does: checks the Host header and the token or session before anything else, reads arguments
strictly, writes JSON, and turns errors into ``{code, message, path, hint}``.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Mapping
from typing import Any, TypeVar

import structlog
import tornado.web
from tornado.concurrent import Future
from tornado.http1connection import HTTP1Connection
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream

from reshape_controller.access.identity import OPERATOR, Identity, Role
from reshape_controller.access.rights import Right, Verdict, decide, lists_all, refusal
from reshape_controller.access.sessions import Session
from reshape_controller.core.errors import UnknownJob
from reshape_controller.http.connections import credential
from reshape_controller.http.context import Access, Context
from reshape_controller.http.errors import (
    ApiError,
    ErrorBody,
    TooSoon,
    api_error,
    bad_request,
)
from reshape_controller.http.host import split_host
from reshape_controller.http.json_text import to_json
from reshape_controller.http.metrics import NO_ROUTE
from reshape_controller.records import printable
from reshape_controller.records.limits import NAME_LENGTH_MAX
from reshape_controller.store.protocol import JobRow

REFUSED_BODY_S = 1.0
"""Longest wait for the body of a request that its headers refuse."""
SEND_S = 60.0
"""Longest time for a client to take an answer."""
BODY_BYTES_MAX = 256 * 1024
"""A job record or a SideCar's report is far smaller; more is refused with 413."""
DIGITS_MAX = 18
"""Digits of a Content-Length that are read: that many are too large in any case, and Python reads
no number of more than 4,300."""
LIMIT_MAX = 1000
"""Largest number of rows of one answer."""
CSRF_HEADER = "X-Reshape-CSRF"
READS = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""

log = structlog.get_logger("reshape.http")
T = TypeVar("T")


@tornado.web.stream_request_body
class Gate(tornado.web.RequestHandler):
    """Base of all handlers: authorization, and the form of an answer.

    A request is permitted or refused once its headers are there. Until it is permitted, its
    connection counts as idle: it gives way to a new one.
    """

    context: Access
    rights: Mapping[str, Right]
    """Right that each method of this path needs."""
    templates: tuple[str, ...]
    """Templates of the paths that this route serves; empty for a path that is no route."""
    body_bytes_max = BODY_BYTES_MAX
    _identity: Identity | None = None
    _is_counted = False
    """Whether the request was counted by the pace of its identity."""
    session: Session | None = None
    """The session of the request's cookie, if it has no token."""

    def initialize(
        self, context: Access, rights: Mapping[str, Right], templates: tuple[str, ...]
    ) -> None:
        self.context = context
        self.rights = rights
        self.templates = templates
        self.request.body = b""

    def set_default_headers(self) -> None:
        self.set_header("Server", "reshape")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    async def prepare(self) -> None:
        """Permit the request by its headers, or refuse it. Raises what ``permit`` does."""
        try:
            await self.permit()
        except Exception:
            refused = self.application.settings.get("on_refused")
            if refused is not None:
                refused(self._stream())
            await self._let_body_come()
            raise
        asks = self.application.settings.get("on_permitted")
        if asks is not None:
            asks(self._stream(), is_open=self._identity is None)

    async def permit(self) -> None:
        """Refuse a request that is not authorized, or too large. Raises ApiError."""
        self.check_peer()
        self.check_host()
        self.authorize()
        size = self.request.headers.get("Content-Length", "0")
        digits = size[:DIGITS_MAX] if size.isascii() and size.isdigit() else "0"
        self._check_size(int(digits))

    def data_received(self, chunk: bytes) -> None:
        """Collect the body, which the server bounds."""
        self.request.body += chunk

    def body(self) -> bytes:
        """The whole body. Raises ApiError if it is too large."""
        self._check_size(len(self.request.body))
        return self.request.body

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self.body_bytes_max:
            message = f"the body has {size_bytes} bytes, more than {self.body_bytes_max}"
            hint = "send less; what a job reads belongs into files of its folder code"
            raise ApiError(413, ErrorBody("too-large", message, "body", hint))

    async def _let_body_come(self) -> None:
        """Wait a moment for the body of a refused request: the connection closes after the answer,
        and with unread bytes in it the client would lose that answer."""
        coming = getattr(self.request, "_body_future", None)
        if coming is None or self._prepared_future is None:
            return
        self._prepared_future.set_result(None)  # the server goes on to read
        await asyncio.wait((coming,), timeout=REFUSED_BODY_S)

    def _stream(self) -> IOStream | None:
        """The connection's stream; None once it is closed."""
        connection = self.request.connection
        return connection.stream if isinstance(connection, HTTP1Connection) else None

    def finish(self, chunk: str | bytes | dict[str, Any] | None = None) -> Future[None]:
        """Send the answer; the request is under way until the client has taken it, and a client
        that does not take it in time loses its connection."""
        loop, sent = IOLoop.current(), super().finish(chunk)
        late = loop.call_later(SEND_S, self._close_unsent)

        def taken(_: Future[None]) -> None:
            loop.remove_timeout(late)
            self._leave()

        sent.add_done_callback(taken)
        return sent

    def on_connection_close(self) -> None:
        """Note that the client is gone."""
        super().on_connection_close()
        self._leave()

    def _close_unsent(self) -> None:
        stream = self._stream()
        if stream is not None:
            stream.close()

    def _leave(self) -> None:
        """Forget the request as one that is under way."""

    def right(self) -> Right | None:
        """The right that this request needs; None if the path has no such method."""
        return self.rights.get(self.request.method or "")

    def identify(self) -> Identity | None:
        """The identity of the bearer token, else of the session; None without a valid one."""
        if "Authorization" in self.request.headers or self.context.sessions is None:
            return self.context.identities.of(self.bearer())
        self.session = self.context.sessions.of(self.get_cookie(self.cookie_name()) or "")
        return self.session.identity if self.session is not None else None

    @property
    def identity(self) -> Identity:
        """The author of the request, once it is authorized."""
        assert self._identity is not None
        return self._identity

    def authorize(self) -> None:
        """Decide by the right and the identity's role. Raises ApiError."""
        right = self.right()
        if right is not Right.OPEN:  # a probe is never refused
            self._identity = self.identify()
            if not self._is_counted:  # a stream looks again and again whether its token is valid
                self._is_counted = True
                self._keep_pace()
        if self.session is not None and self.request.method not in READS:
            self.check_origin(needed=True)
            self.check_csrf(self.session)
        self.obey(self.verdict(right))

    def _keep_pace(self) -> None:
        """Count the request. Raises TooSoon; then the server refuses the next ones by itself."""
        try:
            self.context.paces.take(self._identity, self.share())
        except TooSoon as error:
            refuse = self.application.settings.get("refuse")
            whose = credential(self.request.headers)
            if refuse is not None and whose:
                refuse(whose, error.again_after_s, f"{to_json(error.body)}\n".encode())
            raise

    def share(self) -> str:
        """The name under which a daemon's room and time are shared out; a stranger's address."""
        if self._identity is None:
            return self.request.remote_ip or ""
        return self._identity.name

    def verdict(self, right: Right | None, owner: str | None = None) -> Verdict:
        """The decision about this request. ``owner``: user of the job, if it is known."""
        users_see_all = self.context.identities.users_see_all
        return decide(right, self._identity, owner, users_see_all=users_see_all)

    def obey(self, verdict: Verdict) -> None:
        """Raise the ApiError of a refusal."""
        if verdict is Verdict.UNIDENTIFIED:
            self.set_header("WWW-Authenticate", "Bearer")
            raise self.unidentified()
        if verdict is Verdict.FORBIDDEN:
            what = refusal(self.identity, self.right() or Right.OPERATE)
            hint = "ask an operator (docs/operations.md, Several people)"
            raise ApiError(403, ErrorBody("forbidden", what, "", hint))

    def unidentified(self) -> ApiError:
        """The error of a request without a valid token."""
        hint = "send a token of reshape token create, or the file token of the daemon's home"
        message = "the token is missing, wrong, expired or revoked"
        return ApiError(401, ErrorBody("unauthorized", message, "header Authorization", hint))

    def bearer(self) -> bytes:
        """The bearer token of the request; empty if there is none."""
        kind, _, token = self.request.headers.get("Authorization", "").partition(" ")
        return token.strip().encode() if kind.lower() == "bearer" else b""

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A numeric query argument. Raises ApiError."""
        text = self.get_query_argument(name, None)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise bad_request(
                f"{text!r} is not a number from {least:g} to {most:g}", f"query {name}"
            )
        return value

    def count(self, name: str, default: int, least: int = 0, most: int = 2**53) -> int:
        """A whole query argument. Raises ApiError."""
        value = self.number(name, default, least, most)
        if value != int(value):
            raise bad_request(f"{value:g} is not a whole number", f"query {name}")
        return int(value)

    def answer(self, value: object, status: int = 200) -> None:
        """Finish with ``value`` as JSON."""
        self.answer_text(to_json(value), status)

    def answer_text(self, text: str, status: int = 200) -> None:
        """Finish with a JSON text."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(text + "\n")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Finish with an error, in one form for all errors, Tornado's own included."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        failure = api_error(error) if isinstance(error, Exception) else None
        if failure is None:
            failure = ApiError(status_code, _own_error(status_code, error))
        if failure.again_after_s:
            self.set_header("Retry-After", str(failure.again_after_s))
        self.answer(failure.body, failure.status)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if isinstance(value, tornado.web.HTTPError) or api_error(value) is not None:
            return
        log.error("request-failed", path=self.request.path, exc_info=(typ, value, tb))

    def on_finish(self) -> None:
        self.context.metrics.request(
            type(self).__name__,
            self.request.method,
            self.template(),
            self.get_status(),
            self.request.request_time(),
        )

    def template(self) -> str:
        """The template of this request's path, which has no name of a job or host in it."""
        end = self.request.path.rpartition("/")[2]
        ends = (each for each in self.templates if each.rpartition("/")[2] == end)
        return next(ends, self.templates[0] if self.templates else NO_ROUTE)

    def cookie_name(self) -> str:
        """Name of the session's cookie. A browser sends cookies to every port of a host, so the
        name has the port; with TLS its prefix keeps other hosts and plain HTTP from setting it."""
        _, port = split_host(self.request.headers.get("Host", ""))
        prefix = "__Host-" if self.has_tls() else ""
        return f"{prefix}reshape-{port}" if port else f"{prefix}reshape"

    def cookie_settings(self) -> dict[str, Any]:
        """Attributes of the session's cookie: no script and no other site gets it."""
        secure = self.has_tls()
        return {"path": "/", "httponly": True, "samesite": "Strict", "secure": secure}

    def has_tls(self) -> bool:
        """Whether the browser asks by TLS: here, or at the trusted proxy."""
        return self.request.protocol == "https" or self.context.peers is not None

    def check_origin(self, *, needed: bool = False) -> None:
        """Check that no page of another site has sent the request. Raises ApiError."""
        origin = self.request.headers.get("Origin")
        if origin is None and not needed:
            return  # no browser: each sends it with what changes something
        host = self.request.headers.get("Host", "").lower()
        if origin is None or origin.lower() not in (f"http://{host}", f"https://{host}"):
            what = "the request does not say from which page it comes"
            if origin is not None:
                what = f"{origin!r:.200} is not this daemon's own page"
            hint = f"ask from a page of {host}; a proxy passes the Host header on"
            raise ApiError(403, ErrorBody("cross-site", what, "header Origin", hint))

    def check_csrf(self, session: Session) -> None:
        """Check the header that only this daemon's own page can send. Raises ApiError."""
        sent = self.request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(sent.encode(errors="replace"), session.csrf.encode()):
            hint = "send csrf of GET /v1/session; with a token in Authorization it is not needed"
            what = "the header is missing or not that of the session"
            raise ApiError(403, ErrorBody("cross-site", what, f"header {CSRF_HEADER}", hint))

    def check_xsrf_cookie(self) -> None:
        """Skip Tornado's check: ``authorize`` has its own, for requests with a cookie."""

    def check_peer(self) -> None:
        """Check the address of the connection's other end. Raises ApiError."""
        peers, peer = self.context.peers, self.request.remote_ip
        if peers is not None and peer not in peers:
            message = f"{peer} is not the trusted proxy of this daemon"
            hint = "ask by the proxy's URL, which has TLS"
            raise ApiError(403, ErrorBody("wrong-peer", message, "", hint))

    def check_host(self) -> None:
        """Check the Host header: DNS can lead a browser's page to loopback, but its Host header
        then has the page's own name. Raises ApiError."""
        name, _ = split_host(self.request.headers.get("Host", ""))
        if name not in self.context.host_names:
            message = f"{name!r} is not a host name of this daemon"
            hint = f"use one of: {', '.join(sorted(self.context.host_names))}"
            raise ApiError(403, ErrorBody("wrong-host", message, "header Host", hint))


class Handler(Gate):
    """Base of the handlers of a daemon that leads."""

    context: Context
    _share = ""
    """Under which the request is counted as under way; empty if it is not."""

    async def permit(self) -> None:
        """Add the daemon's time, which the machine's clock may differ from, and check that the job
        of the path may be asked about. Raises ApiError, UnknownJob, StoreError."""
        await super().permit()
        if self._identity is not None:
            self.context.room.enter(self.share())
            self._share = self.share()
        self.set_header("Reshape-Now", f"{self.context.clock.now_s():.3f}")
        right = self.right()
        if right is not None and right.about_job and self.identity.role is not Role.OPERATOR:
            row = await self.row(self.path_args[0])
            verdict = self.verdict(right, row.user)
            if verdict is Verdict.HIDDEN:
                raise unknown_job(self.path_args[0])
            self.obey(verdict)
            self.path_args[0] = row.id  # a name may belong to another job in a moment

    def _leave(self) -> None:
        if self._share:
            self.context.room.leave(self._share)
            self._share = ""

    def user(self) -> str:
        """The author for the history. The operator's token has many authors, so the client says
        for which of them it asks."""
        if self.identity is not OPERATOR:
            return self.identity.name
        name = self.request.headers.get("Reshape-User", "")
        return printable(name)[:NAME_LENGTH_MAX] or OPERATOR.name

    def waits_for(self) -> str:
        """What the controller waits for, as the author of this request may know it."""
        sees_all = lists_all(self.identity, self.context.identities.users_see_all)
        return self.context.control.waits_for(with_names=sees_all)

    def owns(self, row: JobRow) -> bool:
        """Whether all of the job may be shown to the author of this request."""
        return self.owns_jobs_of(row.user)

    def owns_jobs_of(self, user: str) -> bool:
        """Whether all of this user's jobs may be shown to the author of this request."""
        return self.verdict(Right.READ_JOB, user) is Verdict.ALLOWED

    def listed_user(self) -> str | None:
        """The user whose jobs are listed; None: all users."""
        asked = self.get_query_argument("user", None)
        if lists_all(self.identity, self.context.identities.users_see_all):
            return asked
        if asked not in (None, self.identity.name):
            what = f"{self.identity.name} sees only jobs of {self.identity.name}"
            raise ApiError(403, ErrorBody("forbidden", what, "query user", "leave it out"))
        return self.identity.name

    async def row(self, key: str) -> JobRow:
        """The job with this id or name, one of the author's own first. Raises UnknownJob."""
        row = await self.context.control.store.job(key, self.user())
        if row is None:
            raise unknown_job(key)
        return row


class NotFound(Gate):
    """Handles every path that is no route."""

    async def permit(self) -> None:
        await super().permit()
        body = ErrorBody("not-found", f"unknown path {self.request.path}", "", "/v1/openapi.json")
        raise ApiError(404, body)


def unknown_job(key: str) -> UnknownJob:
    """The error for a job that does not exist, and for one that the author may not see."""
    return UnknownJob(f"unknown job {key!r}")


def body_text(body: bytes) -> str:
    """Decode the body as text. Raises ApiError."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise bad_request("the body is not UTF-8 text", "body") from None


def body_json(body: bytes) -> Any:
    """Parse the body as JSON. Raises ApiError."""
    try:
        return json.loads(body_text(body))
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON ({error})", "body") from None


def _own_error(status: int, error: object) -> ErrorBody:
    if status == 405:
        return ErrorBody("method-not-allowed", "this path does not support this method")
    if isinstance(error, tornado.web.HTTPError) and status < 500:
        return ErrorBody("bad-request", error.log_message or error.reason or "bad request")
    hint = "this is a defect; see the daemon's log for details"
    return ErrorBody("internal", "the daemon failed to handle this request", "", hint)
