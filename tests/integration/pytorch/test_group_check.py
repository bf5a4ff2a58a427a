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
from torch.optim.optimizer import register_optimizer_step_pre_hook

rank = os.environ["RANK"]
model = torch.nn.Linear(2, 1)
if rank in {joined}:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for kind in range({own_hooks}):
    register_optimizer_step_pre_hook(
        lambda *_, kind=kind: print(f"hook {{kind}} of the script", flush=True)
    )
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    print(f"rank {{rank}} step {{step + 1}}", flush=True)
"""


def started(folder: Path, joined: str, own_hooks: int = 0) -> RankRun:
    (folder / "train.py").write_text(LOOP.format(joined=joined, own_hooks=own_hooks))
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


def test_a_loop_of_ranks_that_have_met_is_left_alone_with_its_own_hooks(tmp_path: Path) -> None:
    run = started(tmp_path, "('0', '1')", own_hooks=2)
    try:
        assert run.ends() == 0, run.text
        assert run.steps() == {0: 3, 1: 3}
        for kind in range(2):
            assert run.text.count(f"hook {kind} of the script") == 6, "at each step of each rank"
        assert "reshape" not in run.text
    finally:
        run.kill()
