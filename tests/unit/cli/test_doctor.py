"""What ``doctor`` looks at on any machine: the store, the secrets, and what is set otherwise."""

from __future__ import annotations

import contextlib
import gc
import json
import socket
from pathlib import Path
from typing import Any

import pytest
import typer

from reshape_controller.cli.home import Home
from reshape_controller.cli.serve.doctor import doctor
from reshape_gpu.home import Address
from reshape_launcher.local import users


def doctors_findings(folder: Path, capsys: pytest.CaptureFixture[str], **given: object) -> Any:
    """Name, whether it is right, and what was said."""
    with contextlib.suppress(typer.Exit):
        doctor(home=str(folder), launcher="local", simulated_gpus=2, output="json", **given)
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] == all(finding["ok"] for finding in report["findings"])
    return {found["check"]: (found["ok"], found["detail"]) for found in report["findings"]}


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_doctor_looks_at_the_store_and_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    file = home / "store.sqlite"
    assert doctors_findings(home, capsys)["store"] == (True, str(file))
    assert not file.exists()
    file.write_bytes(b"somebody's own" * 1000)
    assert not doctors_findings(home, capsys)["store"][0]
    monkeypatch.setattr("reshape_controller.store.mongo.store.SELECT_TIMEOUT_S", 0.2)
    ok, said = doctors_findings(home, capsys, store="mongodb://127.0.0.1:9/reshape")["store"]
    assert not ok
    assert said.startswith("does not answer")
    gc.collect()  # the driver forgets a socket whose connecting is cancelled by its end
    ok, said = doctors_findings(home, capsys, store="mysql://host/reshape")["store"]
    assert not ok
    assert "cannot be used" in said


def test_doctor_looks_at_the_settings_that_no_option_of_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctors_findings(tmp_path / "home", capsys)["settings"][0]
    monkeypatch.setenv("RESHAPE_POLICY", "nope")
    ok, said = doctors_findings(tmp_path / "home", capsys)["settings"]
    assert not ok
    assert "unknown policy 'nope'" in said


def test_doctor_looks_for_the_secrets_that_several_daemons_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    found = doctors_findings(tmp_path / "home", capsys, secrets=str(shared))
    for name in ("token", "secret"):
        missing = f"the file {name} is missing in the folder of --secrets ({shared})"
        assert found[f"shared {name}"] == (False, missing)
        (shared / name).write_text("x" * 64)
        (shared / name).chmod(0o600)
    found = doctors_findings(tmp_path / "home", capsys, secrets=str(shared))
    assert found["shared token"] == found["shared secret"] == (True, str(shared)), (
        "not what is in it"
    )


def test_doctor_calls_it_a_danger_if_users_jobs_are_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for root, setting, right in (
        (True, "allow", False),
        (True, "refuse", True),
        (False, "allow", True),
    ):
        monkeypatch.setattr(users, "is_root", lambda root=root: root)
        users.problem.cache_clear()
        ok, said = doctors_findings(tmp_path, capsys, root_jobs=setting)["isolation"]
        assert (ok, said.startswith("DANGER")) == (right, not right)
    users.problem.cache_clear()


def test_doctor_looks_at_the_address_that_it_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = doctors_findings(tmp_path / "home", capsys, port=port)
        assert found["address"] == (False, f"port {port} of 127.0.0.1 is in use by another program")
        Home(tmp_path / "home").write_address(Address(f"http://127.0.0.1:{port}", 1, "0"))
        found = doctors_findings(tmp_path / "home", capsys, port=port)
        assert "address" not in found, "it is that of this home's own daemon"
    found = doctors_findings(tmp_path / "other", capsys, port=port)
    assert found["address"] == (True, f"127.0.0.1:{port}")
    found = doctors_findings(tmp_path / "other", capsys, port=0, bind="10.0.0.1")
    assert "is not a loopback address" in found["address"][1]
