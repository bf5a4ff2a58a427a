"""The systemd unit is one that systemd takes, and lets jobs outlive the service."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "deploy" / "reshape.service"


@pytest.fixture
def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser["Service"]


def test_nothing_that_systemd_does_to_the_service_ends_a_job(
    service: configparser.SectionProxy,
) -> None:
    assert service["KillMode"] == "process"
    assert service["Delegate"] == "yes"
    assert service["OOMPolicy"] == "continue"
    for hides in ("PrivateTmp", "ProtectHome", "ProtectSystem", "PrivateDevices"):
        assert hides not in service


def test_the_home_is_the_units_own_folder_and_nobody_elses(
    service: configparser.SectionProxy,
) -> None:
    assert service["ExecStart"].endswith(f"--home /var/lib/{service['StateDirectory']}")
    assert service["StateDirectoryMode"] == "0700"


def test_the_operators_document_explains_every_line_that_matters(
    service: configparser.SectionProxy,
) -> None:
    text = (UNIT.parents[1] / "docs" / "operations.md").read_text()
    for name in ("KillMode", "Delegate", "OOMPolicy", "RestartPreventExitStatus", "StateDirectory"):
        assert f"`{name}={service[name]}`" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_finds_nothing_wrong_but_the_missing_installation(tmp_path: Path) -> None:
    program = tmp_path / "reshape"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/reshape/bin/reshape", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if UNIT.name in line] == []
