"""A loop by `job.batches` whose model, optimizer, schedule and loader `accelerate` has prepared."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.data_loader import skip_first_batches
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset

from reshape_sidecar import session

SAMPLES, BATCH = 128, 16


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--refused", default="")
    parser.add_argument("--seedable", action="store_true")
    arguments = parser.parse_args()
    job = session.start()
    config = DataLoaderConfiguration(
        use_seedable_sampler=arguments.seedable,
        dispatch_batches=arguments.refused == "dispatched",
    )
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=arguments.accumulate,
        dataloader_config=config,
    )
    torch.manual_seed(7)
    inputs = torch.randn(SAMPLES, 8)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model: Any = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    )
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.02)
    schedule: Any = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 24)
    loader: Any = DataLoader(data, batch_size=BATCH, shuffle=True)
    torch.manual_seed(100 + job.step)  # another seed at each start
    model, optimizer, schedule, loader = accelerator.prepare(model, optimizer, schedule, loader)
    if arguments.refused == "skipped":
        loader = skip_first_batches(loader, 2)
    parts = {"model": model, "optimizer": optimizer, "scheduler": schedule}
    for x, y in job.batches(loader, **parts, epochs=3):
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        rate, mean = schedule.get_last_lr()[0], accelerator.reduce(loss.detach(), "mean").item()
        seen = accelerator.gather_for_metrics(x.sum(1)).sum().item()
        if accelerator.is_main_process:
            print(f"step {job.step} loss {mean:.9g} rate {rate:.9g} seen {seen:.5g}", flush=True)
    if accelerator.is_main_process:
        print(f"ends at step {job.step}", flush=True)


if __name__ == "__main__":
    main()
