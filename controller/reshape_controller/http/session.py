"""Handlers of the page's login: the session of a cookie, its begin and end, and links to one.

Does: take a token or a one-time link, set the cookie, and end the session with every copy of the
cookie. ``http.base`` checks what comes with a cookie.
"""

from __future__ import annotations

import asyncio
import math

from reshape_controller.access.rights import Right, Verdict, decide, refusal
from reshape_controller.access.sessions import LINK_S, SESSION_S, Session, Sessions
from reshape_controller.http.base import Handler, body_json
from reshape_controller.http.errors import ApiError, ErrorBody, bad_request
from reshape_gpu.page_login import PageLink, SessionView


class SessionPage(Handler):
    """GET the session, POST a token or a link to begin one, DELETE to end it."""

    def get(self) -> None:
        self.answer(self._view(self.session))

    async def post(self) -> None:
        self.check_origin()
        given = _credential(body_json(self.body()))
        session = self._begun(*given)
        cookie, age_s = self._sessions.cookie(session), int(SESSION_S)
        self.set_cookie(self.cookie_name(), cookie, max_age=age_s, **self.cookie_settings())
        self._identity = session.identity
        self.answer(self._view(session))

    async def delete(self) -> None:
        session = self.session
        if session is None:
            hint = "a token needs no end; an operator revokes it"
            raise bad_request("the request has no session", "header Cookie", hint)
        await asyncio.to_thread(self._sessions.end, session)
        self.clear_cookie(self.cookie_name(), **self.cookie_settings())
        self.set_status(204)
        self.finish()

    @property
    def _sessions(self) -> Sessions:
        assert self.context.sessions is not None
        return self.context.sessions

    def _view(self, session: Session | None) -> SessionView:
        csrf = session.csrf if session is not None else ""
        return SessionView(self.identity.name, self.identity.role.value, csrf)

    def _begun(self, kind: str, text: str) -> Session:
        """Return a new session. Raises ApiError.

        Failures hold up no link: behind a proxy all people have one address, and a link is the way
        in for those whom the failures of others keep out.
        """
        address, failures = self.request.remote_ip or "", self._sessions.failures
        wait_s = failures.wait_s(address) if kind == "token" else 0.0
        if wait_s > 0:
            what = f"too many logins from {address} have failed"
            hint = f"try again in {math.ceil(wait_s)} s, or use a link of: reshape page"
            body = ErrorBody("too-many-logins", what, "body", hint)
            raise ApiError(429, body, math.ceil(wait_s))
        if kind == "link":
            session = self._sessions.begin_by_link(text)
            remedy = "make a new link, which opens one session within a minute: reshape page"
        else:
            session = self._sessions.begin(text.strip().encode(errors="replace"))
            remedy = "use a token of reshape token create, or a link of: reshape page"
        if session is None:
            if kind == "token":
                failures.add(address)
            what = f"the {kind} is wrong, used, expired or revoked"
            raise ApiError(401, ErrorBody("unauthorized", what, f"body {kind}", remedy))
        if decide(Right.LOOK, session.identity) is not Verdict.ALLOWED:
            what = refusal(session.identity, Right.LOOK)
            raise ApiError(403, ErrorBody("forbidden", what, f"body {kind}", "use another token"))
        return session


class SessionLinks(Handler):
    """POST: a one-time link to a session of the token."""

    def post(self) -> None:
        if self.session is not None or self.context.sessions is None:
            hint = "ask with a token: reshape page"
            what = "a session cannot make a link, or it could be renewed without end"
            raise ApiError(403, ErrorBody("forbidden", what, "header Authorization", hint))
        self.answer(PageLink(self.context.sessions.link(self.bearer()), LINK_S), 201)


def _credential(body: object) -> tuple[str, str]:
    """Return the kind and text of what a login gives. Raises ApiError."""
    hint = 'send {"token": TEXT} or {"link": TEXT}'
    if not isinstance(body, dict) or len(body) != 1:
        raise bad_request("the body is not a token or a link", "body", hint)
    ((kind, text),) = body.items()
    if kind not in ("token", "link"):
        raise bad_request(f"{kind!r:.80} is no field of a login", "body", hint)
    if not isinstance(text, str):
        raise bad_request(f"{kind} is not a text", f"body {kind}", hint)
    return kind, text
