"""The file of named tokens: ``tokens.json``, beside the operator's token.

Does: keep the SHA-256 of each token with its role, caps and expiry; follow the file as it changes.
A token is random and long, so a plain hash at rest is enough. Never: keep a token itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from reshape_controller.access.identity import OPERATOR_NAME, UNVERIFIED, Caps, Identity, Role
from reshape_controller.core.errors import ReshapeError
from reshape_sidecar import codec, durable, state_files

FILE_NAME = "tokens.json"
PREFIX = "reshape_"
"""Begins each named token, so that a search for secrets finds one that was written down."""
SECRET_BYTES = 32
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
RESERVED = (OPERATOR_NAME, UNVERIFIED, "unknown")

log = structlog.get_logger("reshape.access")


class TokenFileError(ReshapeError):
    """The file of tokens, or a request about it, is refused. ``remedy`` says what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class NamedToken:
    """A token of an identity. An identity has several while one replaces another."""

    name: str
    role: Role
    sha256: str
    """Empty once the token is revoked: what remains says which uid the name has."""
    created_at_s: float
    expires_at_s: float | None = None
    """None: it does not expire."""
    uid: int | None = None
    priority: int = 0
    pin: bool = True
    may_restart: bool = True

    @property
    def identity(self) -> Identity:
        caps = Caps(self.priority, self.pin, self.may_restart)
        return Identity(self.name, self.role, self.uid, caps)

    @property
    def revoked(self) -> bool:
        return not self.sha256

    def valid_at(self, now_s: float) -> bool:
        return not self.revoked and (self.expires_at_s is None or now_s < self.expires_at_s)


@dataclass(frozen=True, slots=True)
class TokenFile:
    """All named tokens.

    The newest token of a name stays after its end: it says which uid the name's jobs have, and
    that other people than the operator had access.
    """

    tokens: tuple[NamedToken, ...] = ()

    def of(self, name: str) -> tuple[NamedToken, ...]:
        """The tokens of an identity that were not revoked, oldest first."""
        return tuple(token for token in self.issued if token.name == name)

    @property
    def issued(self) -> tuple[NamedToken, ...]:
        """The tokens that were not revoked, oldest first."""
        return tuple(token for token in self.tokens if not token.revoked)

    @property
    def listed(self) -> tuple[NamedToken, ...]:
        """The tokens that were not revoked, and those that still give a name its uid."""
        return tuple(t for t in self.tokens if not t.revoked or t.uid is not None)

    @property
    def newest(self) -> dict[str, NamedToken]:
        """The newest token of each name, also one that has ended."""
        return {token.name: token for token in self.tokens}

    def created(self, token: NamedToken) -> TokenFile:
        """Add the first token of an identity. Raises TokenFileError."""
        if not NAME.fullmatch(token.name) or token.name in RESERVED:
            what = f"{token.name!r:.80} cannot be the name of a token"
            remedy = f"use at most 63 letters, digits and . _ @ -, but none of {RESERVED}"
            raise TokenFileError(what, remedy)
        if any(other.valid_at(token.created_at_s) for other in self.of(token.name)):
            remedy = f"replace it: reshape token rotate {token.name}; or revoke it first"
            raise TokenFileError(f"{token.name} has a token already", remedy)
        others = tuple(other for other in self.tokens if other.name != token.name)
        return TokenFile((*others, token)).without_expired(token.created_at_s)

    def rotated(self, name: str, sha256: str, now_s: float, overlap_s: float) -> TokenFile:
        """Add a token to an identity, and end the others after ``overlap_s``.

        Raises TokenFileError.
        """
        *_, newest = self._known(name)
        end_s = now_s + overlap_s
        lifetime_s = None
        if newest.expires_at_s is not None:
            lifetime_s = newest.expires_at_s - newest.created_at_s
        found = tuple(
            replace(token, expires_at_s=min(end_s, token.expires_at_s or end_s))
            if token.name == name
            else token
            for token in self.tokens
        )
        expires_at_s = None if lifetime_s is None else now_s + lifetime_s
        added = replace(newest, sha256=sha256, created_at_s=now_s, expires_at_s=expires_at_s)
        return TokenFile((*found, added)).without_expired(now_s)

    def revoked(self, name: str) -> TokenFile:
        """End every token of an identity. Raises TokenFileError."""
        *_, newest = self._known(name)
        others = tuple(token for token in self.tokens if token.name != name)
        return TokenFile((*others, replace(newest, sha256="")))

    def without_expired(self, now_s: float) -> TokenFile:
        """Remove expired tokens, but for the newest of each name."""
        newest = self.newest
        return TokenFile(tuple(t for t in self.tokens if t.valid_at(now_s) or newest[t.name] is t))

    def _known(self, name: str) -> tuple[NamedToken, ...]:
        found = self.of(name)
        if not found:
            known = ", ".join(dict.fromkeys(token.name for token in self.issued)) or "none"
            remedy = f"reshape token list shows them: {known}"
            raise TokenFileError(f"{name!r:.80} has no token", remedy)
        return found


def new_token() -> str:
    """Draw a token."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def digest(token: bytes) -> str:
    """Return a token's form at rest."""
    return hashlib.sha256(token).hexdigest()


def read(path: Path) -> TokenFile:
    """Read the file; it is empty if it does not exist. Raises TokenFileError."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o022:
            raise TokenFileError("other users can write the file of tokens", f"chmod 600 {path}")
        found = state_files.read(TokenFile, path)
    except FileNotFoundError:
        return TokenFile()
    except OSError as error:
        what = f"the file of tokens cannot be read: {error.strerror}"
        raise TokenFileError(what, f"check {path}") from None
    if isinstance(found, state_files.Torn):
        raise TokenFileError(str(found), "restore the file, or remove it and create new tokens")
    return found or TokenFile()


def edit(path: Path, change: Callable[[TokenFile], TokenFile]) -> TokenFile:
    """Change the file, one process at a time; return what it has now. Raises TokenFileError."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        what = f"the folder of the tokens cannot be opened: {error.strerror}"
        raise TokenFileError(what, "run it as the user who runs the daemon") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        tokens = change(read(path))
        write(path, tokens)
        return tokens
    finally:
        os.close(folder)


def write(path: Path, tokens: TokenFile) -> None:
    """Replace the file; root gives it to the owner of its folder. Raises TokenFileError."""
    try:
        folder = path.parent.stat()
        owner = (folder.st_uid, folder.st_gid) if os.geteuid() == 0 else None
        durable.write_whole(path, f"{codec.dumps(tokens)}\n".encode(), 0o600, owner)
    except OSError as error:
        what = f"the file of tokens cannot be written: {error.strerror}"
        remedy = f"write {path} where you keep the secrets of all controllers"
        raise TokenFileError(what, remedy) from None


def follow(path: Path) -> Callable[[], TokenFile | None]:
    """Return a reader that follows the file: a change holds from the next request on.

    It returns None while the file cannot be read. No named token is valid then, because the file
    may revoke it.
    """
    found: TokenFile | None = TokenFile()
    version: state_files.Version | None = None
    problem = ""

    def current() -> TokenFile | None:
        nonlocal found, version, problem
        now = state_files.version(path)
        if now == version and not problem:
            return found
        try:
            found, version, problem = read(path), now, ""
        except TokenFileError as error:
            found = None
            if problem != str(error):
                problem = str(error)
                log.error("tokens-unreadable", error=problem, remedy=error.remedy)
        return found

    return current
