"""The projections compared with the log: what is missing, differs, or shows what never was.

Does: feeds the whole log to a fresh engine twice (first which append wrote each row last, then the
rows themselves, in bounded portions), compares, and repairs. Never: appends, decides, or touches a
container; may run beside a daemon, whose newer rows it leaves alone. State: none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from reshape_controller.live.projection import changes_of
from reshape_controller.live.recovery import Origin, origin, redo
from reshape_controller.store.protocol import Changes, Store

PORTION_ROWS = 500
"""Rows that are compared at once."""
NAMES_MAX = 1000
"""So many rows are named; more are counted."""
PROJECTED_WITHIN_S = 2.0
"""A daemon shows within so long what it has appended."""
LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found. ``wrong`` are missing or differ, ``extra`` show what is not in the log."""

    begin_seq: int
    """1, or the first record after the snapshot with which the readable log begins."""
    end_seq: int
    rows: int
    """Rows that were compared."""
    wrong: tuple[str, ...]
    extra: tuple[str, ...]
    wrong_count: int
    extra_count: int
    repaired: bool

    @property
    def sound(self) -> bool:
        return not self.wrong_count and not self.extra_count


async def audit(store: Store, *, repair: bool) -> Audit:
    """Compare an open store's projections with its log. Raises StoreError."""
    end_seq = await _end(store)
    begin = await origin(store)
    known = await _known(store, begin, end_seq)
    wrong, wrong_count = await _wrong(store, begin, end_seq, known.newest, repair)
    extra, extra_count = await _extra(store, begin, end_seq, known, repair)
    return Audit(begin.seq + 1, end_seq, known.rows, wrong, extra, wrong_count, extra_count, repair)


async def _end(store: Store) -> int:
    """Up to which seq is compared: all that is in the log by now, and shown if a daemon runs."""
    end_seq = await store.last_seq()
    for _ in range(round(PROJECTED_WITHIN_S / LOOK_EVERY_S)):
        if await store.projected_seq() >= end_seq:
            break
        await asyncio.sleep(LOOK_EVERY_S)
    return end_seq


async def _changes(store: Store, begin: Origin, end_seq: int) -> AsyncIterator[Changes]:
    """What every append changed, made anew."""
    engine = begin.engine()
    async for record in store.read(begin.seq):
        if record.seq > end_seq:
            return
        _, history = redo(engine, record)
        yield changes_of(engine, record, history)


@dataclass(slots=True)
class _Known:
    """What the log knows of: rows that change, with the append that wrote each last; and how many
    rows that are written once each append wrote."""

    newest: dict[str, int] = field(default_factory=dict)
    history: dict[int, int] = field(default_factory=dict)
    decisions: dict[int, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(self.newest) + sum(self.history.values()) + sum(self.decisions.values())

    def has(self, name: str) -> bool:
        """Whether a row that is shown is one of them; stores number and split rows differently."""
        table, _, key = name.partition("/")
        if table.endswith("_profiles"):
            return f"profiles/{key}" in self.newest
        if table not in ("history", "decisions", "decision_jobs"):
            return name in self.newest
        # SEQ-NUMBER, behind the job's id where a table has it; ids have no blanks.
        seq, _, number = "-".join(key.rsplit("-", 2)[-2:]).partition("-")
        if not (seq.isdigit() and number.isdigit()):
            return False
        counts = self.history if table == "history" else self.decisions
        return int(number) < counts.get(int(seq), 0)


async def _known(store: Store, begin: Origin, end_seq: int) -> _Known:
    known = _Known()
    async for changes in _changes(store, begin, end_seq):
        known.newest.update(dict.fromkeys(_changing(changes), changes.seq))
        if changes.history:
            known.history[changes.seq] = len(changes.history)
        if changes.decisions:
            known.decisions[changes.seq] = 1 + max(each.number for each in changes.decisions)
    return known


def _changing(changes: Changes) -> list[str]:
    return [
        *(f"jobs/{row.id}" for row in changes.jobs),
        *(f"gpus/{gpu.id}" for gpu in changes.gpus),
        *(f"hosts/{host.id}" for host in changes.hosts),
        *(f"profiles/{row.job_type}" for row in changes.profiles),
    ]


async def _wrong(
    store: Store, begin: Origin, end_seq: int, newest: dict[str, int], repair: bool
) -> tuple[tuple[str, ...], int]:
    found: list[str] = []
    count = 0
    portion: list[Changes] = []
    size = 0
    async for changes in _changes(store, begin, end_seq):
        portion.append(_still_shown(changes, newest))
        size += len(_changing(portion[-1])) + len(changes.history) + len(changes.decisions)
        if size < PORTION_ROWS and changes.seq < end_seq:
            continue
        names = await store.differing(tuple(portion), end_seq)
        if names and repair:
            await store.rewrite(tuple(portion), end_seq)
        found += names[: NAMES_MAX - len(found)]
        count += len(names)
        portion, size = [], 0
    return tuple(found), count


def _still_shown(changes: Changes, newest: dict[str, int]) -> Changes:
    """Only the rows that no later append has written again."""
    seq = changes.seq
    return replace(
        changes,
        jobs=tuple(row for row in changes.jobs if newest[f"jobs/{row.id}"] == seq),
        gpus=tuple(gpu for gpu in changes.gpus if newest[f"gpus/{gpu.id}"] == seq),
        hosts=tuple(host for host in changes.hosts if newest[f"hosts/{host.id}"] == seq),
        profiles=tuple(p for p in changes.profiles if newest[f"profiles/{p.job_type}"] == seq),
    )


async def _extra(
    store: Store, begin: Origin, end_seq: int, known: _Known, repair: bool
) -> tuple[tuple[str, ...], int]:
    """Rows of which the log knows nothing. Where its beginning is gone, they cannot be told."""
    if begin.seq:
        return (), 0
    found = [name async for name in store.shown() if not known.has(name)]
    if await store.last_seq() != end_seq:
        return (), 0  # nor where it went on: one of them may be what came meanwhile
    if found and repair:
        await store.forget(tuple(found))
    return tuple(found[:NAMES_MAX]), len(found)
