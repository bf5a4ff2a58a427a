"""The first program in a pod: it puts the SideCar in."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from reshape_launcher.kubernetes import place_sidecar


def test_the_first_program_in_a_pod_puts_the_sidecar_in(tmp_path: Path) -> None:
    archive, secret, home = tmp_path / "a.pyz", tmp_path / "secret", tmp_path / "home"
    secret.mkdir()
    (secret / "token").write_text("bearer")
    (secret / "..data").mkdir()
    with zipfile.ZipFile(archive, "w") as packed:
        for name in ("agent/loop.py", "hook/run.py", "init/look.py", "init/supervisor.py"):
            packed.writestr(f"reshape_sidecar/{name}", "")
    code = place_sidecar.main(str(archive), str(secret), str(home))  # type: ignore[no-untyped-call]
    assert code == 0
    token = home / "attempt" / "token"
    assert token.read_text() == "bearer"
    assert token.stat().st_mode & 0o777 == 0o600
    assert (home / "attempt" / "run").is_dir()
    assert (home / "python").exists()


def test_a_worker_on_a_later_host_of_a_gang_has_its_own_number_and_token_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, secret, home = tmp_path / "a.pyz", tmp_path / "secret", tmp_path / "home"
    secret.mkdir()
    (secret / "spec.json").write_text('{"worker":2}')
    for worker in (2, 3):
        (secret / f"token-{worker}").write_text(f"bearer-{worker}")
    with zipfile.ZipFile(archive, "w") as packed:
        for name in ("agent/loop.py", "hook/run.py", "init/look.py", "init/supervisor.py"):
            packed.writestr(f"reshape_sidecar/{name}", "")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    code = place_sidecar.main(str(archive), str(secret), str(home))  # type: ignore[no-untyped-call]
    assert code == 0
    attempt = home / "attempt"
    assert json.loads((attempt / "spec.json").read_text())["worker"] == 3
    assert (attempt / "token").read_text() == "bearer-3"
    assert not list(attempt.glob("token-*"))


def test_a_worker_is_numbered_whatever_the_images_locale_is(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text('{"command":["größe"]}', encoding="utf-8")
    program = "import runpy, sys; runpy.run_path(sys.argv[1])['number_worker'](sys.argv[2], 2)"
    given = (place_sidecar.__file__, str(spec))
    old = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-c", program, *given], env=old, check=True)
    assert json.loads(spec.read_text(encoding="utf-8")) == {"command": ["größe"], "worker": 2}


def test_a_python_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(place_sidecar, "LEAST", (99, 0))
    assert place_sidecar.main("a", "b", str(tmp_path)) == 1  # type: ignore[no-untyped-call]
    assert "the SideCar needs 99.0 or newer" in capsys.readouterr().err
