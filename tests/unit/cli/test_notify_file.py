"""The file of the targets of notifications: read strictly, and its secrets are shown nowhere."""

from __future__ import annotations

import json
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.cli.exits import CliError
from reshape_controller.cli.serve.notify_file import read
from reshape_controller.live.notifications.targets import Event, Target

SECRET = "a secret that no text may show"
GOOD: dict[str, Any] = {
    "url": "https://hooks.example.org/T00/path-secret",
    "secret": SECRET,
    "events": ["ended", "waiting"],
    "after_s": 600,
}


def given(folder: Path, value: object, mode: int = 0o600) -> tuple[Target, ...]:
    path = folder / "notify.yaml"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    path.chmod(mode)
    return read(str(path), "flag --notify")


def test_a_target_is_read_from_yaml_and_json(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    (tmp_path / "key").chmod(0o600)
    yaml = """
    chat:
      url: https://hooks.example.org/T00/path-secret
      secret_file: key
      events: [ended, waiting]
      after_s: 600
      allow: [10.1.2.3, "fd00::/64"]
    """
    (found,) = given(tmp_path, yaml, 0o644)
    assert (found.name, found.secret, found.after_s) == ("chat", SECRET.encode(), 600.0)
    assert found.events == {Event.ENDED, Event.WAITING}
    assert found.allow == (ip_network("10.1.2.3/32"), ip_network("fd00::/64"))
    (same,) = given(tmp_path, {"chat": {**GOOD, "allow": ["10.1.2.3", "fd00::/64"]}})
    assert same == found
    assert read(None, "default") == ()


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"url": "ftp://hooks.example.org/path-secret"}, "chat.url"),
        ({"url": "https:///path-secret"}, "chat.url"),
        ({"url": "https://hooks.example.org:x/path-secret"}, "chat.url"),
        ({"url": "https://hooks.example.org/path-secret\r\nHost: x"}, "chat.url"),
        ({"url": "https://ada:path-secret@hooks.example.org/"}, "chat.url"),
        ({"url": "http://hooks.example.org/path-secret"}, "chat.url: without TLS"),
        ({"secret": "path-secret"}, "chat.secret"),
        ({"secret": None}, "chat.secret: exactly one"),
        ({"secret_file": "key"}, "chat.secret: exactly one"),
        ({"secret": None, "secret_file": "gone"}, "chat.secret_file: it cannot be read"),
        ({"events": []}, "chat.events"),
        ({"events": ["lost"]}, "chat.events.0"),
        ({"after_s": None}, "chat.after_s"),
        ({"events": ["ended"]}, "chat.after_s"),
        ({"after_s": 0}, "chat.after_s"),
        ({"allow": ["localhost"]}, "chat.allow: 'localhost'"),
        ({"extra": 1}, "chat.extra"),
    ],
)
def test_each_problem_is_named_without_a_secret(
    tmp_path: Path, changed: dict[str, object], what: str
) -> None:
    with pytest.raises(CliError) as refused:
        given(tmp_path, {"chat": {**GOOD, **changed}})
    text = refused.value.text()
    assert what in text
    assert "remedy:" in text
    assert SECRET not in text
    assert "path-secret" not in text


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    broken = {**GOOD, "allow": ["x"], "after_s": None}
    with pytest.raises(CliError) as refused:
        given(tmp_path, {"chat": broken, "mail": {**GOOD, "secret": None}})
    text = refused.value.text()
    assert all(what in text for what in ("chat.allow", "chat.after_s", "mail.secret"))


def test_a_secret_that_other_users_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="other users can read the file"):
        given(tmp_path, {"chat": GOOD}, 0o644)
    (tmp_path / "key").write_text(SECRET)
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(CliError, match="other users can read or write it"):
        given(tmp_path, {"chat": {**GOOD, "secret": None, "secret_file": "key"}})


@pytest.mark.parametrize("text", ["chat: [", "[1]", "two names: {}", "chat: 7"])
def test_a_file_that_is_no_table_of_targets_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(CliError, match="remedy"):
        given(tmp_path, text)
    with pytest.raises(CliError, match="cannot be read"):
        read(str(tmp_path / "gone"), "flag --notify")
