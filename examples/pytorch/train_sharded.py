"""Fully sharded (FSDP) on all devices of the job: each has a part of the model, all save together.

    python train_sharded.py --steps 300

A checkpoint of four devices is loaded by two, or by one: PyTorch's distributed checkpoint cuts it
anew. Started by hand it trains from the beginning and saves nothing.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as parts
from data import samples, share
from devices import Start, joined, run
from model import network
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from reshape_sidecar import session

SAVE_EVERY = 100
"""Steps between two saves that nobody asked for: all devices have to know of each."""
Publish = Callable[[Callable[[Path], None]], Any]


def train(rank: int, start: Start, job: session.Session | None) -> None:
    device = joined(rank, start)
    model = network(device)
    fully_shard(model, mesh=init_device_mesh(device.type, (start.ranks,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def state() -> dict[str, Any]:
        of_model, of_optimizer = get_state_dict(model, optimizer)
        return {"model": of_model, "optimizer": of_optimizer}

    if start.checkpoint is not None:
        kept = state()
        parts.load(kept, checkpoint_id=start.checkpoint)
        set_state_dict(
            model,
            optimizer,
            model_state_dict=kept["model"],
            optim_state_dict=kept["optimizer"],
        )
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    run(train, session.start(total_steps=steps), steps)
