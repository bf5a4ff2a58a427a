"""The scripts of `findings/` and their index agree, and the runner tells which of them failed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FINDINGS = ROOT / "findings"
ROW = re.compile(r"^\| \[([a-z0-9-]+)\]\(([a-z0-9-]+)\.sh\) \| .+ \| .+ \| (\S+) \|$", re.MULTILINE)


def scripts() -> list[Path]:
    return sorted(FINDINGS.glob("*.sh"))


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("findings_run", FINDINGS / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "README.md").write_text(
        "".join(f"| [{name}]({name}.sh) | a | b | never |\n" for name in ("good", "bad"))
    )
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "INDEX", tmp_path / "README.md")
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    monkeypatch.setattr("sys.argv", ["run.py"])
    (tmp_path / "good.sh").write_text("true\n")
    for name in ("LATEST", "AGAIN"):
        monkeypatch.delenv(name, raising=False)
    return module


def test_each_script_is_in_the_index_once() -> None:
    rows = ROW.findall((FINDINGS / "README.md").read_text())
    assert [name for name, _, _ in rows] == [script.stem for script in scripts()]
    assert all(name == target for name, target, _ in rows)


def test_each_row_of_the_page_on_restarts_is_seen_by_a_script_or_a_test() -> None:
    rows = [
        line.rpartition(" | ")[2]
        for line in (ROOT / "docs" / "restarts.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| Library |")
    ]
    assert len(rows) > 12
    assert all("findings/" in seen_by or "`tests/" in seen_by for seen_by in rows)
    named = {name for seen_by in rows for name in re.findall(r"findings/([a-z0-9-]+)\.sh", seen_by)}
    assert named == {script.stem for script in scripts()}


@pytest.mark.parametrize("script", scripts(), ids=lambda script: script.stem)
def test_each_script_says_what_it_shows_and_compares_it(script: Path) -> None:
    text = script.read_text()
    assert text.startswith("#!/usr/bin/env bash\n# ")
    assert '. "$(dirname "$0")/parts/begin.sh"\n' in text
    assert re.search(r"^expect \S+ <<'SEEN'\n.+\nSEEN\n\Z", text, re.MULTILINE | re.DOTALL)


def test_the_runner_notes_the_date_of_those_that_pass(
    runner: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.sh").write_text("exit 3\n")
    assert runner.main() == 1
    index = (tmp_path / "README.md").read_text()
    assert re.search(r"good.*\| \d{4}-\d\d-\d\d \|\n.*bad.*\| never \|", index)
    (tmp_path / "bad.sh").write_text("true\n")
    assert runner.main() == 0
    assert "== good: passed today" in capsys.readouterr().out


def test_a_script_over_its_limit_is_ended_with_what_it_started(
    runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LIMIT_S", 0.2)
    script = tmp_path / "slow.sh"
    script.write_text("sleep 60 & echo $! >pid; wait\n")
    monkeypatch.setattr(runner, "HERE", tmp_path / "inner")
    assert runner.run(script) == "ran longer than 0 s"
    monkeypatch.setattr(runner, "LIMIT_S", 60.0)
    monkeypatch.setattr(runner, "LIMIT_BYTES", 1 << 20)
    script.write_text("head -c 3000000 /dev/zero >$FINDING_ROOT/large; sleep 60\n")
    assert "holds more than" in runner.run(script)
