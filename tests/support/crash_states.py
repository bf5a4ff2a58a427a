"""States in which a crash, a disk or a person can leave an SQLite store, and which of them a start
refuses: ``python -m tests.support.crash_states --states 2000 --seed 1``.

Does: feeds the records of a real log to a store, copies its files at several moments, damages the
copies, and opens each as a daemon does. A state is whole, refused, or it has lost only records that
its mark had not noted; anything else fails. Beside it counts which other files would have noticed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import lzma
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reshape_controller.core.commands import Launch, SetDesired
from reshape_controller.core.engine import Engine
from reshape_controller.core.record import LogRecord
from reshape_controller.live.marks import LogMarks
from reshape_controller.live.projection import changes_of
from reshape_controller.scheduling.rounds import redo
from reshape_controller.store.protocol import RolledBack, StoreError
from reshape_controller.store.sqlite.store import SqliteStore

GOLDEN = Path(__file__).parents[1] / "golden" / "store.sqlite.xz"
FRAME_BYTES = 24 + 4096
WAL_HEADER_BYTES = 32
MEMORY = Path("/dev/shm")
"""Where states are opened, if it is there: no state depends on a disk's syncs."""
MOMENTS = 12
"""Number of moments of which the files are copied."""


@dataclass(frozen=True)
class Moment:
    """The files of a store at one moment, and what other files had noted by then."""

    end: int
    """Seq of the newest acknowledged record."""
    main: bytes
    wal: bytes
    mark: bytes
    projected: int
    sidecars: int
    """Newest record that a SideCar's desired state came from."""
    attempts: int
    """Newest record that launched a container."""
    closed: int
    """Log's end at the newest clean close."""
    backup: int
    """Log's end in the newest backup."""


@dataclass(frozen=True)
class State:
    """A damaged copy of ``moment``."""

    kind: str
    moment: Moment
    main: bytes
    wal: bytes | None
    mark: bytes | None


@dataclass(frozen=True)
class Verdict:
    """What a start does with a state. ``last``: the log's end, if it opens."""

    outcome: str
    last: int | None = None
    text: str = ""


async def _golden(folder: Path) -> list[LogRecord]:
    path = folder / "golden.sqlite"
    path.write_bytes(lzma.decompress(GOLDEN.read_bytes()))
    path.chmod(0o600)
    store = SqliteStore(path)
    await store.open()
    records = [record async for record in store.read(0)]
    await store.close()
    return records


async def trace(folder: Path) -> list[Moment]:
    """Write the golden log as a daemon does; return its moments, in order."""
    records = await _golden(folder)
    home = folder / "home"
    path, mark = home / "store.sqlite", home / "store.sqlite.mark"
    every = max(1, len(records) // MOMENTS)
    store, marks, engine = SqliteStore(path), LogMarks(mark), Engine()
    await store.open()
    moments: list[Moment] = []
    noted = dict.fromkeys(("projected", "sidecars", "attempts", "closed", "backup"), 0)
    for record in records:
        await store.append(record)
        if record.seq % every == 0:  # between the append and its mark: nothing is acknowledged
            moments.append(_moment(record.seq - 1, path, mark, noted))
        marks.note(record)
        for command in record.commands:
            noted["sidecars"] = record.seq if isinstance(command, SetDesired) else noted["sidecars"]
            noted["attempts"] = record.seq if isinstance(command, Launch) else noted["attempts"]
        if record.seq % every == 0:
            moments.append(_moment(record.seq, path, mark, noted))
        await store.project(changes_of(engine, record, redo(engine, record).history))
        noted["projected"] = record.seq
        if record.seq == len(records) // 3:
            await store.write_snapshot(record.seq, tuple(engine.state.dump()))
        if record.seq == len(records) // 2:
            await store.close()
            noted["closed"] = record.seq
            await store.open()
        if record.seq == len(records) * 2 // 3:
            noted["backup"] = record.seq
    moments.append(_moment(records[-1].seq, path, mark, noted))
    await store.close()
    marks.close()
    return [moment for moment in moments if moment.end > 0]


def _moment(end: int, path: Path, mark: Path, noted: dict[str, int]) -> Moment:
    wal = path.with_name(path.name + "-wal")
    mark_bytes = mark.read_bytes() if mark.exists() else b""
    wal_bytes = wal.read_bytes() if wal.exists() else b""
    return Moment(end, path.read_bytes(), wal_bytes, mark_bytes, **noted)


def states(moments: list[Moment], count: int, dice: random.Random) -> Iterator[State]:
    """Draw damaged states: every kind equally often."""
    kinds = (_cut_at_frame, _cut_anywhere, _flipped_wal, _flipped_main, _removed, _older, _mixed)
    for number in range(count):
        moment = dice.choice(moments)
        found = kinds[number % len(kinds)](moment, moments, dice)
        if dice.random() < 0.1:  # a power cut that took the newest marks with it
            older = dice.choice([m for m in moments if m.end <= moment.end])
            found = State(f"{found.kind}, older mark", moment, found.main, found.wal, older.mark)
        yield found


def _cut_at_frame(moment: Moment, _: list[Moment], dice: random.Random) -> State:
    frames = max(0, (len(moment.wal) - WAL_HEADER_BYTES) // FRAME_BYTES)
    end = WAL_HEADER_BYTES + dice.randint(0, frames) * FRAME_BYTES
    return State("cut at a frame", moment, moment.main, moment.wal[:end], moment.mark)


def _cut_anywhere(moment: Moment, _: list[Moment], dice: random.Random) -> State:
    end = dice.randint(0, len(moment.wal))
    return State("cut anywhere", moment, moment.main, moment.wal[:end], moment.mark)


def _flipped_wal(moment: Moment, _: list[Moment], dice: random.Random) -> State:
    return State("flipped in -wal", moment, moment.main, _flip(moment.wal, dice), moment.mark)


def _flipped_main(moment: Moment, _: list[Moment], dice: random.Random) -> State:
    return State("flipped in main", moment, _flip(moment.main, dice), moment.wal, moment.mark)


def _removed(moment: Moment, _: list[Moment], dice: random.Random) -> State:
    return State("-wal removed", moment, moment.main, None, moment.mark)


def _older(moment: Moment, moments: list[Moment], dice: random.Random) -> State:
    """Both files of an earlier moment: a copy that was put back."""
    older = dice.choice([each for each in moments if each.end <= moment.end])
    return State("older files", moment, older.main, older.wal, moment.mark)


def _mixed(moment: Moment, moments: list[Moment], dice: random.Random) -> State:
    older = dice.choice([each for each in moments if each.end <= moment.end])
    return State("older main", moment, older.main, moment.wal, moment.mark)


def _flip(data: bytes, dice: random.Random) -> bytes:
    if not data:
        return data
    at = dice.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]


async def judge(state: State, folder: Path) -> Verdict:
    """Open a state as a daemon does."""
    path = folder / "store.sqlite"
    for name, data in (("", state.main), ("-wal", state.wal), (".mark", state.mark)):
        if data is not None:
            (folder / f"store.sqlite{name}").write_bytes(data)
            (folder / f"store.sqlite{name}").chmod(0o600)
    store = SqliteStore(path)
    try:
        await store.open()
        await LogMarks(path.with_name(path.name + ".mark")).check(store)
        last = 0
        async for record in store.read(0):
            last = record.seq
    except RolledBack as error:
        return Verdict("refused by the mark", error.last_seq, str(error))
    except StoreError as error:
        return Verdict("refused as damaged", text=str(error))
    finally:
        await store.close()
    if last >= state.moment.end:
        return Verdict("whole", last)
    return Verdict("lost, not noted", last)


def noted_in(mark: bytes | None) -> int:
    """Seq in a mark's bytes, read without the code under test; 0 without one."""
    if not mark:
        return 0
    lines = (mark[at : at + 512].split(b"\n")[0] for at in (0, 512))
    return max((int(line.split()[0]) for line in lines if line.strip(b"\0")), default=0)


def failure(state: State, verdict: Verdict) -> str:
    """Why a verdict is wrong; empty if it is right."""
    noted = noted_in(state.mark)
    if verdict.outcome == "lost, not noted" and (verdict.last or 0) < noted:
        return f"{state.kind}: opens at {verdict.last}, but {noted} was noted"
    if verdict.outcome == "refused by the mark" and (verdict.last or 0) >= noted:
        return f"{state.kind}: refused at {verdict.last}, although only {noted} was noted"
    return ""


def witnesses(state: State, last: int) -> list[str]:
    """The files that had noted a record after ``last``."""
    moment = state.moment
    noted = {
        "last clean close": moment.closed,
        "SideCars": moment.sidecars,
        "attempts on disk": moment.attempts,
        "newest backup": moment.backup,
        "mark": noted_in(state.mark),
    }
    return [name for name, seq in noted.items() if seq > last]


async def campaign(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Judge ``count`` states. Raises AssertionError at the first wrong verdict."""
    dice = random.Random(seed)
    moments = await trace(folder)
    outcomes: dict[str, Counter[str]] = {}
    noticed: Counter[str] = Counter()
    shorter = 0
    fast = MEMORY if MEMORY.is_dir() else folder
    for number, state in enumerate(states(moments, count, dice)):
        with tempfile.TemporaryDirectory(dir=fast) as name:
            verdict = await judge(state, Path(name))
        wrong = failure(state, verdict)
        assert not wrong, f"state {number} of seed {seed}: {wrong}"
        kind = state.kind.removesuffix(", older mark")
        outcomes.setdefault(kind, Counter())[verdict.outcome] += 1
        if verdict.last is not None and verdict.last < state.moment.end:
            shorter += 1
            names = witnesses(state, verdict.last)
            noticed.update(names)
            noticed["any but the mark"] += any(name != "mark" for name in names)
    return {
        "states": count,
        "seed": seed,
        "outcomes": {kind: dict(found) for kind, found in sorted(outcomes.items())},
        "logs shorter than acknowledged": shorter,
        "noticed by": dict(noticed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(asyncio.run(campaign(asked.states, asked.seed, Path(name))), indent=2))


if __name__ == "__main__":
    main()
