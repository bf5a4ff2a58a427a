"""Which identity a bearer token belongs to."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable

from reshape_controller.access.identity import OPERATOR, Identity, Role, unverified
from reshape_controller.access.submission import Uids
from reshape_controller.access.token_file import NamedToken, TokenFile, TokenFileError, digest


class Identities:
    """One per daemon. Both readers follow their files, so a revocation holds at once."""

    def __init__(
        self,
        operator_token: Callable[[], str],
        named: Callable[[], TokenFile | None] = TokenFile,
        *,
        now_s: Callable[[], float] = time.time,
        users_see_all: bool = True,
        inserts: str | None = None,
        uids_required: bool = False,
    ) -> None:
        """``named``: gives None while the file of tokens cannot be read. ``inserts``: name of the
        identity that writes into the store; None: none is known. ``uids_required``: whether jobs of
        names without a uid are refused, operators' aside."""
        self._operator_token = operator_token
        self._named = named
        self._now_s = now_s
        self._inserts = inserts
        self.users_see_all = users_see_all
        self._uids_required = uids_required

    def of(self, bearer: bytes) -> Identity | None:
        """The identity of a token; None if it is wrong, expired or revoked."""
        if hmac.compare_digest(bearer, self._operator_token().encode()):
            return OPERATOR
        return self._named_by(digest(bearer))

    def by_digest(self, sha256: str) -> Identity | None:
        """The identity of the token with this digest; None if no valid token has it."""
        if hmac.compare_digest(sha256.encode(), digest(self._operator_token().encode()).encode()):
            return OPERATOR
        return self._named_by(sha256)

    def uids(self) -> Uids:
        """The Unix users of jobs. Raises TokenFileError.

        The newest token of a name counts, also an expired or revoked one.
        """
        newest = self._readable("the uids of jobs are").newest.values()
        known = {token.name: token.uid for token in newest if token.uid is not None}
        operators = (token.name for token in newest if token.role is Role.OPERATOR)
        return Uids(known, frozenset({OPERATOR.name, *operators}), self._uids_required)

    def of_insert(self, claim: str, owner: str = "") -> Identity | None:
        """The identity of a request that was written into the store; None: its owner has no valid
        token. Raises TokenFileError if that is not known now.

        ``claim``: the user that it names. ``owner``: the user whose own inbox it was in, else
        empty. Until a user gets a token, the operator is the only person.
        """
        if owner:
            return self._by_name(owner)
        if self._inserts is not None:
            return self._by_name(self._inserts) or unverified(claim)
        shared = self._named() is None or any(t.role is Role.USER for t in self._tokens())
        return unverified(claim) if shared else OPERATOR

    def _named_by(self, sha256: str) -> Identity | None:
        now_s = self._now_s()
        for token in self._tokens():
            # A digest leaks nothing by the time that its comparison takes.
            if token.sha256 == sha256 and token.valid_at(now_s):
                return token.identity
        return None

    def _by_name(self, name: str) -> Identity | None:
        if name == OPERATOR.name:
            return OPERATOR
        now_s, tokens = self._now_s(), self._readable(f"the token of {name} is").tokens
        valid = (t for t in tokens if t.name == name and t.valid_at(now_s))
        return next((token.identity for token in valid), None)

    def _readable(self, subject: str) -> TokenFile:
        found = self._named()
        if found is None:
            what = f"the file of tokens cannot be read, so {subject} not known"
            raise TokenFileError(what, "see the daemon's log")
        return found

    def _tokens(self) -> tuple[NamedToken, ...]:
        found = self._named()
        return found.tokens if found is not None else ()
