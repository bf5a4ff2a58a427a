"""`make versions` notes what tests say of each newest version, and goes on where it was cut."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon_bed import eventually

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "dev" / "versions.md"
REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_good"/>
<testcase classname="tests.unit.test_a" name="test_bad[1]"><failure/></testcase>
<testcase classname="tests.unit.test_a" name="test_bad[1]"><error/></testcase>
<testcase classname="tests.unit.test_a" name="test_other"><skipped/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, with a page of its own."""
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    module = importlib.import_module("versions")
    page = tmp_path / "versions.md"
    page.write_text(f"Before.\n\n{module.HEAD}\nAfter.\n")
    monkeypatch.setattr(module, "PAGE", page)
    monkeypatch.setattr("sys.argv", ["versions.py"])
    monkeypatch.delenv("AGAIN", raising=False)
    yield module
    for name in ("versions", "again"):
        sys.modules.pop(name, None)


def test_the_page_has_a_row_of_each_package_and_its_pinned_version(versions: Any) -> None:
    rows = dict(
        re.findall(r"^\| ([a-z-]+) \| (\S+) \| .+ \| \d+ \| \d+ \| .+ \|$", PAGE.read_text(), re.M)
    )
    assert list(rows) == [package.name for package in versions.PACKAGES]
    for package in versions.PACKAGES:
        named = "requirements-pytorch" if package.environment == ".venv-pytorch" else "requirements"
        assert f"\n{package.name}==" in (ROOT / f"{named}.lock").read_text()


def test_each_package_names_tests_that_are_there(versions: Any) -> None:
    for package in versions.PACKAGES:
        paths = [word for word in package.tests if word.startswith("tests/")]
        assert all((ROOT / path).exists() for path in paths), package


def test_a_run_that_was_cut_goes_on_and_writes_rows_in_their_order(
    versions: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []

    def attempt(package: Any) -> Any:
        tried.append(package.name)
        if package.name == "keras" and tried.count("keras") == 1:
            raise subprocess.CalledProcessError(1, "pip")
        failed = ("test_a::test_bad",) if package.name == "torch" else ()
        return versions.Outcome("1.0", "1.1" if failed else "1.0", 2, 7, failed)

    monkeypatch.setattr(versions, "attempt", attempt)
    assert versions.main() == 1
    assert "keras: not tried" in capsys.readouterr().out
    assert versions.main() == 0  # keras alone
    assert tried[len(versions.PACKAGES) :] == ["keras"]
    text = versions.PAGE.read_text()
    assert text.startswith("Before.\n\n| Package ")
    assert text.endswith(" |\n\nAfter.\n")
    assert list(versions.rows_of_page()) == [package.name for package in versions.PACKAGES]
    assert "| torch | 1.0 | 1.1 | 2 | 7 | 1<br>`test_a::test_bad` | 20" in text
    assert "| keras | 1.0 | the same | 2 | 7 | 0 | 20" in text


def test_a_report_counts_a_test_once_and_names_what_failed(versions: Any, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert versions.read(report) == (1, ("test_a::test_bad[1]",))


def test_tests_that_take_too_long_are_ended_with_what_they_started(
    versions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "LIMIT_S", 0.3)
    with pytest.raises(subprocess.TimeoutExpired):
        versions.run_limited(["sh", "-c", "sleep 60 & echo $! >pid; wait"], tmp_path, {})
    pid = (tmp_path / "pid").read_text().strip()
    # The signal has been sent; the kernel ends the process in its own time.
    eventually(lambda: _has_ended(pid), text="what they started ends")


def _has_ended(pid: str) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"
