"""`make gpu` on a machine without a GPU: whole on stand-ins, and the line that it ends with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reshape_sidecar import cgroup
from tests.support.gpu_bed import RUN, load

# isort: split
from gpu import processes, stand_in
from gpu.report import Outcome

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None, reason="the stand-ins for NVML and the driver need gcc"
)
TITLES = ("inventory", "training", "handover", "forking", "quarantine", "contexts", "checkpoint")


def run(out: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(RUN), "--out", str(out), *words],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=480,
        check=False,
    )


def results(out: Path) -> dict[str, dict[str, Any]]:
    document = json.loads((out / "report.json").read_text())
    return {result["name"]: result for result in document["results"]}


@pytest.mark.timeout(500)
def test_the_whole_run_has_a_result_for_every_step_and_says_that_no_gpu_was_used(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    done = run(out, "--stand-in", "--without-torch")
    found = results(out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert tuple(found) == TITLES
    assert {result["outcome"] for result in found.values()} == {"passed"}, done.stdout
    for result in found.values():
        assert result["ran_on"][0] == "stand-in for NVML"
        assert result["checks"], result["name"]
    assert "NO GPU WAS USED" in (out / "summary.txt").read_text()
    row = found["handover"]["facts"]["pause_first_start_second"][0]
    for phase in ("save_s", "stop_s", "memory_free_s", "import_s", "context_s", "first_step_s"):
        assert row[phase] is not None, phase
    assert found["handover"]["facts"]["give_it_back"][0]["restore_s"] is not None
    assert found["forking"]["facts"]["standby_auto_give_it_back"][0]["first_step_s"] is not None
    assert found["contexts"]["facts"]["takes"]["second_context_mib"] == 300
    # The stand-in has no list of processes, as an older driver lacks the function.
    unsaid = {"not said": "Unversioned function called"}
    assert found["contexts"]["facts"]["by_process"] == unsaid
    assert found["checkpoint"]["facts"]["pauses"][0]["held_while_paused_mib"] == 3
    assert (out / "logs.tar.gz").is_file()
    assert (out / "logs" / "training" / "daemon.log").read_text()


def test_without_a_gpu_it_says_so_in_one_line(tmp_path: Path) -> None:
    env = stand_in.build(tmp_path / "nvml", with_torch=False)
    (tmp_path / "nvml" / "list").write_text("")  # a driver, and no GPU
    done = run(tmp_path / "out", LD_LIBRARY_PATH=env["LD_LIBRARY_PATH"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "make gpu: no GPU: NVML shows no GPU\n"


def test_a_mode_of_the_gpu_refuses_the_steps_that_it_makes_impossible(tmp_path: Path) -> None:
    words = ("--stand-in", "--without-torch", "--steps", "6,7")
    done = run(tmp_path / "out", *words, STAND_IN_COMPUTE_MODE="3")
    found = results(tmp_path / "out")
    assert done.returncode == 0, done.stdout
    assert found["contexts"]["outcome"] == "refused"
    assert "exclusive process" in found["contexts"]["reason"]
    assert found["checkpoint"]["outcome"] == "passed"
    run(tmp_path / "out", *words, STAND_IN_MIG="1")
    found = results(tmp_path / "out")
    assert {found[name]["outcome"] for name in ("contexts", "checkpoint")} == {"refused"}
    assert "MIG is on" in found["checkpoint"]["reason"]


def groups_of_the_step() -> set[Path]:
    """Cgroups of the attempts of the step's jobs, under any launcher of this user."""
    own = cgroup.own_group()
    if own is None:
        return set()
    return {group for name in ("parent", "leaves") for group in own.glob(f"reshape-*/{name}-*")}


def test_a_step_over_its_limit_is_ended_with_all_that_it_started_and_the_rest_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    gpu_run = load()
    inventory, _, _, _, _, contexts, _ = gpu_run.TASKS
    slow = gpu_run.Task("quarantine", "5 memory that stays in use", 4.0)
    monkeypatch.setattr(gpu_run, "TASKS", (inventory, slow, contexts))
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["gpu", "--stand-in", "--without-torch", "--out", str(out)])
    groups_before = groups_of_the_step()
    began_s = time.monotonic()
    assert gpu_run.main() == 1
    assert groups_of_the_step() - groups_before == set()
    found = results(out)
    assert found["quarantine"]["outcome"] == Outcome.TIMED_OUT
    assert "processes were killed" in found["quarantine"]["reason"]
    assert found["contexts"]["outcome"] == "passed"
    assert processes.of(f"quarantine-{os.getpid()}-") == []
    assert time.monotonic() - began_s < 60
    assert "5 memory that stays in use: its 4 s were over" in capfd.readouterr().out
