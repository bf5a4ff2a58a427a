"""Every phase of a reshape, measured on the demo's real TensorFlow jobs.

    python benchmarks/reshape_phases.py

Prints one row per reshape of one run of the demo: what the policy took to decide, save, stop, what
the SideCar added, import, build, restore, first step; and the rest: the time from the append of the
decision to the end of the first step that is neither save, stop nor process start. No phase belongs
to an orchestrator, because none takes part. Exits with 1 when the rest is more than 1 s.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "benchmarks" / "reshape_phases"
REST_MAX_S = 1.0
COLUMNS = (
    "save_s", "stop_s", "sidecar_s", "import_s", "build_s", "restore_s", "position_s",
    "first_step_s", "total_s", "rest_s",
)  # fmt: skip


def main() -> int:
    """Run the demo and print its phases; the exit code."""
    demo = ROOT / "examples" / "demo" / "demo.py"
    load_before = os.getloadavg()[0]
    subprocess.run(
        [sys.executable, str(demo), "--preset", "adaptive", "--out", str(OUT)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    summary = json.loads((OUT / "summary.json").read_text())
    (run,) = summary["costs"]["measured"]["presets"]["adaptive"]["runs"]
    log = (OUT / "measured" / "adaptive" / "daemon.log").read_text()
    decisions_ms = re.findall(r"decide_ms=([\d.]+)", log)
    print(
        f"conditions: {os.cpu_count()} cores, load {load_before:.1f} before, Python "
        f"{platform.python_version()}, one run of the demo, TensorFlow on CPU, small LeNet"
    )
    print(f"decide: {', '.join(decisions_ms)} ms (each decision of the run)")
    print("job    GPUs   " + " ".join(f"{name:>12}" for name in COLUMNS))
    for row in run["reshapes"]:
        size = f"{row['from_gpus']} to {row['to_gpus']}"
        cells = " ".join(f"{row[name] or 0.0:>12.3f}" for name in COLUMNS)
        print(f"{row['job']:<6} {size:<6} {cells}")
    if not run["reshapes"]:
        print("no reshape took place")
        return 1
    worst_s = max(row["rest_s"] for row in run["reshapes"])
    print(f"rest: at most {worst_s:.3f} s (bound {REST_MAX_S} s)")
    return 0 if worst_s <= REST_MAX_S else 1


if __name__ == "__main__":
    sys.exit(main())
