"""The command page: a link for a browser, which goes there by a file of its user."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.unit.cli.test_client import answer, server
from tests.unit.cli.test_token_commands import reshape

ANSWER = answer(201, '{"link": "a-secret", "expires_in_s": 60.0}')


@pytest.fixture(autouse=True)
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("RESHAPE_TOKEN", "adas")


def test_the_link_has_its_secret_where_no_server_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(ANSWER) as (url, heard):
        monkeypatch.setenv("RESHAPE_URL", url)
        made = json.loads(reshape("page", "-o", "json").stdout)
        assert reshape("page").stdout == f"{url}/page/#link=a-secret\n"
    assert made == {"url": f"{url}/page/#link=a-secret", "expires_in_s": 60.0}
    assert urlsplit(made["url"]).path == "/page/"
    assert heard[0].startswith(b"POST /v1/session/links ")
    assert b"Bearer adas" in heard[0]


def test_a_browser_gets_the_link_by_a_file_that_no_other_user_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []

    def browse(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    with server(ANSWER) as (url, _):
        monkeypatch.setenv("RESHAPE_URL", url)
        assert reshape("page", "--open").exit_code == 0
    path = Path(unquote(urlsplit(opened[0]).path))
    assert "a-secret" not in opened[0]
    assert f"url={url}/page/#link=a-secret" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_a_browser_the_link_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    with server(ANSWER) as (url, _):
        monkeypatch.setenv("RESHAPE_URL", url)
        shown = reshape("page", "--open")
    assert (shown.exit_code, shown.stdout) == (0, f"{url}/page/#link=a-secret\n")
    assert "open the link yourself" in shown.stderr
