"""A process for each device of the job: this one, which alone has the session, and those it starts.

Does: starts them, tells each where training begins, and ends with the first that fails, for the
rest would wait for it. Never: trains. A script hands its own ``train`` to ``run``.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from reshape_sidecar.session import Session

HERE = "127.0.0.1"
"""All processes are in one container."""


@dataclass(frozen=True)
class Start:
    """The task of each process: the number of processes, the first and last step, and the place
    where they meet, if they have not met."""

    ranks: int
    step: int
    last: int
    checkpoint: Path | None
    port: int | None = None
    evaluate_every: int = 0
    """Steps between two evaluations; 0: none."""


Train = Callable[[int, Start, Session | None], None]
"""Trains on one device, given its number; the first one gets the session."""


def run(train: Train, job: Session, steps: int, evaluate_every: int = 0) -> NoReturn:
    """Train on all devices of ``job``, to its length or to ``steps``, and end."""
    if job.checkpoint is not None:
        print(f"going on after step {job.step}", flush=True)
    meeting = dist.TCPStore(HERE, 0, is_master=True, wait_for_workers=False)  # takes a free port
    ranks = torch.cuda.device_count() or job.devices
    last = steps if job.total_steps is None else job.total_steps
    start = Start(ranks, job.step, last, job.checkpoint, meeting.port, evaluate_every)
    others = multiprocessing.start_processes(
        _another, args=(train, start), nprocs=ranks - 1, join=False, daemon=True
    )
    watching = threading.Thread(target=_watch, args=(others,), daemon=True)
    watching.start()
    train(0, start, job)
    watching.join()
    end()


def joined(rank: int, start: Start) -> torch.device:
    """The device of this process, when all have met."""
    if torch.cuda.is_available():
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
        torch.set_num_threads(1)
    meeting = dist.TCPStore(HERE, start.port)
    dist.init_process_group(store=meeting, rank=rank, world_size=start.ranks)
    return device


def end() -> NoReturn:
    """End this process, but not by Python's own end: PyTorch 2.15 keeps the threads of a process
    group that DistributedDataParallel had, and aborts there now and then."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _another(index: int, train: Train, start: Start) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # comes when the first one has left: end silently
    train(index + 1, start, None)
    end()


def _watch(others: multiprocessing.ProcessContext) -> None:
    try:
        while not others.join():
            pass
    except Exception:
        traceback.print_exc()
        os._exit(1)
