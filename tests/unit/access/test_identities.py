"""Named tokens, and what their holders may submit."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_controller.access import token_file
from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import OPERATOR, Caps, Identity, Role, unverified
from reshape_controller.access.rights import Right, Verdict, decide
from reshape_controller.access.submission import Denied, Uids, owned
from reshape_controller.access.token_file import NamedToken, TokenFile, TokenFileError, digest
from reshape_controller.core.model import JobSpec

SPEC = JobSpec("job", ("train",), (1,))
DAY_S = 86_400.0


def token(
    name: str, secret: str = "", role: Role = Role.USER, uid: int | None = None
) -> NamedToken:
    return NamedToken(name, role, digest((secret or f"{name}s").encode()), 1000.0, uid=uid)


NO_UIDS = Uids()


def identities(
    *tokens: NamedToken, now_s: float = 1000.0, inserts: str | None = None
) -> Identities:
    file = TokenFile(tokens)
    return Identities(lambda: "operators", lambda: file, now_s=lambda: now_s, inserts=inserts)


def test_a_token_is_its_identity_until_it_expires() -> None:
    ada = replace(token("ada", uid=1001), priority=5, pin=False, expires_at_s=2000.0)
    expected = Identity("ada", Role.USER, 1001, Caps(5, pin=False))
    assert identities(ada).of(b"adas") == expected
    assert identities(ada, now_s=2000.0).of(b"adas") is None
    assert identities(ada).of(b"operators") is OPERATOR
    assert identities(ada).of(b"") is None
    assert identities(ada).of(ada.sha256.encode()) is None, "the hash at rest opens nothing"


def test_a_new_token_is_valid_beside_the_one_that_it_replaces() -> None:
    ada = replace(token("ada", "old"), expires_at_s=1000.0 + DAY_S)
    file = TokenFile((ada, token("bob"))).rotated("ada", digest(b"new"), 5000.0, 60.0)
    before, after = (
        Identities(lambda: "x", lambda: file, now_s=lambda now_s=now_s: now_s)  # type: ignore[misc]
        for now_s in (5059.0, 5061.0)
    )
    assert before.of(b"old") == before.of(b"new") == ada.identity
    assert after.of(b"old") is None
    assert after.of(b"new") == ada.identity
    assert file.of("ada")[-1].expires_at_s == 5000.0 + DAY_S, "it lives as long as the one before"
    again = file.rotated("ada", digest(b"newer"), 5010.0, 600.0)
    assert again.of("ada")[0].expires_at_s == 5060.0, "no rotation lengthens a life"


def test_names_that_could_be_mistaken_are_refused() -> None:
    for name in ("operator", "unverified", "unverified:ada", "", "a b", "-a", "ä", "x" * 64):
        with pytest.raises(TokenFileError, match="cannot be the name"):
            TokenFile().created(token(name, "s"))
    with pytest.raises(TokenFileError, match="ada has a token already"):
        TokenFile((token("ada"),)).created(token("ada"))
    with pytest.raises(TokenFileError, match="'eve' has no token"):
        TokenFile((token("ada"),)).revoked("eve")


def test_a_changed_file_holds_at_once_and_a_damaged_one_opens_nothing(tmp_path: Path) -> None:
    path = tmp_path / token_file.FILE_NAME
    current = token_file.follow(path)
    assert current() == TokenFile()
    file = TokenFile((token("ada"),))
    token_file.write(path, file)
    assert current() == file
    path.write_text(path.read_text()[:-20])
    assert current() is None
    path.write_text("")
    assert current() is None
    token_file.write(path, TokenFile())
    assert current() == TokenFile()
    token_file.write(path, file)
    os.chmod(path, 0o620)
    assert current() is None, "another user may have written it"
    path.unlink()
    assert current() == TokenFile()


def test_an_insert_belongs_to_the_operator_until_a_user_has_a_token() -> None:
    assert identities().of_insert("ada") is OPERATOR
    assert identities(token("prom", role=Role.SCRAPER)).of_insert("ada") is OPERATOR
    assert identities(token("ada")).of_insert("ada") == unverified("ada")
    ada = token("ada", uid=7)
    assert identities(ada, inserts="ada").of_insert("bob") == ada.identity
    assert identities(ada, inserts="gone").of_insert("ada") == unverified("ada")
    damaged = Identities(lambda: "x", lambda: None)
    assert damaged.of_insert("ada") == unverified("ada")
    with pytest.raises(TokenFileError, match="cannot be read"):
        damaged.uids()
    with pytest.raises(TokenFileError, match="so the token of ada is not known"):
        damaged.of_insert("ada", "ada")
    assert damaged.of_insert("ada", "operator") is OPERATOR


def test_an_insert_of_a_users_own_inbox_is_theirs_while_their_token_is_valid() -> None:
    ada = token("ada")
    assert identities(ada).of_insert("bob", "ada") == ada.identity
    assert identities(ada, inserts="operator").of_insert("operator", "ada") == ada.identity
    assert identities(replace(ada, expires_at_s=1.0)).of_insert("ada", "ada") is None
    assert identities(ada).of_insert("ada", "bob") is None
    revoked = TokenFile((ada,)).revoked("ada").tokens
    assert identities(*revoked).of_insert("ada", "ada") is None


def test_to_revoke_the_last_token_makes_no_insert_the_operators() -> None:
    revoked = TokenFile((token("ada"),)).revoked("ada").tokens
    assert identities(*revoked).of_insert("ada") == unverified("ada")


NOW_S = 5000.0
ADA = token("ada", uid=1001)
EXPIRED = replace(ADA, expires_at_s=1.0)
BOB = token("bob", uid=1002)
FILES = {
    "valid": (ADA,),
    "expired": (EXPIRED,),
    "expired, and another was created": TokenFile((EXPIRED,)).created(BOB).tokens,
    "revoked": TokenFile((ADA,)).revoked("ada").tokens,
    "revoked, and another was created": TokenFile((ADA,)).revoked("ada").created(BOB).tokens,
    "revoked, and another was revoked": TokenFile((ADA, BOB)).revoked("ada").revoked("bob").tokens,
    "rotated": TokenFile((ADA,)).rotated("ada", digest(b"new"), NOW_S, 60.0).tokens,
    "rotated and revoked": TokenFile((ADA,))
    .rotated("ada", digest(b"new"), NOW_S, 60.0)
    .revoked("ada")
    .tokens,
    "created again": TokenFile((token("ada", "old", uid=1000),)).revoked("ada").created(ADA).tokens,
    "two uids, the newest counts": (token("ada", "old", uid=1000), ADA),
    "renamed": TokenFile((ADA,)).revoked("ada").created(token("ada2", uid=1001)).tokens,
}


@pytest.mark.parametrize("state", FILES)
def test_a_users_job_has_the_users_uid_whatever_became_of_the_token(state: str) -> None:
    known = identities(*FILES[state], now_s=NOW_S)
    for_ada = owned(replace(SPEC, user="ada"), OPERATOR, known.uids())
    assert (for_ada.user, for_ada.uid) == ("ada", 1001)
    for secret in (b"adas", b"old", b"new"):
        identity = known.of(secret)
        if identity is not None:
            assert owned(SPEC, identity, known.uids()).uid == 1001


def test_only_an_operators_job_has_the_daemons_uid_once_a_name_has_a_uid() -> None:
    olga, carl = token("olga", role=Role.OPERATOR), token("carl")
    shared = identities(ADA, carl, olga)
    for user in ("carl", "eve", "unverified:ada"):
        with pytest.raises(Denied, match=f"none is known for {user}"):
            owned(replace(SPEC, user=user), OPERATOR, shared.uids())
    for author in (carl.identity, unverified("ada")):
        with pytest.raises(Denied, match="none is known"):
            owned(SPEC, author, shared.uids())
    for user in ("olga", "operator", ""):
        assert owned(replace(SPEC, user=user), OPERATOR, shared.uids()).uid is None
    assert owned(SPEC, OPERATOR, shared.uids(), "root").uid is None
    assert owned(SPEC, olga.identity, shared.uids(), "olga").uid is None
    alone = identities(carl, olga)
    assert owned(replace(SPEC, user="eve"), OPERATOR, alone.uids()).uid is None
    assert owned(SPEC, carl.identity, alone.uids()).uid is None


def test_a_revoked_token_opens_nothing_and_makes_room_for_a_new_one() -> None:
    revoked = TokenFile((ADA,)).revoked("ada")
    assert (revoked.of("ada"), identities(*revoked.tokens).of(b"")) == ((), None)
    assert identities(*revoked.tokens).of(b"adas") is None
    for ask in (revoked.revoked, lambda name: revoked.rotated(name, "x", NOW_S, 1.0)):
        with pytest.raises(TokenFileError, match="has no token"):
            ask("ada")
    assert revoked.created(token("ada", "new")).tokens == (token("ada", "new"),)


def test_an_unverified_user_owns_no_job_but_its_own() -> None:
    eve = unverified("ada")
    assert decide(Right.CHANGE_JOB, eve, "ada") is Verdict.FORBIDDEN
    assert decide(Right.CHANGE_JOB, Identity("ada", Role.USER), eve.name) is Verdict.FORBIDDEN
    assert owned(replace(SPEC, user="ada"), eve, NO_UIDS).user == "unverified:ada"
    with pytest.raises(Denied, match="priority: 1 is above 0"):
        owned(replace(SPEC, priority=1), eve, NO_UIDS)


def test_the_owner_and_uid_of_a_job_come_from_its_token() -> None:
    ada = Identity("ada", Role.USER, 1001)
    uids = Uids({"ada": 1001, "bob": 1002})
    job = owned(SPEC, ada, uids)
    assert (job.user, job.uid) == ("ada", 1001)
    with pytest.raises(Denied, match="'bob' is another user"):
        owned(replace(SPEC, user="bob"), ada, uids)
    for_bob = owned(replace(SPEC, user="bob"), OPERATOR, uids)
    assert (for_bob.user, for_bob.uid) == ("bob", 1002)
    own = owned(SPEC, OPERATOR, NO_UIDS, "root")
    assert (own.user, own.uid) == ("root", None)


def test_caps_hold_for_users_and_not_for_operators() -> None:
    asked = replace(SPEC, priority=9, may_restart=True)
    tight = Identity("ada", Role.USER, caps=Caps(may_restart=False))
    with pytest.raises(Denied) as refused:
        owned(asked, tight, NO_UIDS)
    assert [error.path for error in refused.value.errors] == ["priority", "may_restart"]
    assert owned(asked, Identity("olga", Role.OPERATOR), NO_UIDS).priority == 9
    assert owned(replace(SPEC, priority=-3), tight, NO_UIDS).priority == -3
    no_pin = Identity("ada", Role.USER, caps=Caps(pin=False))
    assert decide(Right.PIN_JOB, no_pin, "ada") is Verdict.FORBIDDEN
    assert decide(Right.PIN_JOB, tight, "ada") is Verdict.ALLOWED


def test_a_root_daemon_takes_no_job_of_a_user_without_a_uid_but_what_an_operator_submits() -> None:
    olga = token("olga", role=Role.OPERATOR)
    for required in (True, False):
        known = Identities(
            lambda: "x", lambda: TokenFile((token("ada"), olga)), uids_required=required
        )
        uids = known.uids()
        ada = known.of_insert("", "ada")
        assert ada is not None
        for identity in (ada, unverified("ada")):
            if required:
                with pytest.raises(Denied, match="none is known for"):
                    owned(SPEC, identity, uids)
            else:
                assert owned(SPEC, identity, uids).uid is None
        assert owned(SPEC, OPERATOR, uids).uid is None
        assert owned(replace(SPEC, user="ada"), OPERATOR, uids).uid is None
        assert owned(SPEC, olga.identity, uids).uid is None
