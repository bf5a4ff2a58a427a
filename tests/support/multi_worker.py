"""The example of MultiWorkerMirroredStrategy as a job, and the losses that its workers print."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

from tests.support.daemon_bed import ROOT, Bed

SCRIPT = ROOT / "examples" / "multi_worker" / "train.py"
ROUNDING = 1e-5
"""By how much the losses of one batch may differ: other workers sum them in another order."""
ALONE_S = 600.0
"""Seconds for a start of TensorFlow and its steps on a slow machine."""


def record(name: str, sizes: list[int], steps: int, job_type: str) -> dict[str, Any]:
    """Return the record of a job with two workers on one host or two, whose script has ``name``."""
    return {
        "command": ["python", f"{name}.py", "--steps", str(steps)],
        "framework": "tensorflow",
        "optional_gpus": sizes,
        "workers": 2,
        "span": "any",
        "steps": steps,
        "job_type": job_type,
    }


def losses(text: str) -> list[tuple[int, float]]:
    """Return each step that a worker printed, and its loss."""
    return [(int(s), float(loss)) for s, loss in re.findall(r"^step (\d+) loss (\S+)$", text, re.M)]


def alone(bed: Bed, steps: int) -> list[tuple[int, float]]:
    """Return steps and losses of the same script without a reshape, in one process."""
    command = [sys.executable, str(SCRIPT), "--steps", str(steps)]
    done = subprocess.run(
        command, env=bed.environment(), capture_output=True, text=True, timeout=ALONE_S, check=True
    )
    return losses(done.stdout)
