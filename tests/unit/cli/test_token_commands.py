"""The commands about tokens and logins, as a person types them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from reshape_controller.access import token_file
from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import Caps, Identity, Role
from reshape_controller.access.submission import Denied
from reshape_controller.cli.home import Home
from reshape_controller.cli.main import build
from reshape_gpu.errors import ClientError
from tests.unit.cli.test_client import answer, server


def reshape(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(build(words[:1]), list(words), input=stdin)


def text_of(result: Result) -> str:
    assert isinstance(result.exception, ClientError), result.output
    return result.exception.text()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("RESHAPE_HOME", str(tmp_path / "home"))
    made = Home(tmp_path / "home")
    made.prepare()
    made.token()
    return made


def identities(home: Home) -> Identities:
    return Identities(home.current_token(), token_file.follow(home.named_tokens_file))


def test_a_token_is_printed_once_and_only_its_hash_is_stored(home: Home) -> None:
    words = ("--uid", "1001", "--priority", "5", "--no-pin", "--no-may-restart", "--expires", "90d")
    made = reshape("token", "create", "ada", *words)
    token = made.stdout.strip()
    assert (made.exit_code, token.startswith("reshape_"), len(token) > 40) == (0, True, True)
    stored = home.named_tokens_file
    assert token not in stored.read_text()
    assert stored.stat().st_mode & 0o777 == 0o600
    caps = Caps(5, pin=False, may_restart=False)
    assert identities(home).of(token.encode()) == Identity("ada", Role.USER, 1001, caps)
    listed = json.loads(reshape("token", "list", "-o", "json").stdout)["tokens"]
    assert [(each["name"], each["role"], each["uid"]) for each in listed] == [("ada", "user", 1001)]
    assert "sha256" not in listed[0]
    assert "ada" in reshape("token", "list").stdout


def test_a_rotated_token_and_the_one_before_are_valid_and_a_revoked_is_not(home: Home) -> None:
    old = reshape("token", "create", "vera", "--role", "viewer").stdout.strip().encode()
    new = reshape("token", "rotate", "vera").stdout.strip().encode()
    known = identities(home)
    assert known.of(old) == known.of(new) == Identity("vera", Role.VIEWER)
    at_once = reshape("token", "rotate", "vera", "--overlap", "0s").stdout.strip().encode()
    assert (known.of(old), known.of(new)) == (None, None)
    assert known.of(at_once) is not None
    assert reshape("token", "revoke", "vera").exit_code == 0
    assert known.of(at_once) is None
    assert "'vera' has no token" in text_of(reshape("token", "revoke", "vera"))


def test_a_revoked_name_is_listed_while_its_uid_counts(home: Home) -> None:
    for name, *uid in (("ada", "--uid", "1001"), ("bob",), ("old", "--expires", "0s")):
        assert reshape("token", "create", name, *uid).exit_code == 0
    for name in ("ada", "bob"):
        assert reshape("token", "revoke", name).exit_code == 0
    listed = json.loads(reshape("token", "list", "-o", "json").stdout)["tokens"]
    assert {each["name"]: each["state"] for each in listed} == {"old": "expired", "ada": "revoked"}
    assert "revoked" in reshape("token", "list").stdout
    with pytest.raises(Denied, match="none is known for bob"):
        identities(home).uids().of("bob")


def test_mistakes_are_refused_with_a_remedy(home: Home) -> None:
    reshape("token", "create", "ada")
    assert "rotate ada" in text_of(reshape("token", "create", "ada"))
    assert "cannot be the name" in text_of(reshape("token", "create", "operator"))
    assert "is not a time span" in text_of(reshape("token", "create", "bob", "--expires", "soon"))
    assert "no Unix user" in text_of(reshape("token", "create", "bob", "--uid", "no-such-user"))
    assert "not one for jobs" in text_of(reshape("token", "create", "bob", "--uid", "0"))
    assert "sidecar" not in reshape("token", "create", "--help").stdout
    os.unlink(home.token_file)
    assert "no daemon has ever run" in text_of(reshape("token", "create", "bob"))


def test_a_login_is_checked_kept_and_forgotten(home: Home, tmp_path: Path) -> None:
    who = {"name": "ada", "role": "user", "uid": None, "priority": 0, "pin": True}
    with server(answer(200, json.dumps({**who, "may_restart": True}))) as (url, heard):
        done = reshape("login", url, "--name", "lab", stdin="my-token\n")
        assert done.exit_code == 0, done.exception
        assert b"Bearer my-token" in heard[0]
    file = tmp_path / "config" / "reshape" / "logins.json"
    assert file.stat().st_mode & 0o777 == 0o600
    shown = json.loads(reshape("context", "list", "-o", "json").stdout)["contexts"]
    assert shown == [{"name": "lab", "url": url, "current": True}]
    assert reshape("context", "use", "local").exit_code == 0
    assert "no login 'x'" in text_of(reshape("context", "use", "x"))
    assert reshape("context", "use", "lab").exit_code == 0
    assert reshape("logout").exit_code == 0
    assert "my-token" not in file.read_text()


def test_a_login_that_the_daemon_refuses_is_not_kept(home: Home, tmp_path: Path) -> None:
    with server(answer(401, "{}")) as (url, _):
        assert "refuses the token" in text_of(reshape("login", url, stdin="bad\n"))
    assert not (tmp_path / "config" / "reshape" / "logins.json").exists()
    assert "no token was given" in text_of(reshape("login", "http://127.0.0.1:1", stdin="\n"))
    assert "without TLS" in text_of(reshape("login", "http://lab:1", stdin="t\n"))
