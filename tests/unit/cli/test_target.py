"""Which daemon a command talks to, with which token, and what it says about both."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from reshape_controller.cli.exits import Exit, code_of
from reshape_controller.cli.home import Home
from reshape_gpu import logins as logins_of
from reshape_gpu.client import Client
from reshape_gpu.config import load
from reshape_gpu.errors import ClientError
from reshape_gpu.home import Address
from reshape_gpu.logins import Login, Logins
from reshape_gpu.target import Target, of_home, target
from tests.unit.cli.test_client import HEALTH, answer, server

LAB = Login("lab", "https://lab.example:7443", "lab-token")
NO_LOGINS = Logins()
VPN = Login("vpn", "http://10.0.0.7:7443", "vpn-token", plain_http=True)


def found(
    folder: Path, env: dict[str, str], logins: Logins = NO_LOGINS, **flags: str
) -> Target | None:
    env = {"XDG_CONFIG_HOME": str(folder / "config"), **env}
    logins_of.write(logins_of.logins_file(env), logins)
    return target(load(flags, env), env)


def refused(folder: Path, env: dict[str, str], logins: Logins = NO_LOGINS) -> str:
    with pytest.raises(ClientError) as error:
        found(folder, env, logins)
    return error.value.text()


def test_the_daemon_is_chosen_by_flag_then_url_then_context_then_home_then_login(
    tmp_path: Path,
) -> None:
    both = Logins((LAB, VPN), current="lab")
    url = {"RESHAPE_URL": "http://127.0.0.1:7470", "RESHAPE_TOKEN": "mine"}
    assert found(tmp_path, url, both, home="/h") is None
    by_url = found(tmp_path, {**url, "RESHAPE_CONTEXT": "vpn"}, both)
    assert by_url == Target(
        "http://127.0.0.1:7470", "mine", "environment RESHAPE_URL", "environment RESHAPE_TOKEN"
    )
    by_name = found(tmp_path, {"RESHAPE_CONTEXT": "vpn", "RESHAPE_HOME": "/h"}, both)
    assert by_name is not None
    assert by_name.url == VPN.url
    assert found(tmp_path, {"RESHAPE_HOME": "/h"}, both) is None
    assert found(tmp_path, {"RESHAPE_CONTEXT": "local"}, both) is None
    current = found(tmp_path, {}, both)
    assert current is not None
    assert (current.url, current.token) == (LAB.url, LAB.token)
    assert found(tmp_path, {}, Logins((LAB,))) is None


def test_a_token_comes_from_the_environment_a_file_or_the_login_of_the_same_url(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    env = {"RESHAPE_URL": LAB.url, "RESHAPE_TOKEN_FILE": str(file)}
    by_file = found(tmp_path, env, Logins((LAB,)))
    assert by_file is not None
    assert (by_file.token, by_file.token_from) == ("from-file", str(file))
    by_login = found(tmp_path, {"RESHAPE_URL": f"{LAB.url}/"}, Logins((LAB,)))
    assert by_login is not None
    assert (by_login.token, by_login.token_from) == (
        "lab-token",
        "login lab",
    )
    assert LAB.token not in repr(by_login) + repr(LAB)
    text = refused(tmp_path, {"RESHAPE_URL": "https://other:1"}, Logins((LAB,)))
    assert "there is no token for this daemon" in text
    assert "https://other:1 (from environment RESHAPE_URL); tried RESHAPE_TOKEN" in text


def test_the_token_of_a_home_goes_to_the_url_of_its_running_daemon_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    url = {"RESHAPE_HOME": str(home.folder), "RESHAPE_URL": "http://127.0.0.1:7470"}
    token, lock = home.token(), home.lock()
    try:
        home.write_address(Address("http://127.0.0.1:7470", 1, "0"))
        by_url = found(tmp_path, url)
        assert by_url is not None
        assert (by_url.token, by_url.token_from) == (token, str(home.token_file))
        other = {**url, "RESHAPE_URL": "http://127.0.0.1:7471"}
        assert "there is no token for this daemon" in refused(tmp_path, other)
        mine = found(tmp_path, {**url, "RESHAPE_TOKEN": "mine"})
        assert mine is not None
        assert mine.token == "mine"
    finally:
        os.close(lock)
    assert "there is no token for this daemon" in refused(tmp_path, url), "none holds the home"


def test_a_token_does_not_travel_without_tls_beyond_this_machine(tmp_path: Path) -> None:
    env = {"RESHAPE_URL": "http://10.0.0.7:7443", "RESHAPE_TOKEN": "t"}
    assert "without TLS" in refused(tmp_path, env)
    assert found(tmp_path, env, Logins((VPN,))) is not None, "the login allows it"


@pytest.mark.parametrize(
    "url", ["lab", "ftp://lab", "https://", "https://a:b", "https://u:p@h", "http://h?x"]
)
def test_what_is_no_url_is_refused(tmp_path: Path, url: str) -> None:
    assert "is not the URL of a daemon" in refused(tmp_path, {"RESHAPE_URL": url})


def test_a_file_of_logins_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = logins_of.logins_file({"XDG_CONFIG_HOME": str(tmp_path)})
    logins_of.write(path, Logins((LAB,), "lab"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert logins_of.read(path) == Logins((LAB,), "lab")
    path.chmod(0o644)
    with pytest.raises(ClientError, match="other users can read the tokens"):
        logins_of.read(path)
    path.chmod(0o600)
    path.write_text("{")
    with pytest.raises(ClientError, match="is torn"):
        logins_of.read(path)


def test_an_error_says_the_url_and_where_url_and_token_come_from(tmp_path: Path) -> None:
    with server(answer(401, json.dumps({"message": "no"}))) as (url, _):
        there = Target(url, "t", "environment RESHAPE_URL", "login lab")
        with pytest.raises(ClientError) as error:
            Client.at(there).ask(HEALTH)
    text = error.value.text()
    assert f"{url} (from environment RESHAPE_URL), token from login lab" in text
    assert "wrong, expired or revoked" in text
    with pytest.raises(ClientError) as error:
        Client.at(there).ask(HEALTH)
    text = error.value.text()
    assert (code_of(error.value), "cannot be reached" in text) == (Exit.UNREACHABLE, True)
    assert "not running" not in text
    assert "reshape up" not in text


def test_a_path_of_the_url_comes_before_that_of_the_request() -> None:
    with server(answer(200, '{"status": "ok"}')) as (url, heard):
        Client.at(Target(f"{url}/reshape", "t", "", "")).ask(HEALTH)
    assert heard[0].startswith(b"GET /reshape/healthz HTTP/1.1")


def test_the_home_of_another_user_is_not_called_one_without_a_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    monkeypatch.setattr(os, "access", lambda *given: False)
    with pytest.raises(ClientError) as error:
        of_home(home)
    text = error.value.text()
    assert "belongs to another user" in text
    assert "reshape login" in text
    assert "ever run" not in text


def test_a_token_in_the_environment_replaces_that_of_the_home(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.token()
    lock = home.lock()
    try:
        with server(answer(401, "{}")) as (url, heard):
            home.write_address(Address(url, 1, "0"))
            with pytest.raises(ClientError, match="refuses the token") as error:
                Client.at(of_home(home, ("mine", "environment RESHAPE_TOKEN"))).ask(HEALTH)
    finally:
        os.close(lock)
    assert b"Bearer mine" in heard[0]
    assert "token from environment RESHAPE_TOKEN" in error.value.text()
