"""The engine as the log left it: snapshot, then every record after it.

Does: applies recorded events and plans (it never decides again), repairs projections that were
owed, and compares the commands with the recorded ones. Never: appends, or touches a container.
State: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.commands import Command
from reshape_controller.core.engine import Engine
from reshape_controller.core.record import HistoryEntry, LogRecord
from reshape_controller.core.state import State
from reshape_controller.live.projection import changes_of, profile_row
from reshape_controller.store.conventions import other_version
from reshape_controller.store.digest import GENESIS
from reshape_controller.store.protocol import Changes, ProfileRow, Store, StoreCorrupt
from reshape_sidecar import codec


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where the log ends. ``mismatches`` are seqs at which this version commands otherwise."""

    engine: Engine
    seq: int
    digest: str
    epoch: int
    snapshot_seq: int
    mismatches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """With what the readable log begins: nothing, or the snapshot of ``seq``."""

    seq: int = 0
    parts: tuple[str, ...] = ()

    def engine(self) -> Engine:
        """A new engine as it was then. Raises StoreError if another version wrote the snapshot."""
        try:
            return Engine(State.load(self.parts)) if self.seq else Engine()
        except codec.CodecError as error:
            raise other_version(f"snapshot {self.seq} of the store", error) from None


async def origin(store: Store) -> Origin:
    """Where an open store's log begins: later than at 1 where older records are gone. Raises
    StoreError."""
    try:
        async for _ in store.read(0):
            break
    except StoreCorrupt:
        found = await newest(store)
        if not found.seq:
            raise
        return found
    return Origin()


async def newest(store: Store) -> Origin:
    """The newest snapshot, or nothing: what is read after it is the least. Raises StoreError."""
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
        commands, history = redo(engine, record)
        if codec.dumps(commands) != codec.dumps(record.commands):
            mismatches.append(record.seq)
        changes = changes_of(engine, record, history)
        if record.seq > projected:
            await store.project(changes)
        seq, epoch = record.seq, record.epoch
    await _repair_profiles(store, engine, seq)
    return Recovered(engine, seq, digest, epoch, snapshot_seq, tuple(mismatches))


async def _repair_profiles(store: Store, engine: Engine, seq: int) -> None:
    """Show what is known of job types, also in a store that an older version made."""
    book = engine.state.profiles
    shown = {row.job_type: row for row in await store.profiles()}
    rows = (profile_row(engine, kind, seq) for kind in {**book.profiles, **book.learned})
    missing = tuple(row for row in rows if not _shows(shown.get(row.job_type), row))
    if missing:
        await store.project(Changes(seq, engine.state.now_s, profiles=missing))


def _shows(shown: ProfileRow | None, row: ProfileRow) -> bool:
    return shown is not None and (shown.profile, shown.learned) == (row.profile, row.learned)


def redo(engine: Engine, record: LogRecord) -> tuple[tuple[Command, ...], tuple[HistoryEntry, ...]]:
    """Apply one record's events, then its plans. The commands and history that come of it."""
    commands: list[Command] = []
    history: list[HistoryEntry] = []
    for event in record.events:
        step = engine.step(event, record.at_s)
        commands += step.commands
        history += step.history
    for plan in record.plans:
        step = engine.apply(plan, record.at_s)
        commands += step.commands
        history += step.history
    return tuple(commands), tuple(history)
