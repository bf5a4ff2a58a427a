"""Fully sharded (FSDP) on all devices of the job: each has a part of the model, all save together.

    python train_sharded.py --steps 300

A checkpoint of four devices is loaded by two, or by one: PyTorch's distributed checkpoint cuts it
anew. `job.batches` saves whole models, so this program does itself what that does: the first
process has the session, starts a process for each other device, and ends with the first of them
that fails, for the rest would wait for it. Started by hand it trains and saves nothing.
"""

import argparse
import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as parts
import torch.multiprocessing as multiprocessing
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from reshape_sidecar import session

HERE = "127.0.0.1"
"""All processes are in one container."""
BATCH = 64
"""Of all devices together: what is learned does not depend on their number."""
SAMPLES = 2048
SAVE_EVERY = 100
"""Steps between two saves that nobody asked for: all devices have to know of each."""
Publish = Callable[[Callable[[Path], None]], Any]


@dataclass(frozen=True)
class Start:
    """What each process is told: how many there are, the steps, and where they meet."""

    ranks: int
    step: int
    last: int
    checkpoint: Path | None
    port: int


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    """Points in ten dimensions and on which side of a curved surface they lie."""
    x = torch.randn(SAMPLES, 10, generator=torch.Generator().manual_seed(0))
    return x, (x.sin().sum(1, keepdim=True) > 0).float()


def share(step: int, rank: int, ranks: int) -> torch.Tensor:
    """Which samples of the batch of ``step`` are this device's; each epoch has its own order."""
    epoch, batch = divmod(step, SAMPLES // BATCH)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
    return order[batch * BATCH : (batch + 1) * BATCH][rank::ranks]


def joined(rank: int, start: Start) -> torch.device:
    """The device of this process, when all have met."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    meeting = dist.TCPStore(HERE, start.port)
    dist.init_process_group(store=meeting, rank=rank, world_size=start.ranks)
    return device


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    of_model, of_optimizer = get_state_dict(model, optimizer)
    return {"model": of_model, "optimizer": of_optimizer}


def restore(model: torch.nn.Module, optimizer: torch.optim.Optimizer, checkpoint: Path) -> None:
    """Load what all devices have saved, in parts of the present devices."""
    if not any(optimizer.state.values()):
        optimizer.state.clear()  # entries that are empty, as schedulefree's `train` makes, stay so
    kept = state_of(model, optimizer)
    parts.load(kept, checkpoint_id=checkpoint)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=kept["model"],
        optim_state_dict=kept["optimizer"],
    )


def train(rank: int, start: Start, job: session.Session | None) -> None:
    device = joined(rank, start)
    torch.manual_seed(5)
    layers = torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
    model = torch.nn.Sequential(*layers).to(device)
    fully_shard(model, mesh=init_device_mesh(device.type, (start.ranks,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    state = functools.partial(state_of, model, optimizer)
    if start.checkpoint is not None:
        restore(model, optimizer, start.checkpoint)
    loss_of = torch.nn.BCEWithLogitsLoss()
    x, y = samples()
    for step in range(start.step, start.last):
        mine = share(step, rank, start.ranks)
        optimizer.zero_grad()
        loss = loss_of(model(x[mine].to(device)), y[mine].to(device))
        loss.backward()
        optimizer.step()
        mean = loss.detach() / start.ranks
        dist.all_reduce(mean)
        if job is not None:
            print(f"step {step + 1} loss {mean.item():.6f}", flush=True)
            job.step_done(loss=mean.item())  # without a way to save: that is all devices' affair
        asked = told(job is not None and job.should_stop())
        if asked or (step + 1) % SAVE_EVERY == 0:
            saved = save_together(state, job and job.save)
            if asked and saved and job is not None:
                job.leave()
    save_together(state, job and job.finished)
    dist.destroy_process_group()


def told(what: Any) -> Any:
    """Return the first device's value on every device."""
    message = [what]
    dist.broadcast_object_list(message)
    return message[0]


def save_together(state: Callable[[], dict[str, Any]], publish: Publish | None) -> Any:
    """Each device writes its part into the folder that the first one's session gives, each time it
    gives one: a save may be tried again. The first device gets what ``publish`` says."""

    def write(folder: Path) -> None:
        told(folder)
        parts.save(state(), checkpoint_id=folder)

    if publish is not None:
        done = publish(write)
        told(None)
        return done
    while (folder := told(None)) is not None:
        parts.save(state(), checkpoint_id=folder)
    return None


def main(steps: int) -> NoReturn:
    """Train on all devices: in this process, and in those that it starts."""
    job = session.start(total_steps=steps)
    if job.checkpoint is not None:
        print(f"going on after step {job.step}", flush=True)
    meeting = dist.TCPStore(HERE, 0, is_master=True, wait_for_workers=False)  # takes a free port
    ranks = torch.cuda.device_count() or job.devices
    last = steps if job.total_steps is None else job.total_steps
    start = Start(ranks, job.step, last, job.checkpoint, meeting.port)
    others = multiprocessing.start_processes(
        another, args=(start,), nprocs=ranks - 1, join=False, daemon=True
    )
    watching = threading.Thread(target=watch, args=(others,), daemon=True)
    watching.start()
    train(0, start, job)
    watching.join()
    end()


def another(index: int, start: Start) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # comes when the first one has left: end silently
    train(index + 1, start, None)
    end()


def watch(others: multiprocessing.ProcessContext) -> None:
    """End this process with the first of the others that fails."""
    try:
        while not others.join():
            pass
    except Exception:
        traceback.print_exc()
        os._exit(1)


def end() -> NoReturn:
    """End this process, but not by Python's own end: PyTorch 2.15 keeps the threads of a process
    group, and aborts there now and then."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    main(parser.parse_args().steps)
