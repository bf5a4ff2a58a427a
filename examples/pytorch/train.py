"""A loop under DistributedDataParallel, elastic by three lines: the import, `job`, `job.batches`.

torchrun --nproc-per-node=2 train.py --epochs 4

Started by hand it trains from the beginning and saves nothing.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from reshape_sidecar import session

SAMPLES = 512
BATCH = 16
"""Of all GPUs together."""


class Points(Dataset):
    """Points in ten dimensions and on which side of a curved surface they lie, with noise."""

    def __init__(self) -> None:
        self.x = torch.randn(SAMPLES, 10, generator=torch.Generator().manual_seed(0))
        self.y = (self.x.sin().sum(1, keepdim=True) > 0).float()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[index] + 0.05 * torch.randn(10), self.y[index]


def main(job: session.Session, options: argparse.Namespace) -> None:
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    dist.init_process_group()
    torch.manual_seed(5)
    layers = torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Dropout(options.dropout)
    network = torch.nn.Sequential(*layers, torch.nn.Linear(32, 1)).to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    steps = options.epochs * SAMPLES // BATCH // options.accumulate
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    data = Points()
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=options.workers)
    loss_of = torch.nn.BCEWithLogitsLoss()
    if job.step and dist.get_rank() == 0:
        print(f"going on after step {job.step}", flush=True)
    for epoch in job.epochs(options.epochs):
        batches = job.batches(loader, model=model, optimizer=optimizer, scheduler=scheduler)
        for number, (x, y) in enumerate(batches):
            x, y = x.to(device), y.to(device)
            loss = loss_of(model(x), y)
            (loss / options.accumulate).backward()
            if (number + 1) % options.accumulate == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            mean = loss.detach() / dist.get_world_size()
            dist.all_reduce(mean)
            if dist.get_rank() == 0:
                print(f"step {job.step + 1} loss {mean.item():.9g}", flush=True)
            job.metrics(loss=mean.item())
        job.evaluated("accuracy", accuracy(network, data.x.to(device), data.y.to(device)))
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1} is over", flush=True)


def accuracy(network: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Of all points without noise: each process gets the same, and judges as the others do."""
    network.eval()
    with torch.no_grad():
        right = (network(x) > 0) == (y > 0.5)
    network.train()
    return right.float().mean().item()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--workers", type=int, default=2, help="of the loader")

if __name__ == "__main__":
    main(session.start(), parser.parse_args())
