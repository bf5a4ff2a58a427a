"""The Python client as a program uses it: where its daemon comes from, records, errors, tables."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import subprocess
import sys
import types
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy
import pytest

import reshape_gpu
from reshape_gpu import (
    AsyncClient,
    Client,
    NotFound,
    PackageMissing,
    RecordRejected,
    SettingError,
    answers,
    async_client,
)
from reshape_gpu import record as records
from reshape_gpu.errors import ClientError, TooManyRequests, Unreachable
from reshape_gpu.logins import Login, Logins, logins_file, write
from reshape_gpu.target import Target
from reshape_gpu.usage import Usage, UsageRow
from tests.unit.cli.test_client import answer, server

LAB = Login("lab", "https://lab.example:7443", "lab-token")
REJECTED = {
    "code": "rejected",
    "message": "'many' is not a whole number",
    "path": "steps",
    "hint": "for example 5000",
    "errors": [
        {"path": "steps", "message": "'many' is not a whole number", "hint": "for example 5000"}
    ],
}


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a login and no setting of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("URL", "TOKEN", "TOKEN_FILE", "CONTEXT", "HOME", "CONFIG"):
        monkeypatch.delenv(f"RESHAPE_{name}", raising=False)
    write(logins_file({"XDG_CONFIG_HOME": str(tmp_path)}), Logins((LAB,)))


def test_an_argument_counts_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESHAPE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("RESHAPE_TOKEN", "from-environment")
    by_environment = Client().target
    assert (by_environment.url, by_environment.token) == ("http://127.0.0.1:1", "from-environment")
    by_argument = Client("http://127.0.0.1:2", token="mine").target
    assert (by_argument.url, by_argument.token) == ("http://127.0.0.1:2", "mine")
    assert by_argument.token_from == "argument token"
    assert Client(context="lab").target.url == LAB.url


def test_a_token_file_and_a_login_are_used_as_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert AsyncClient(context="lab").target.token == LAB.token
    (tmp_path / "token").write_text("of-the-file\n")
    monkeypatch.setenv("RESHAPE_TOKEN_FILE", str(tmp_path / "token"))
    assert Client(context="lab").target.token == "of-the-file"


def test_a_token_is_used_without_white_space_and_a_wrong_one_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Client("http://127.0.0.1:2", token="mine\n").target.token == "mine"
    for token in ("my secret", "my\nsecret", "sécret", "\x00secret"):
        with pytest.raises(SettingError) as error:
            Client("http://127.0.0.1:2", token=token)
        assert "secret" not in str(error.value).replace("sécret", "secret")
        assert error.value.problems[0].where == "argument token"
    (tmp_path / "token").write_text("a token of two lines\nsecret\n")
    monkeypatch.setenv("RESHAPE_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(SettingError, match="white space") as error:
        Client(context="lab")
    assert error.value.problems[0].where == str(tmp_path / "token")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("key", ["schlüssel", "a\nb", "kläuse – 1"])
def test_a_key_that_no_header_can_hold_is_refused_with_its_value(key: str) -> None:
    client = Client("http://127.0.0.1:2", token="mine")
    with pytest.raises(SettingError) as error:
        client.submit({"name": "a"}, key=key)
    assert repr(key) in str(error.value)
    assert error.value.problems[0].where == "argument key"


def test_without_a_daemon_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(Unreachable) as error:
        Client(home=tmp_path / "home")
    assert "no daemon has ever run in this home" in str(error.value)
    assert "reshape up" in error.value.problems[0].remedy


@pytest.mark.parametrize("given", [{"url": "lab"}, {"context": "nowhere"}])
def test_a_wrong_argument_is_named_with_its_value(given: dict[str, str]) -> None:
    with pytest.raises(SettingError) as error:
        Client(**given, token="t")
    (name, value), problem = *given.items(), error.value.problems[0]
    assert value in problem.what
    assert problem.where == f"argument {name}"
    assert problem.remedy


def at(url: str) -> Target:
    return Target(url, "token", "argument url", "argument token")


def test_a_rejected_record_names_field_value_and_remedy() -> None:
    record = {"name": "a", "code": "/", "steps": "many"}
    with (
        server(answer(422, json.dumps(REJECTED))) as (url, heard),
        pytest.raises(RecordRejected) as error,
    ):
        Client.at(at(url)).submit(record)
    problem = error.value.problems[0]
    assert (problem.where, problem.remedy) == ("steps", "for example 5000")
    assert "'many'" in str(error.value)
    assert heard[0].startswith(b"POST /v1/jobs HTTP/1.1")


def test_both_clients_turn_the_same_answers_into_the_same_errors(tmp_path: Path) -> None:
    bad = (answer(404, '{"message": "no such job"}'), answer(200, "{}"), answer(401, "{}"), b"x")
    for data in bad:
        with server(data) as (url, _):
            with pytest.raises(ClientError) as of_sync:
                Client.at(at(url)).get("a")
            with pytest.raises(ClientError) as of_async:
                asyncio.run(AsyncClient.at(at(url)).get("a"))
        assert type(of_sync.value) is type(of_async.value), data
        assert of_sync.value.problems[0].where == of_async.value.problems[0].where
    assert issubclass(NotFound, ClientError)


@pytest.mark.parametrize(("said", "wait_s"), [("7", 7.0), ("", 1.0), ("-7", 1.0), ("soon", 1.0)])
def test_a_daemon_that_is_asked_too_often_says_when_to_ask_again(said: str, wait_s: float) -> None:
    body = b'{"message": "ada sends more than 50 requests a second"}'
    with pytest.raises(TooManyRequests, match="ada sends more") as error:
        answers.response(at("http://127.0.0.1:1"), 429, {"Retry-After": said}, body)
    assert error.value.again_after_s == wait_s


def test_both_clients_have_the_same_methods() -> None:
    for name, method in vars(Client).items():
        if not name.startswith("_"):
            there = inspect.signature(getattr(AsyncClient, name)).parameters
            assert there == inspect.signature(method).parameters, name


def test_requests_that_wait_for_others_are_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_client, "ANSWER_S", 1.5)
    monkeypatch.setattr(async_client, "REQUESTS_MAX", 1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.4)
        writer.write(answer(200, '{"gpus": []}'))
        await writer.drain()
        writer.close()

    async def scenario() -> list[object]:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with listening, AsyncClient.at(at(f"http://127.0.0.1:{port}")) as client:
            return list(await asyncio.gather(*(client.gpus() for _ in range(5))))

    assert asyncio.run(scenario()) == [()] * 5


def test_both_clients_name_certificates_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "text.pem").write_text("no certificate")
    for ca in (tmp_path / "absent.pem", tmp_path / "text.pem"):
        there = replace(at("https://127.0.0.1:1"), ca=ca)
        with pytest.raises(SettingError, match="CA certificates cannot be read") as of_sync:
            Client.at(there).get("a")
        with pytest.raises(SettingError) as of_async:
            asyncio.run(AsyncClient.at(there).get("a"))
        assert of_sync.value.problems == of_async.value.problems
        assert of_async.value.problems[0].where == str(ca)


def test_both_clients_say_that_no_daemon_answers_at_an_address() -> None:
    with server(b"") as (url, _):
        pass
    for asked in (
        Client.at(at(url)).get,
        lambda key: asyncio.run(AsyncClient.at(at(url)).get(key)),
    ):
        with pytest.raises(Unreachable) as error:
            asked("a")
        assert error.value.problems[0].where == f"{url} (from argument url)"
        assert error.value.problems[0].remedy


def test_relative_folders_of_a_record_begin_at_its_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: a\ncheckpoints: ../saved\ndataset: claim:data\n")
    found = records.read(tmp_path / "job.yaml")
    assert found == {
        "name": "a",
        "code": str(tmp_path),
        "checkpoints": str(tmp_path.parent / "saved"),
        "dataset": "claim:data",
    }
    assert records.read({"code": None, "image": "x"}) == {"code": None, "image": "x"}
    assert records.read({"code": "sub"})["code"] == str(Path.cwd() / "sub")


def test_a_path_object_is_a_folder_of_a_record(tmp_path: Path) -> None:
    assert records.read({"code": tmp_path, "dataset": Path("sub")}) == {
        "code": str(tmp_path),
        "dataset": str(Path.cwd() / "sub"),
    }


@pytest.mark.parametrize(
    ("field", "value", "where", "shown"),
    [
        ("name", Path("a"), "name", "PosixPath('a')"),
        ("name", date(2026, 1, 31), "name", "datetime.date(2026, 1, 31)"),
        ("target_accuracy", math.nan, "target_accuracy", "nan"),
        ("steps", numpy.int64(7), "steps", "7"),
        ("optional_gpus", [1, numpy.int64(2)], "optional_gpus[1]", "2"),
        ("env", {"A": "a", "B": Path("b")}, "env.B", "PosixPath('b')"),
        ("env", {("a",): "a"}, "env", "('a',)"),
        ("code", "~no-such-user/x", "code", "'~no-such-user/x'"),
    ],
)
def test_a_record_that_cannot_be_sent_names_field_value_and_remedy(
    field: str, value: object, where: str, shown: str
) -> None:
    with pytest.raises(RecordRejected) as error:
        records.read({"name": "a", "code": "/", field: value})
    (problem,) = error.value.problems
    assert (problem.where, shown in problem.what) == (where, True), problem.what
    assert problem.remedy


def test_a_file_that_is_no_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read"):
        records.read(tmp_path / "absent.yaml")
    for text in ("- a\n", "a: 1\na: 2\n"):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(RecordRejected, match=r"bad\.yaml"):
            records.read(str(tmp_path / "bad.yaml"))


def test_a_dataframe_has_a_row_for_each_value_and_a_column_for_each_field(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake: Any = types.ModuleType("pandas")
    fake.DataFrame = list
    monkeypatch.setitem(sys.modules, "pandas", fake)
    usage = Usage(0.0, 1.0, "user", (UsageRow("ada", "H100", 3.0), UsageRow("bob", "H100")))
    found = reshape_gpu.to_dataframe(usage)
    assert [row["name"] for row in found] == ["ada", "bob"]
    assert found[0]["trained_gpu_s"] == 3.0
    assert reshape_gpu.to_dataframe(usage.rows) == found
    with pytest.raises(SettingError, match="int is no value of this package"):
        reshape_gpu.to_dataframe([1])


def test_a_dataframe_without_pandas_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PackageMissing) as error:
        reshape_gpu.to_dataframe(())
    assert error.value.problems[0].remedy == "pip install pandas"


def test_the_package_has_every_name_that_it_promises() -> None:
    for name in reshape_gpu.__all__:
        assert getattr(reshape_gpu, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Klient'"):
        reshape_gpu.__getattr__("Klient")


def test_the_import_of_the_client_brings_no_heavy_package() -> None:
    heavy = ("asyncio", "numpy", "pydantic", "rich", "structlog", "tornado", "typer", "yaml")
    text = f"import reshape_gpu, sys; reshape_gpu.Client; print({{*{heavy}}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
