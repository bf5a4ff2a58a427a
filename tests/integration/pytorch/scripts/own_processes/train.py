"""DistributedDataParallel on all devices of the job: each has the whole model, one saves it.

    python train.py --steps 300

Started by hand it trains from the beginning and saves nothing.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from data import samples, share
from devices import Start, joined, run
from model import network
from torch.nn.parallel import DistributedDataParallel

from reshape_sidecar import session


def train(rank: int, start: Start, job: session.Session | None) -> None:
    train_on(joined(rank, start), rank, start, job)


def train_on(device: torch.device, rank: int, start: Start, job: session.Session | None) -> None:
    """One of several processes that have met. Whoever has a session calls it once per step."""
    model = network(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if start.checkpoint is not None:
        kept = torch.load(start.checkpoint / "state.pt", map_location=device)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
    on_all = DistributedDataParallel(model)
    loss_of = torch.nn.BCEWithLogitsLoss()
    x, y = samples()

    def save(folder: Path) -> None:
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(kept, folder / "state.pt")

    def is_good_enough() -> bool:
        """Let the first process judge its evaluation, for all of them end after the same step."""
        ends = torch.zeros(1, device=device)
        if job is not None:
            with torch.no_grad():
                right = (model(x.to(device)) > 0) == (y.to(device) > 0.5)
            ends += job.evaluated("accuracy", right.float().mean().item())
        dist.broadcast(ends, 0)
        return bool(ends.item())

    for step in range(start.step, start.last):
        if start.evaluate_every and step % start.evaluate_every == 0 and is_good_enough():
            break  # the record's target_accuracy is reached
        mine = share(step, rank, start.ranks)
        optimizer.zero_grad()
        loss = loss_of(on_all(x[mine].to(device)), y[mine].to(device))
        loss.backward()  # waits for all devices and takes the mean of their gradients
        optimizer.step()
        mean = loss.detach() / start.ranks
        dist.all_reduce(mean)
        if job is not None:
            print(f"step {step + 1} loss {mean.item():.6f}", flush=True)
            job.step_done(save, loss=mean.item())  # may save: the others wait in their next step
    if job is not None:
        job.finished(save)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--evaluate-every", type=int, default=0, help="steps; 0: never")
    options = parser.parse_args()
    job = session.start(total_steps=options.steps)
    run(train, job, options.steps, options.evaluate_every)
