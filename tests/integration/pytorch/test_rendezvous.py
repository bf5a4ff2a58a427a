"""Ranks meet at a port that is theirs from before their start, so no other process can take it."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.support.pytorch_bed import PYTHON
from tests.support.rank_runs import RankRun

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

THIEF = """
import os, socket, subprocess, sys
import torch
import torch.distributed as dist

rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())


CHILD = '''
from pathlib import Path
files = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.exists()]
print("sockets of a child:", sum(name.startswith("socket:") for name in files))
'''
for reuse in (0, 1):
    thief = socket.socket()
    thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    try:
        thief.bind(("127.0.0.1", port))
        thief.listen()
        say("stolen by rank", rank)
    except OSError:
        say("not stolen by rank", rank)
if rank == 0:
    subprocess.run([sys.executable, "-c", CHILD], close_fds=False, check=True)
for number in (1, 2):
    dist.init_process_group("gloo")
    total = torch.tensor([rank + 1])
    dist.all_reduce(total)
    say("rank", rank, "meeting", number, "total", int(total))
    dist.barrier()
    dist.destroy_process_group()
say("rank", rank, "met at", port)
"""


def test_a_process_that_takes_the_port_of_the_start_breaks_none(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(THIEF)
    with socket.create_server(("127.0.0.1", 0)) as thief:
        stolen = thief.getsockname()[1]
        run = RankRun(tmp_path, (PYTHON, "train.py"), 2, port=stolen)
        try:
            assert run.ends() == 0, run.text
        finally:
            run.kill()
    assert re.findall(r"^(?:not )?stolen.*", run.text, re.M).count("not stolen by rank 0") == 2
    assert "\nstolen" not in f"\n{run.text}", "the port is the ranks' before they meet"
    assert "sockets of a child: 0" in run.text
    met = re.findall(r"rank (\d) meeting (\d) total (\d)", run.text)
    assert sorted(met) == [("0", "1", "3"), ("0", "2", "3"), ("1", "1", "3"), ("1", "2", "3")]
    assert f"met at {stolen}" not in run.text
