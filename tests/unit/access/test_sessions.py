"""Sessions of the page: signed, ended for good, and never longer than their token."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reshape_controller.access import sessions as module
from reshape_controller.access.failed_logins import FAILURES_MAX, SPAN_S, FailedLogins
from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import Role
from reshape_controller.access.sessions import FILE_NAME, LINK_S, SESSION_S, SessionNotEnded
from reshape_controller.access.token_file import NamedToken, TokenFile, digest

ADA = NamedToken("ada", Role.USER, digest(b"adas"), 0.0)


class Bed:
    """A home with a token of Ada; ``begin`` is a start of its daemon."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self.now_s = 1000.0
        self.tokens = TokenFile((ADA,))
        self.operator_token = "operators"

    def begin(self, secret: bytes = b"secret") -> module.Sessions:
        clock = lambda: self.now_s  # noqa: E731
        identities = Identities(lambda: self.operator_token, lambda: self.tokens, now_s=clock)
        return module.Sessions(identities, secret, self.path, clock)

    def cookie(self, of: module.Sessions, token: bytes = b"adas") -> str:
        session = of.begin(token)
        assert session is not None
        return of.cookie(session)


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def test_a_cookie_names_its_identity_also_after_a_restart(bed: Bed) -> None:
    cookie = bed.cookie(bed.begin())
    found = bed.begin().of(cookie)
    assert found is not None
    assert (found.identity.name, found.identity.role) == ("ada", Role.USER)


def test_an_ended_session_stays_ended_after_a_restart(bed: Bed) -> None:
    sessions = bed.begin()
    cookies = [bed.cookie(sessions) for _ in range(2)]
    ended = sessions.of(cookies[0])
    assert ended is not None
    sessions.end(ended)
    for each in (sessions, bed.begin()):
        assert each.of(cookies[0]) is None
        assert each.of(cookies[1]) is not None


@pytest.mark.parametrize("damage", ["removed", "torn"])
def test_without_the_list_of_ended_sessions_no_session_is_valid(bed: Bed, damage: str) -> None:
    cookie = bed.cookie(bed.begin())
    if damage == "removed":
        bed.path.unlink()
    else:
        bed.path.write_text("{")
    assert bed.begin().of(cookie) is None


def test_every_changed_character_of_a_cookie_is_found(bed: Bed) -> None:
    sessions = bed.begin()
    cookie = bed.cookie(sessions)
    for place, character in enumerate(cookie):
        forged = cookie[:place] + ("a" if character != "a" else "b") + cookie[place + 1 :]
        assert sessions.of(forged) is None, place
    for forged in ("", "...", "a.1.b.c", "ü", cookie + "x", cookie.rpartition(".")[0]):
        assert sessions.of(forged) is None
    assert bed.begin(b"another secret").of(cookie) is None


def test_a_session_ends_with_its_time(bed: Bed) -> None:
    sessions = bed.begin()
    cookie = bed.cookie(sessions)
    bed.now_s += SESSION_S - 1
    assert sessions.of(cookie) is not None
    bed.now_s += 1
    assert sessions.of(cookie) is None


def test_a_session_ends_with_its_token(bed: Bed) -> None:
    sessions = bed.begin()
    adas, operators = bed.cookie(sessions), bed.cookie(sessions, b"operators")
    bed.tokens = bed.tokens.revoked("ada")
    assert sessions.of(adas) is None
    assert sessions.of(operators) is not None
    bed.operator_token = "a new one"
    assert sessions.of(operators) is None


def test_a_link_opens_one_session_within_its_time(bed: Bed) -> None:
    sessions = bed.begin()
    link = sessions.link(b"adas")
    found = sessions.begin_by_link(link)
    assert found is not None
    assert found.identity.name == "ada"
    assert sessions.begin_by_link(link) is None, "a second time"
    late = sessions.link(b"adas")
    bed.now_s += LINK_S
    assert sessions.begin_by_link(late) is None


def test_a_link_of_a_revoked_token_opens_nothing(bed: Bed) -> None:
    sessions = bed.begin()
    link = sessions.link(b"adas")
    bed.tokens = bed.tokens.revoked("ada")
    assert sessions.begin_by_link(link) is None


def test_links_and_ended_sessions_are_bounded(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINKS_MAX", 2)
    monkeypatch.setattr(module, "ENDED_MAX", 2)
    sessions = bed.begin()
    links = [sessions.link(b"adas") for _ in range(3)]
    assert [sessions.begin_by_link(link) is not None for link in links] == [False, True, True]
    cookies = [bed.cookie(sessions) for _ in range(4)]
    for cookie in cookies[:3]:
        session = sessions.of(cookie)
        assert session is not None
        sessions.end(session)
    for each in (sessions, bed.begin()):
        assert [each.of(cookie) for cookie in cookies] == [None] * 4, "a new salt ended all"


def test_an_end_that_cannot_be_stored_holds_and_is_an_error(bed: Bed) -> None:
    sessions = bed.begin()
    cookie = bed.cookie(sessions)
    session = sessions.of(cookie)
    assert session is not None
    bed.path.unlink()
    os.rmdir(bed.path.parent)
    with pytest.raises(SessionNotEnded, match="remedy: free space"):
        sessions.end(session)
    assert sessions.of(cookie) is None


def test_ten_failures_in_a_minute_make_an_address_wait() -> None:
    now_s = 0.0
    failures = FailedLogins(lambda: now_s)
    for _ in range(FAILURES_MAX):
        assert failures.wait_s("a") == 0
        failures.add("a")
    assert failures.wait_s("a") == SPAN_S
    assert failures.wait_s("b") == 0
    now_s = SPAN_S
    assert failures.wait_s("a") == 0
