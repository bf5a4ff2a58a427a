"""The store's address: where secrets may stand, and that none is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.cli.about import ConfigView
from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.cli.serve.store_settings import store_settings
from reshape_controller.http.json_text import to_json
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.sqlite.store import SqliteStore
from reshape_gpu.config import Config, load

PASSWORD = "s3same/+ä"
ENCODED = "s3same%2F%2B%C3%A4"


def config(tmp_path: Path, flags: dict[str, str] | None = None, **env: str) -> Config:
    return load(flags or {}, {"XDG_CONFIG_HOME": str(tmp_path), **env})


def credentials(tmp_path: Path, text: str = f"ada:{PASSWORD}\n", mode: int = 0o600) -> str:
    path = tmp_path / "credentials"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return str(path)


def test_without_a_setting_the_store_is_the_file_of_the_home(tmp_path: Path) -> None:
    place = store_settings(config(tmp_path, {"home": str(tmp_path)}))
    assert place.file == tmp_path / "store.sqlite"
    assert isinstance(place.make(), SqliteStore)


def test_one_flag_makes_it_a_server(tmp_path: Path) -> None:
    place = store_settings(config(tmp_path, {"store": "mongodb://db.example:27018/mine"}))
    assert place.text == "mongodb://db.example:27018/mine"
    assert place.file is None
    assert isinstance(place.make(), MongoStore)


def test_the_database_has_a_default_name(tmp_path: Path) -> None:
    place = store_settings(config(tmp_path, {"store": "mongodb://db.example"}))
    assert place.text == "mongodb://db.example:27017/reshape"


def test_a_password_on_the_command_line_is_refused_and_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="can see the command line") as refused:
        store_settings(config(tmp_path, {"store": f"mongodb://ada:{ENCODED}@db/mine"}))
    assert refused.value.code is Exit.USAGE
    assert "s3same" not in refused.value.text()
    assert "--store-credentials" in refused.value.text()


def test_the_environment_may_hold_the_password_and_config_show_hides_it(tmp_path: Path) -> None:
    found = config(tmp_path, RESHAPE_STORE=f"mongodb://ada:{ENCODED}@db/mine?authSource=admin")
    place = store_settings(found)
    assert place.server is not None
    assert place.server.secrets
    for text in (repr(place), repr(place.server), to_json(ConfigView("", found.all())), place.text):
        assert "s3same" not in text
    assert "mongodb://db/mine" in to_json(ConfigView("", found.all()))


def test_credentials_come_from_a_private_file(tmp_path: Path) -> None:
    flags = {"store": "mongodb://db/mine", "store_credentials": credentials(tmp_path)}
    place = store_settings(config(tmp_path, flags))
    assert place.server is not None
    assert place.server.options == {"username": "ada", "password": PASSWORD}
    assert "s3same" not in repr(place.server)


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        (f"ada:{PASSWORD}", 0o644, "other users can read or write"),
        ("ada", 0o600, "not one line USER:PASSWORD"),
        (":x", 0o600, "not one line USER:PASSWORD"),
        ("a:b\nc:d", 0o600, "not one line USER:PASSWORD"),
        ("", 0o600, "not one line USER:PASSWORD"),
    ],
)
def test_a_credentials_file_that_is_none_is_refused(
    tmp_path: Path, text: str, mode: int, problem: str
) -> None:
    flags = {"store": "mongodb://db/m", "store_credentials": credentials(tmp_path, text, mode)}
    with pytest.raises(CliError, match=problem) as refused:
        store_settings(config(tmp_path, flags))
    assert "s3same" not in refused.value.text()


def test_a_credentials_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    flags = {"store": "mongodb://db/m", "store_credentials": str(tmp_path / "gone")}
    with pytest.raises(CliError, match="gone"):
        store_settings(config(tmp_path, flags))


def test_credentials_in_two_places_are_refused(tmp_path: Path) -> None:
    found = config(
        tmp_path,
        RESHAPE_STORE="mongodb://a:b@db/m",
        RESHAPE_STORE_CREDENTIALS=credentials(tmp_path),
    )
    with pytest.raises(CliError, match="given twice"):
        store_settings(found)


def test_a_configuration_file_with_a_password_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "reshape" / "config.yaml"
    file.parent.mkdir()
    file.write_text(f"store: mongodb://ada:{ENCODED}@db/mine\n")
    file.chmod(0o644)
    with pytest.raises(CliError, match="other users can read or write") as refused:
        store_settings(config(tmp_path))
    assert "s3same" not in refused.value.text()
    file.chmod(0o600)
    assert store_settings(config(tmp_path)).text == "mongodb://db:27017/mine"


def test_a_certificate_authority_turns_tls_on(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("-----BEGIN CERTIFICATE-----\n")
    place = store_settings(config(tmp_path, {"store": "mongodb://db/m", "store_ca": str(ca)}))
    assert place.server is not None
    assert place.server.options == {"tls": True, "tlsCAFile": str(ca)}


@pytest.mark.parametrize(
    "option", ["tlsInsecure", "tlsAllowInvalidCertificates", "tlsAllowInvalidHostnames"]
)
def test_a_certificate_that_is_not_checked_is_refused(tmp_path: Path, option: str) -> None:
    with pytest.raises(CliError, match="turns off the check of the server's certificate"):
        store_settings(config(tmp_path, {"store": f"mongodb://db/m?tls=true&{option}=true"}))


@pytest.mark.parametrize("name", ["store_credentials", "store_ca"])
def test_settings_of_a_server_without_a_server_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CliError, match="the store is a file"):
        store_settings(config(tmp_path, {name: "x"}))


@pytest.mark.parametrize(
    "text",
    ["x", "http://db/m", "mongodb://", "mongodb://ada:s3same@@db/m", "mongodb://u:s3same@:1"],
)
def test_an_address_that_is_none_is_refused_with_its_form(tmp_path: Path, text: str) -> None:
    with pytest.raises(CliError, match=r"address cannot be used|command line") as refused:
        store_settings(config(tmp_path, {"store": text}))
    assert "s3same" not in refused.value.text()
    assert "remedy" in refused.value.text()


def test_users_with_an_inbox_need_a_server_and_names_of_tokens(tmp_path: Path) -> None:
    given = {"store": "mongodb://db.example/mine", "insert_users": "ada, bob,ada"}
    assert store_settings(config(tmp_path, given)).insert_users == ("ada", "bob")
    for name in ("operator", "unverified:ada", "a b", "$x"):
        with pytest.raises(CliError, match="cannot be the name of a token"):
            store_settings(config(tmp_path, {**given, "insert_users": f"ada,{name}"}))
    with pytest.raises(CliError, match="needs a store on a server"):
        store_settings(config(tmp_path, {"insert_users": "ada"}))
