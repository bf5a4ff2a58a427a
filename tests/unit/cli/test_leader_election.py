"""A lease is refused where controllers could not follow each other, each time with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.cli.home import Home
from reshape_controller.cli.serve.leader_election import lease_name
from reshape_controller.cli.serve.store_settings import store_settings
from reshape_gpu.config import load

SERVER = "mongodb://db.example/reshape"


def name(folder: Path, **flags: str) -> str | None:
    config = load({"home": str(folder), **flags}, {"XDG_CONFIG_HOME": str(folder)})
    return lease_name(config, store_settings(config))


def test_without_a_lease_there_is_no_election(tmp_path: Path) -> None:
    assert name(tmp_path) is None


def test_with_a_server_and_shared_secrets_it_is_taken(tmp_path: Path) -> None:
    found = name(tmp_path, lease="reshape", store=SERVER, secrets=str(tmp_path))
    assert found == "reshape"


@pytest.mark.parametrize(
    ("flags", "what", "remedy"),
    [
        ({"secrets": "/x"}, "is a file of a single controller", "--store mongodb://"),
        ({"store": SERVER}, "must share token and secret", "--secrets DIR"),
        ({"store": SERVER, "secrets": "/x", "lease": "No Name"}, "'No Name'", "lower-case letters"),
    ],
)
def test_what_several_controllers_lack_is_named(
    tmp_path: Path, flags: dict[str, str], what: str, remedy: str
) -> None:
    with pytest.raises(CliError) as caught:
        name(tmp_path, **({"lease": "reshape"} | flags))
    (problem,) = caught.value.problems
    assert caught.value.code is Exit.USAGE
    assert what in problem.what
    assert problem.where == "flag --lease"
    assert remedy in problem.remedy


def test_shared_secrets_are_read_and_never_made(tmp_path: Path) -> None:
    shared = tmp_path / "secrets"
    shared.mkdir()
    home = Home(tmp_path / "home", shared)
    with pytest.raises(CliError, match="the file token is missing"):
        home.token()
    (shared / "token").write_text("t" * 32)
    (shared / "token").chmod(0o440)
    assert home.token() == home.read_token() == "t" * 32
    (shared / "token").chmod(0o444)
    with pytest.raises(CliError, match="other users can read"):
        home.token()
