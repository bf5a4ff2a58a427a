"""What the step after the last save costs a stop: pairs with the proof and without, in turns.

    .venv/bin/python benchmarks/proof_costs.py [--width 64] [--pairs 9] [--gpus 2]

Stops a loop by `job.batches` at the same step, from the request to the end of its processes, with
`RESHAPE_PROOF` not set and `off`. Prints the median step, the median of the differences with its
interval, what is left of it beyond one step, and the peak of memory of a rank. `--width 4096` is a
model of 34 million weights. The starts are forks of a process that has imported PyTorch.

Needs .venv-pytorch, and no GPU.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from reshape_controller.replay.rows import interval  # noqa: E402
from reshape_sidecar.wire import EXIT_SAVED  # noqa: E402
from tests.support.ranks_bed import Forks, ScriptBed  # noqa: E402

SCRIPT = """
import resource, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from reshape_sidecar import session

width = int(sys.argv[1])
job = session.start()
torch.distributed.init_process_group("gloo")
layers = [nn.Linear(64, width), nn.ReLU()]
layers += [nn.Linear(width, width) for _ in range(2 if width > 1000 else 20)]
torch.manual_seed(3)
net = nn.parallel.DistributedDataParallel(nn.Sequential(*layers, nn.Linear(width, 8)))
optimizer = torch.optim.AdamW(net.parameters())
loader = DataLoader(TensorDataset(torch.randn(4096, 64), torch.randint(8, (4096,))), batch_size=16)
at = time.perf_counter()
for x, y in job.batches(loader, model=net, optimizer=optimizer, epochs=100):
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.02)
    now, peak = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print("step", job.step + 1, now - at, peak, flush=True)
    at = now
"""
STOP_AT, STEPS_MORE = 12, 4
STEP = re.compile(r"^step (\d+) (\S+) (\d+)$", re.M)


@dataclass(frozen=True, slots=True)
class StopCost:
    """One stop."""

    took_s: float
    """From the request to the end of the last process."""
    step_s: float
    """Median of the steps before."""
    peak_bytes: int


def stop(forks: Forks, script: Path, width: int, gpus: int, proof: str) -> StopCost:
    """Train to a step and stop there; go on, so that a first step is compared, and stop again."""
    with tempfile.TemporaryDirectory(prefix="proof-") as folder:
        bed = ScriptBed(forks, Path(folder), str(script), str(width), step_s=0.0)
        bed.variables = {"RESHAPE_PROOF": proof}
        took_s = stopped(bed, forks, gpus, STOP_AT)
        made = int(STEP.findall(bed.printed)[-1][0])
        stopped(bed, forks, gpus, made + STEPS_MORE)
        steps = STEP.findall(bed.printed)
        assert ("first step agrees" in bed.printed) is not bool(proof), bed.printed
    step_s = statistics.median(float(seconds) for _, seconds, _ in steps[3:STOP_AT])
    return StopCost(took_s, step_s, 1024 * int(steps[-1][2]))


def stopped(bed: ScriptBed, forks: Forks, gpus: int, step: int) -> float:
    """Start, and ask for a stop at ``step``; return the seconds from there to the end."""
    pid = bed.begins(gpus)
    while f"step {step} " not in bed.printed:
        time.sleep(0.005)
    began_s = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    assert forks.code() == EXIT_SAVED, bed.printed
    return time.monotonic() - began_s


def main() -> None:
    """Stop in turns; print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--gpus", type=int, default=2)
    given = parser.parse_args()
    forks = Forks("torch.distributed.optim", "torch.utils.data")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "loop.py"
        script.write_text(SCRIPT)
        pairs = [
            tuple(stop(forks, script, given.width, given.gpus, proof) for proof in ("", "off"))
            for _ in range(given.pairs)
        ]
    forks.end()
    step_s = statistics.median(one.step_s for pair in pairs for one in pair)
    plain_s = statistics.median(plain.took_s for _, plain in pairs)
    more = interval([proved.took_s - plain.took_s for proved, plain in pairs])
    peak = interval([proved.peak_bytes / plain.peak_bytes for proved, plain in pairs])
    print(
        f"{given.pairs} pairs, width {given.width}, {given.gpus} GPUs: a step {step_s:.3f} s, a"
        f" stop {plain_s:.3f} s; with its proof {more.median:.3f} s more ({more.low:.3f} to"
        f" {more.high:.3f}), {more.median - step_s:.3f} s beyond one step; peak of memory"
        f" {peak.median:.3f} times ({peak.low:.3f} to {peak.high:.3f})"
    )


if __name__ == "__main__":
    main()
