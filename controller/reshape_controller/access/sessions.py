"""Logins of the page: a signed cookie that refers to a token, and one-time links to such a login.

Does: sign cookies, look up the identity of a cookie's token, end sessions, and give out links. A
cookie has no right of its own: its token is looked up at each request, so a token that is revoked,
rotated or expired ends its sessions. Never: keep a token, or a link as it is. State: the file
``sessions.json`` of the home, with the ended sessions that have not expired; open links in memory.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from reshape_controller.access.failed_logins import FailedLogins
from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import Identity
from reshape_controller.access.token_file import digest
from reshape_controller.core.errors import ReshapeError
from reshape_sidecar import codec, durable, state_files

FILE_NAME = "sessions.json"
SESSION_S = 12 * 3600.0
"""Life of a session; then the person logs in again."""
LINK_S = 60.0
"""Life of a link, which opens one session."""
LINKS_MAX = 1_000
"""Open links; with more, the oldest is void."""
ENDED_MAX = 10_000
"""Ended sessions that are remembered; with more, a new salt ends every session."""
ID_BYTES = 16
LINK_BYTES = 32

log = structlog.get_logger("reshape.access")


class SessionNotEnded(ReshapeError):
    """The end of a session is not in the file: it holds until this daemon stops."""


@dataclass(frozen=True, slots=True)
class EndedSession:
    """A session whose cookie opens nothing, though its time is not over."""

    id: str
    expires_at_s: float


@dataclass(frozen=True, slots=True)
class SessionFile:
    """What a restart must know. ``salt``: a part of the key; a new one ends every session."""

    salt: str
    ended: tuple[EndedSession, ...] = ()


@dataclass(frozen=True, slots=True)
class Session:
    """A session of the page, with the identity that its token has now."""

    id: str
    sha256: str
    """Digest of the token that opened it."""
    expires_at_s: int
    identity: Identity
    csrf: str
    """Text that a request which changes something brings in a header: another site's page cannot
    read it."""


@dataclass(frozen=True, slots=True)
class _Link:
    sha256: str
    expires_at_s: float


class Sessions:
    """The sessions of one home."""

    def __init__(
        self,
        identities: Identities,
        secret: bytes,
        path: Path,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """``secret``: the daemon's; ``path``: the file."""
        self.failures = FailedLogins()
        self._identities = identities
        self._secret = secret
        self._path = path
        self._now_s = now_s
        self._lock = threading.Lock()
        """Held while the file is written, outside the event loop."""
        self._links: dict[str, _Link] = {}
        self._salt = secrets.token_hex(ID_BYTES)
        self._ended: dict[str, float] = {}
        """Ids of sessions that have ended, and when their time is over."""
        self._load()

    def begin(self, bearer: bytes) -> Session | None:
        """Open a session for a token; None if the token is not valid."""
        return self._begin(digest(bearer))

    def begin_by_link(self, link: str) -> Session | None:
        """Open the session of a link, once; None if the link or its token is not valid."""
        found = self._links.pop(digest(link.encode(errors="replace")), None)
        if found is None or self._now_s() >= found.expires_at_s:
            return None
        return self._begin(found.sha256)

    def link(self, bearer: bytes) -> str:
        """Return a link to a session for a token that the caller has checked."""
        now_s, link = self._now_s(), secrets.token_urlsafe(LINK_BYTES)
        self._links = {k: v for k, v in self._links.items() if v.expires_at_s > now_s}
        while len(self._links) >= LINKS_MAX:
            del self._links[next(iter(self._links))]
        self._links[digest(link.encode())] = _Link(digest(bearer), now_s + LINK_S)
        return link

    def cookie(self, session: Session) -> str:
        """Return the value of a session's cookie."""
        text = f"{session.id}.{session.expires_at_s}.{session.sha256}"
        return f"{text}.{self._signature('cookie', text)}"

    def of(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if it is forged, over, ended, or without a token."""
        text, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature("cookie", text).encode()):
            return None
        key, expires_at_s, sha256 = text.split(".")
        if key in self._ended or self._now_s() >= int(expires_at_s):
            return None
        return self._session(key, int(expires_at_s), sha256)

    def end(self, session: Session) -> None:
        """End a session, and every copy of its cookie. It blocks. Raises SessionNotEnded."""
        with self._lock:
            now_s = self._now_s()
            self._ended[session.id] = session.expires_at_s
            self._ended = {key: end_s for key, end_s in self._ended.items() if end_s > now_s}
            if len(self._ended) > ENDED_MAX:
                self._salt, self._ended = secrets.token_hex(ID_BYTES), {}
                log.warning("sessions-ended", reason=f"more than {ENDED_MAX} have ended")
            try:
                self._write()
            except OSError as error:
                what = f"the session has ended, but cannot be stored as ended: {error.strerror}"
                remedy = (
                    "free space in the daemon's home, then log in and out once; until then a "
                    "restart makes copies of the cookie valid again"
                )
                raise SessionNotEnded(f"{what}; remedy: {remedy}") from None

    def _begin(self, sha256: str) -> Session | None:
        key = secrets.token_urlsafe(ID_BYTES)
        return self._session(key, int(self._now_s() + SESSION_S), sha256)

    def _session(self, key: str, expires_at_s: int, sha256: str) -> Session | None:
        identity = self._identities.by_digest(sha256)
        if identity is None:
            return None
        return Session(key, sha256, expires_at_s, identity, self._signature("csrf", key))

    def _signature(self, purpose: str, text: str) -> str:
        message = f"session {purpose} {self._salt} {text}".encode(errors="replace")
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()

    def _load(self) -> None:
        """Read the file; without a whole one, begin a new one, which ends every session."""
        try:
            found = state_files.read(SessionFile, self._path)
        except OSError as error:
            found = state_files.Torn(self._path, str(error.strerror))
        if isinstance(found, SessionFile):
            self._salt = found.salt
            self._ended = {each.id: each.expires_at_s for each in found.ended}
            return
        if found is not None:
            log.warning("sessions-ended", reason=str(found))
        try:
            self._write()
        except OSError as error:
            consequence = "a restart ends every session of the page"
            log.warning("sessions-not-stored", error=error.strerror, consequence=consequence)

    def _write(self) -> None:
        ended = tuple(EndedSession(*each) for each in sorted(self._ended.items()))
        text = codec.dumps(SessionFile(self._salt, ended))
        durable.write_whole(self._path, f"{text}\n".encode(), 0o600)
