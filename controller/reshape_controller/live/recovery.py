"""The engine as the log left it: the newest snapshot, then every record after it.

Does: redoes the recorded rounds (no policy decides again), repairs projections that are behind the
log, and compares the resulting commands with the recorded ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.engine import Engine
from reshape_controller.core.state import State
from reshape_controller.live.projection import changes_of, profile_row
from reshape_controller.scheduling.rounds import redo
from reshape_controller.store.conventions import other_version
from reshape_controller.store.digest import GENESIS
from reshape_controller.store.protocol import Changes, ProfileRow, Store, StoreCorrupt
from reshape_sidecar import codec


@dataclass(frozen=True, slots=True)
class Recovered:
    """The engine at the end of the log, and the position there."""

    engine: Engine
    seq: int
    digest: str
    epoch: int
    snapshot_seq: int
    mismatches: tuple[int, ...]
    """Seqs of records whose commands this version would not repeat."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Start of the readable log: nothing, or the snapshot at ``seq``."""

    seq: int = 0
    parts: tuple[str, ...] = ()

    def engine(self) -> Engine:
        """Build the engine from it. Raises StoreError if another version wrote the snapshot."""
        try:
            return Engine(State.load(self.parts)) if self.seq else Engine()
        except codec.CodecError as error:
            raise other_version(f"snapshot {self.seq} of the store", error) from None


async def origin(store: Store) -> Origin:
    """Find where an open store's log begins: at its newest snapshot if older records are gone.
    Raises StoreError."""
    try:
        async for _ in store.read(0):
            break
    except StoreCorrupt:
        snapshot = await newest(store)
        if not snapshot.seq:
            raise
        return snapshot
    return Origin()


async def newest(store: Store) -> Origin:
    """The newest snapshot, or nothing; the fewest records follow it. Raises StoreError."""
    return Origin(*(await store.latest_snapshot() or ()))


async def recover(store: Store) -> Recovered:
    """Read the log of an open store back into an engine. Raises StoreError."""
    begin = await newest(store)
    snapshot_seq, engine = begin.seq, begin.engine()
    projected = await store.projected_seq()
    seq, digest, epoch, mismatches = snapshot_seq, GENESIS, engine.state.epoch, []
    async for record in store.read(max(0, snapshot_seq - 1)):
        digest = record.digest
        if record.seq <= snapshot_seq:
            continue
        done = redo(engine, record)
        if codec.dumps(done.commands) != codec.dumps(record.commands):
            mismatches.append(record.seq)
        changes = changes_of(engine, record, done.history)
        if record.seq > projected:
            await store.project(changes)
        seq, epoch = record.seq, record.epoch
    await _repair_profiles(store, engine, seq)
    return Recovered(engine, seq, digest, epoch, snapshot_seq, tuple(mismatches))


async def _repair_profiles(store: Store, engine: Engine, seq: int) -> None:
    """Write missing rows of job types: an older version that made the store had none."""
    book = engine.state.profiles
    present = {row.job_type: row for row in await store.profiles()}
    rows = (profile_row(engine, kind, seq) for kind in {**book.profiles, **book.learned})
    missing = tuple(row for row in rows if not _shows(present.get(row.job_type), row))
    if missing:
        await store.project(Changes(seq, engine.state.now_s, profiles=missing))


def _shows(present: ProfileRow | None, row: ProfileRow) -> bool:
    return present is not None and (present.profile, present.learned) == (row.profile, row.learned)
