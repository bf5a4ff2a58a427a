"""A checkpoint folder full of traps costs its reader neither time nor memory, and stops at once."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from reshape_sidecar import checkpoints, foreign, takeover
from reshape_sidecar.agent.reads import Reads
from reshape_sidecar.claims import CheckpointError
from tests.support import hostile_folders

MEMORY_BYTES_MAX = 100 << 20
DEADLINE_S = 0.2
ANSWER_S = 3.0


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def refused_or_read(reads: Reads, folder: Path) -> None:
    for work in (
        partial(checkpoints.newest, folder, None),
        partial(takeover.take_over, folder, "job-2"),
        partial(checkpoints.claim, folder, 2, "job-1"),
    ):
        try:
            await reads.run(work)
        except (foreign.Stopped, CheckpointError, OSError):
            continue


@pytest.mark.parametrize("kind", hostile_folders.KINDS)
def test_a_hostile_folder_is_left_in_time_and_with_little_memory(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "checkpoints"
    checkpoints.claim(folder, 1, "job-1")
    hostile_folders.KINDS[kind](folder)
    began_s, before = time.monotonic(), peak_bytes()
    reads = Reads(None, lambda: began_s + DEADLINE_S)
    asyncio.run(refused_or_read(reads, folder))
    assert time.monotonic() - began_s < 3 * ANSWER_S
    assert peak_bytes() - before < MEMORY_BYTES_MAX
    for left in [thread for thread in threading.enumerate() if thread.name == "read"]:
        left.join()  # what is removed must not change meanwhile
    foreign.remove_tree(folder)
    assert not os.path.lexists(folder)


def test_a_read_that_hangs_in_the_kernel_is_left_behind() -> None:
    hangs = threading.Event()
    began_s = time.monotonic()
    reads = Reads(None, lambda: began_s + DEADLINE_S)
    try:
        with pytest.raises(foreign.Stopped, match="hangs"):
            asyncio.run(reads.run(lambda stop: hangs.wait(60)))
        assert time.monotonic() - began_s < ANSWER_S
    finally:
        hangs.set()


def test_a_read_without_a_deadline_goes_on_to_its_end() -> None:
    reads = Reads(None, lambda: None)

    def work(stop: object) -> int:
        time.sleep(0.5)
        return 7

    assert asyncio.run(reads.run(work)) == 7


def test_a_link_in_a_removed_folder_leads_to_no_loss(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "gone" / "closed").mkdir(mode=0)
    foreign.remove_tree(tmp_path / "gone")
    assert not (tmp_path / "gone").exists()
    assert (tmp_path / "kept" / "file").exists()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    foreign.remove_tree(tmp_path / "link")
    assert (tmp_path / "kept" / "file").exists()
    assert not (tmp_path / "link").is_symlink()
