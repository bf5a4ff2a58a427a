"""DistributedDataParallel over the workers of a job (`workers: 2`), a container for each.

    torchrun --nproc-per-node=2 train_workers.py --steps 300

Started by hand it trains from the beginning and saves nothing.
"""

import argparse

import torch
import torch.distributed as dist
from devices import Start, end
from train import train_on

from reshape_sidecar import session

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    job = session.start(total_steps=steps, save_every_steps=50)
    if job.checkpoint is not None:
        print(f"going on after step {job.step}", flush=True)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group()  # each start finds anew where, as whom, and among how many
    start = Start(dist.get_world_size(), job.step, job.total_steps or steps, job.checkpoint)
    train_on(device, dist.get_rank(), start, job)  # after each step all of them may save
    end()
