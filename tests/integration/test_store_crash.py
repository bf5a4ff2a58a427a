"""A writing process is killed at any moment: what it was told is kept, is kept.

kill -9 takes the process and leaves the system's page cache, so this proves the order of writes
and the recovery of the write-ahead log, not that the disk has synced; that rests on
synchronous=FULL, which is read back at open.
"""

from __future__ import annotations

import asyncio
import random
import select
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reshape_controller.store.digest import GENESIS, chain_digest
from reshape_controller.store.protocol import StoreError
from reshape_controller.store.sqlite.recover import check
from reshape_controller.store.sqlite.store import SqliteStore

ROOT = Path(__file__).parents[2]
KILLS = 12
WAIT_S = 60.0

WRITER = """
import asyncio, sys
from pathlib import Path
from tests.support.store_values import changes, job_row, record
from reshape_controller.store.protocol import InboxItem
from reshape_controller.store.sqlite.store import SqliteStore

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + chr(10))
    sys.stdout.flush()

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    await store.open()
    seq, digest = 0, ""
    projected = await store.projected_seq()
    async for found in store.read(0):
        seq, digest = found.seq, found.digest
        if seq > projected:  # what every controller repairs at its start
            await store.project(changes(seq, job_row(seq % 50, seq)))
    say("open", seq)
    while True:
        seq += 1
        made = record(seq, digest, size=seq * 997 % 9000)
        await store.append(made)
        say("appended", seq)
        digest = made.digest
        await store.put_request(InboxItem(f"r{seq}", "submit", "{}"))
        say("asked", seq)
        await store.project(changes(seq, job_row(seq % 50, seq)))
        say("projected", seq)
        if seq % 7 == 0:
            await store.write_snapshot(seq, tuple("s" * 50_000 for _ in range(4)))
            say("snapshot", seq)
        await store.acknowledge((f"r{seq - 3}",))
        say("taken", seq - 3)

asyncio.run(main())
"""


@contextmanager
def writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def opened(process: subprocess.Popen[str]) -> int:
    """Wait until the writer has the store open; the seq at which it begins."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], WAIT_S)[0], "the writer does not start"
    line = process.stdout.readline()
    assert line.startswith("open "), process.communicate()[1]
    return int(line.split()[1])


@dataclass
class Told:
    """What the writers were told is kept: all seqs of each kind, over all kills."""

    seqs: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    kills: int = 0

    def take(self, text: str) -> None:
        """Add a writer's words; a torn last line was never said."""
        for line in text[: text.rfind("\n") + 1].splitlines():
            kind, seq = line.split()
            self.seqs[kind].add(int(seq))

    def newest(self, kind: str) -> int:
        return max(self.seqs[kind], default=0)


async def verify(path: Path, told: Told) -> int:
    """Everything that was acknowledged is there and fits together. The log's last seq."""
    store = SqliteStore(path)
    await store.open()
    try:
        previous, last = GENESIS, 0
        async for found in store.read(0):
            assert found.seq == last + 1
            assert found.digest == chain_digest(previous, found)
            previous, last = found.digest, found.seq
        # One more may be there than was acknowledged: killed between the commit and the word.
        assert told.newest("appended") <= last <= told.newest("appended") + 1
        projected = await store.projected_seq()
        assert told.newest("projected") <= projected <= last
        assert len(await store.history(None, limit=10**6)) == 2 * projected
        snapshot = await store.latest_snapshot()
        assert told.newest("snapshot") <= (snapshot[0] if snapshot else 0) <= last
        assert snapshot is None or snapshot[1] == ("s" * 50_000,) * 4
        waiting = {int(item.id[1:]) for item in await store.requests(10_000)}
        assert not told.seqs["taken"] & waiting
        gone_unsaid = told.seqs["asked"] - told.seqs["taken"] - waiting
        assert len(gone_unsaid) <= told.kills, "requests were lost"
        return last
    finally:
        await store.close()


def test_everything_acknowledged_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"
    dice = random.Random()
    told, last = Told(), 0
    for _ in range(KILLS):
        with writer(path) as process:
            assert opened(process) == last
            time.sleep(dice.uniform(0.0, 0.25))  # the random moment, not a wait for anything
            process.send_signal(signal.SIGKILL)
            text, errors = process.communicate(timeout=WAIT_S)
            assert errors == ""
        assert process.returncode == -signal.SIGKILL
        told.take(text)
        told.kills += 1
        last = asyncio.run(verify(path, told))
        told.seqs["appended"].add(last)
    assert last > KILLS, "the writer hardly wrote; the test shows nothing"
    assert check(path).problems == ()


def test_a_store_that_was_killed_in_its_creation_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"
    (tmp_path / "reshape.db.new").write_bytes(b"half of a new store")
    (tmp_path / "reshape.db.new-wal").write_bytes(b"and its log")
    assert asyncio.run(verify(path, Told())) == 0
    assert sorted(f.name for f in tmp_path.iterdir()) == ["reshape.db", "reshape.db.lock"]


def test_a_second_controller_is_kept_out_until_the_first_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"

    async def attempt() -> int:
        store = SqliteStore(path)
        await store.open()
        try:
            return await store.last_seq()
        finally:
            await store.close()

    with writer(path) as process:
        opened(process)
        with pytest.raises(StoreError, match=rf"another controller.*pid {process.pid}"):
            asyncio.run(attempt())
    assert asyncio.run(attempt()) >= 0
