"""Settings: which layer wins, and that each value says where it came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.cli.exits import Exit, code_of
from reshape_gpu.config import config_file, load
from reshape_gpu.errors import ClientError
from reshape_gpu.settings import SETTINGS

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "config.yaml"
    path.write_text("port: 1001\nhome: /from/file\npreset: paper\n")
    return {"RESHAPE_CONFIG": str(path)}


def test_flags_beat_the_environment_beats_the_file_beats_defaults(env: dict[str, str]) -> None:
    env |= {"RESHAPE_PORT": "1002", "RESHAPE_HOME": "/from/env"}
    config = load({"port": 1003}, env)
    assert config.number("port") == 1003
    assert config.source("port") == "flag --port"
    assert str(config.home) == "/from/env"
    assert config.source("home") == "environment RESHAPE_HOME"
    assert config.text("preset") == "paper"
    assert config.source("preset").startswith("file ")
    assert config.text("bind") == "127.0.0.1"
    assert config.source("bind") == "default"


def test_a_flag_that_was_not_given_overrules_nothing(env: dict[str, str]) -> None:
    assert load({"port": None}, env).number("port") == 1001


def test_zero_is_a_value(env: dict[str, str]) -> None:
    assert load({"port": 0}, env).number("port") == 0


def test_without_a_file_the_defaults_are_taken(tmp_path: Path) -> None:
    config = load({}, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert {found.source for found in config.all()} == {"default"}
    assert config.home.is_absolute()


def test_a_misspelled_name_in_the_environment_is_an_error(env: dict[str, str]) -> None:
    with pytest.raises(ClientError) as refused:
        load({}, {**env, "RESHAPE_HOEM": "/from/env"})
    assert code_of(refused.value) is Exit.USAGE
    (problem,) = refused.value.problems
    assert "RESHAPE_HOEM" in problem.what
    assert problem.remedy == "write RESHAPE_HOME"


def test_names_in_the_environment_that_are_no_settings_are_no_error(env: dict[str, str]) -> None:
    others = {"RESHAPE_DEBUG": "1", "RESHAPE_CGROUP": "off", "RESHAPER": "1"}
    assert load({}, {**env, **others}).number("port") == 1001
    inside_a_job = {"RESHAPE_JOB": "a-1", "RESHAPE_DEVICES": "0"}
    assert load({}, {**env, **inside_a_job}).number("port") == 1001


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="does not exist") as refused:
        load({}, {"RESHAPE_CONFIG": str(tmp_path / "gone.yaml")})
    assert code_of(refused.value) is Exit.USAGE


@pytest.mark.parametrize("value", ["", "-1", "65536", "1.5", "0x10", "many", "٣٠٠٠٠٠"])
def test_a_port_that_is_none_is_refused_from_the_environment(tmp_path: Path, value: str) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path), "RESHAPE_PORT": value}
    if value == "":
        assert load({}, env).number("port") == 7470, "empty is not set"
        return
    with pytest.raises(ClientError, match="port"):
        load({}, env)


@pytest.mark.parametrize("text", ["port: true", "port: 1.5", "home: 3", "output: xml", "x: 1"])
def test_a_wrong_value_in_the_file_names_the_file(env: dict[str, str], text: str) -> None:
    path, named = config_file(env)
    assert named
    path.write_text(text)
    with pytest.raises(ClientError) as refused:
        load({}, env)
    assert str(path) in refused.value.text()
    assert "remedy" in refused.value.text()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("port: 1\nhome: x\nport: 2\n", "line 3: 'port' appears twice"),
        ("port: [", "line 1: "),
        ("port: 1\n---\nport: 2\n", "line 2: a second document begins"),
        ("home: 2026-13-45\n", "month must be in 1..12"),
        ("{" * 3000, "is nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_taken_says_why_and_where(
    env: dict[str, str], text: str, problem: str
) -> None:
    path, _ = config_file(env)
    path.write_text(text)
    with pytest.raises(ClientError) as refused:
        load({}, env)
    assert problem in refused.value.text()
    assert str(path) in refused.value.text()


def test_every_setting_is_documented() -> None:
    text = (DOCS / "cli.md").read_text()
    missing = [s.name for s in SETTINGS if f"`{s.name}`" not in text or f"`{s.env}`" not in text]
    assert missing == []


def test_the_remedy_for_a_bad_value_says_what_the_setting_is_for(env: dict[str, str]) -> None:
    with pytest.raises(ClientError) as caught:
        load({"simulated_gpus": 0}, env)
    (problem,) = caught.value.problems
    what = "number of simulated GPUs to use instead of real ones, on each host"
    assert problem.remedy == f"simulated_gpus: {what}"


@pytest.mark.parametrize("number", [0, 17])
def test_a_number_of_hosts_that_no_machine_plays_is_named(env: dict[str, str], number: int) -> None:
    with pytest.raises(ClientError, match=f"hosts.*{number}") as caught:
        load({"hosts": number}, env)
    assert "number of hosts that this machine plays" in caught.value.text()


def test_a_shortcut_is_turned_off_in_the_file_without_quotation_marks(
    env: dict[str, str],
) -> None:
    Path(env["RESHAPE_CONFIG"]).write_text("standby: off\n")
    config = load({}, env)
    assert (config.text("standby"), config.text("overlap")) == ("off", "auto")


@pytest.mark.parametrize("service", ["RESHAPE", "RESHAPE_API"])
def test_a_pod_beside_the_controllers_service_has_its_variables_for_no_settings(
    service: str,
) -> None:
    port = f"{service}_PORT_7470_TCP"
    env = {
        f"{service}_SERVICE_HOST": "10.96.0.7",
        f"{service}_SERVICE_PORT": "7470",
        f"{service}_SERVICE_PORT_HTTP": "7470",
        f"{service}_PORT": "tcp://10.96.0.7:7470",
        port: "tcp://10.96.0.7:7470",
        f"{port}_PROTO": "tcp",
        f"{port}_PORT": "7470",
        f"{port}_ADDR": "10.96.0.7",
    }
    found = load({}, {**env, "RESHAPE_URL": "http://reshape:7470"})
    assert (found.number("port"), found.source("port")) == (7470, "default")
    assert found.text("url") == "http://reshape:7470"
    assert load({}, {"RESHAPE_PORT": "8000"}).number("port") == 8000
    with pytest.raises(ClientError, match="RESHAPE_PORTS is the name of no setting"):
        load({}, {**env, "RESHAPE_PORTS": "8000"})
    with pytest.raises(ClientError, match="port: 'http"):
        load({}, {"RESHAPE_PORT": "http://reshape"})
