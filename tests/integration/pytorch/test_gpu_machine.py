"""The programs of `make gpu` with a real PyTorch, on the stand-ins for NVML and the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.support.gpu_bed import RUN
from tests.support.pytorch_bed import PYTHON

pytestmark = pytest.mark.pytorch


@pytest.mark.timeout(400)
def test_the_job_of_the_run_trains_with_pytorch(tmp_path: Path) -> None:
    assert PYTHON.exists(), "there is no PyTorch: make test-pytorch installs it for these tests"
    command = [str(PYTHON), str(RUN), "--stand-in", "--steps", "2", "--out", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": sysconfig.get_paths()["purelib"]}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=380, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {r["name"]: r for r in json.loads((tmp_path / "report.json").read_text())["results"]}
    assert found["inventory"]["facts"]["torch"]["version"]
    training = found["training"]
    assert training["outcome"] == "passed"
    assert training["ran_on"][-1] == "CPU steps of PyTorch"
    assert training["facts"]["start"]["import_s"] > 0  # little, if a zygote has imported it
    assert training["facts"]["reported"]["loss"] > 0
