"""Costs of `processes: per-gpu` to a PyTorch loop: each step, a stop, a save and a restore.

    .venv-pytorch/bin/python benchmarks/rank_costs.py [--steps 400] [--megabytes 1,64,256]

Does: trains a small model by ``job.batches`` with and without a session on one processor, in turn,
and times what the loop adds to a step; publishes and restores states of some sizes; stops a group
of two ranks. Needs PyTorch, and no GPU. Figures are in docs/training.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "sidecar")]

from reshape_sidecar.wire import EXIT_SAVED  # noqa: E402
from tests.support.rank_runs import RankRun  # noqa: E402

STEP_S = 0.02
"""The step that the cost of the hook is compared with."""
ROUNDS = 10
STOPPED = """
import os, signal, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from reshape_sidecar import session

job = session.start()
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(6400, 64)), batch_size=64)
for batch in job.batches(loader, model=model, optimizer=optimizer, epochs=1000):
    loss = model(batch[0]).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if job.step == 20 and dist.get_rank() == 0:
        print("asks", time.monotonic(), flush=True)
        os.kill(os.getppid(), signal.SIGTERM)
"""


@contextmanager
def session_in(folder: Path) -> Iterator[Any]:
    """Yield a session with a checkpoint folder, as in a job on one GPU."""
    os.environ |= {
        "RESHAPE_JOB": "a",
        "RESHAPE_ATTEMPT": "1",
        "RESHAPE_GENERATION": "1",
        "RESHAPE_DEVICES": "gpu-0",
        "RESHAPE_CHECKPOINTS": str(folder),
    }
    from reshape_sidecar import session

    yield session.start()


def hook_cost(steps: int) -> dict[str, float]:
    """Return what ``job.batches`` adds to a step: microseconds of the processor, and percent."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(steps * 4, 64))
    loader = DataLoader(data, batch_size=4, shuffle=True)
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

    def train(batches: Any) -> float:
        gc.collect()  # a collection of all that PyTorch has takes longer than these steps
        began_s = time.thread_time()  # processor time: other programs do not count
        for (batch,) in batches:
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return (time.thread_time() - began_s) / steps

    without, with_job = [], []
    gc.disable()
    for _ in range(ROUNDS):
        without.append(train(loader))
        with tempfile.TemporaryDirectory() as name, session_in(Path(name)) as job:
            parts = {"model": model, "optimizer": optimizer}
            epoch = iter(job.epochs(2))
            next(epoch)
            with_job.append(train(job.batches(loader, **parts)))
    gc.enable()
    added_s = statistics.median(with_job) - statistics.median(without)
    return {
        "step_us": round(added_s * 1e6, 1),
        "of_20_ms_percent": round(added_s / STEP_S * 100, 3),
    }


def save_cost(megabytes: int) -> dict[str, float]:
    """Return seconds to publish and to restore a state of this size."""
    import torch

    from reshape_sidecar import checkpoints
    from reshape_sidecar.pytorch.loop_state import Parts, Position

    weights = torch.nn.Linear(1024, megabytes * 256, bias=False)
    optimizer = torch.optim.SGD(weights.parameters(), lr=0.1)
    parts = Parts(weights, optimizer, None, None)
    save_s, restore_s = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            checkpoints.claim(folder, 1, "a")
            began_s = time.perf_counter()
            found = checkpoints.publish(
                folder,
                step=1,
                epoch=0,
                attempt=1,
                generation=1,
                write=lambda path: parts.save(path, Position(0, 1)),
                complete=False,
                job="a",
            )
            save_s.append(time.perf_counter() - began_s)
            began_s = time.perf_counter()
            parts.load(found.path)
            restore_s.append(time.perf_counter() - began_s)
    return {
        "megabytes": megabytes,
        "save_s": round(statistics.median(save_s), 3),
        "restore_s": round(statistics.median(restore_s), 3),
    }


def stop_cost() -> dict[str, float]:
    """Return seconds from the request to the end of two ranks, and to the end of their parent."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(STOPPED)
        run = RankRun(folder, (sys.executable, "train.py"), gpus=2)
        assert run.ends() == EXIT_SAVED, run.text
        ended_s = time.monotonic()
        return {"stop_s": round(ended_s - float(run.text.split()[1]), 3)}


def main() -> None:
    """Print a line of JSON for each cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--megabytes", default="1,64,256")
    asked = parser.parse_args()
    print(json.dumps({"load": os.getloadavg()[0], **hook_cost(asked.steps)}), flush=True)
    for megabytes in map(int, asked.megabytes.split(",")):
        print(json.dumps(save_cost(megabytes)), flush=True)
    for _ in range(3):
        print(json.dumps(stop_cost()), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
