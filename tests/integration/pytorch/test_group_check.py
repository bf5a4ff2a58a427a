"""A rank that trains without the others ends the start, with the remedy in its error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pytorch_bed import PYTHON
from tests.support.rank_runs import RankRun

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

LOOP = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank = os.environ["RANK"]
model = torch.nn.Linear(2, 1)
if rank in {joined}:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    print(f"rank {{rank}} step {{step + 1}}", flush=True)
"""


def started(folder: Path, joined: str) -> RankRun:
    (folder / "train.py").write_text(LOOP.format(joined=joined))
    return RankRun(folder, (PYTHON, "train.py"), 2)


def test_a_loop_of_ranks_that_have_not_met_ends_before_its_first_step(tmp_path: Path) -> None:
    run = started(tmp_path, "()")
    try:
        assert run.ends() == 1
        assert run.steps() == {}, "no step is made"
        assert "of 2 trains without the others: it has not joined the process group" in run.text
        assert "or write `processes: one` in the job's record" in run.text
    finally:
        run.kill()


def test_a_loop_of_ranks_that_have_met_is_left_alone(tmp_path: Path) -> None:
    run = started(tmp_path, "('0', '1')")
    try:
        assert run.ends() == 0, run.text
        assert run.steps() == {0: 3, 1: 3}
        assert "reshape" not in run.text
    finally:
        run.kill()
