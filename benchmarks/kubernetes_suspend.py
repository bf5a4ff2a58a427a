"""Time from the end of a suspended job's pod to idle GPUs, as another controller sees it.

    python benchmarks/kubernetes_suspend.py --rounds 10

On the test cluster a job trains on all GPUs of a node. In each round its Job is suspended, as a
queueing system's preemption does, and resumed. Prints, in seconds, the times from the suspension to
the end of the pod and from there to idle GPUs; writes out/bench/kubernetes_suspend.json. Exits with
1 if GPUs became idle later than 15 s after the end of the pod.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.kubernetes.grounds import grounds  # noqa: E402
from tests.kubernetes.namespace import eventually, namespace  # noqa: E402
from tests.kubernetes.pod_daemon import PodDaemon  # noqa: E402
from tests.kubernetes.test_guest import FOUR, IDLE_WITHIN_S, idle, suspend  # noqa: E402


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "bench")
    options = parser.parse_args()
    rows, loads = measured(options.rounds)
    found = {"cores": len(os.sched_getaffinity(0)), "load_1m": loads, "rows": rows}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "kubernetes_suspend.json").write_text(json.dumps(found, indent=2) + "\n")
    print(f"load {min(loads):.1f} to {max(loads):.1f}")
    for number, name in enumerate(("suspension to the end of the pod", "from there to idle GPUs")):
        values = [row[number] for row in rows]
        print(f"{name}: {mean(values):.1f} ({min(values):.1f} to {max(values):.1f}) s")
    return 1 if max(row[1] for row in rows) > IDLE_WITHIN_S else 0


def measured(rounds: int) -> tuple[list[tuple[float, float]], list[float]]:
    """Return both times of each round, and the load of the machine at its end."""
    with (
        tempfile.TemporaryDirectory(prefix="reshape-bench-") as scratch,
        grounds() as ground,
        namespace(ground, f"reshape-bench-{os.getpid()}", Path(scratch) / "shared") as space,
    ):
        Path(scratch).chmod(0o755)
        daemon = PodDaemon(Path(scratch), space)
        daemon.unused = ground.nodes[1:]
        try:
            daemon.up()
            job = daemon.submit_counting("suspended", [FOUR], 1_000_000)
            rows, loads = [], []
            for _ in range(rounds):
                daemon.trains(job, FOUR)
                rows.append(_round(daemon, job))
                loads.append(os.getloadavg()[0])
                suspend(daemon, job, False)
            return rows, loads
        finally:
            daemon.close()


def _round(daemon: PodDaemon, job: str) -> tuple[float, float]:
    begin_s = time.monotonic()
    suspend(daemon, job, True)
    eventually("its pod is gone", lambda: not daemon.pods_of(job))
    gone_s = time.monotonic()
    eventually("idle GPUs", lambda: idle(daemon) == FOUR)
    return gone_s - begin_s, time.monotonic() - gone_s


if __name__ == "__main__":
    sys.exit(main())
