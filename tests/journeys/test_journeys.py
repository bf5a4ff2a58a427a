"""Three journeys of new users, as scripts with a limit on their time, and what the README says.

Does: runs `engineer.sh` and `benchmarker.sh`; `operator.sh` runs in the Kubernetes tier. Compares
the README's commands and records with the scripts, so that neither changes alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs_commands import ROOT, session

HERE = Path(__file__).parent
NAMES = ("benchmarker", "engineer", "operator")


def text(name: str) -> str:
    """A journey as its user types it."""
    written = (HERE / f"{name}.sh").read_text()
    return re.sub(r"^up ", "reshape up ", written, flags=re.MULTILINE).replace('"', "")


def travel(name: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a journey with the `reshape` of this interpreter."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RESHAPE_")}
    return subprocess.run(
        ["bash", str(HERE / f"{name}.sh")],
        env=kept | {"PATH": path} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_reshape_command_of_the_readme_is_a_step_of_a_journey() -> None:
    journeys = "\n".join(text(name) for name in NAMES)
    commands = [one for one in session("README.md") if one.startswith("reshape ")]
    assert len(commands) > 10
    assert [one for one in commands if one.replace('"', "") not in journeys] == []


def test_every_record_of_the_readme_is_the_one_that_a_journey_submits() -> None:
    journeys = "\n".join((HERE / f"{name}.sh").read_text() for name in NAMES)
    blocks = re.findall(r"^```yaml\n(name:.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert len(blocks) == 3
    assert [block for block in blocks if block not in journeys] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_journey_has_a_limit_and_says_what_it_needs(name: str) -> None:
    written = (HERE / f"{name}.sh").read_text()
    assert re.search(r"^LIMIT_S=\d+$", written, re.MULTILINE)
    assert re.search(r"^# (Needs|It ends) .+", written, re.MULTILINE)


def test_a_benchmarker_goes_from_a_trace_to_a_table() -> None:
    done = travel("benchmarker")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok: a table of three policies" in done.stdout


@pytest.mark.tensorflow
@pytest.mark.timeout(500)
def test_an_engineer_reshapes_a_script_of_their_own() -> None:
    done = travel("engineer")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok: reshaped in one container" in done.stdout


def test_a_journey_that_takes_too_long_fails_and_leaves_no_daemon(tmp_path: Path) -> None:
    slow = HERE / "start.sh"
    script = tmp_path / "a" / "b" / "slow.sh"
    script.parent.mkdir(parents=True)
    script.write_text(f"LIMIT_S=4\n. {slow}\nsleep 600 & daemon=$!\necho $daemon\nsleep 600\n")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(script)],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 124
    assert "FAILED with 124" in done.stderr
    assert not Path(f"/proc/{done.stdout.split()[0]}").exists()
