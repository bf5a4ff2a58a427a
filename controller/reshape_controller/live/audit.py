"""The projections compared with the log: rows that are missing, differ, or are not in the log.

Does: feeds the whole log to a new engine twice (first to learn which append wrote each row last,
then for the rows themselves, in bounded portions), compares, and repairs. It may run beside a
daemon, whose newer rows it leaves alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from reshape_controller.live.projection import changes_of
from reshape_controller.live.recovery import Origin, origin
from reshape_controller.scheduling.rounds import redo
from reshape_controller.store.protocol import Changes, Store

PORTION_ROWS = 500
"""Rows that are compared at once."""
NAMES_MAX = 1000
"""Largest number of rows that are named; the others are counted."""
PROJECTED_WITHIN_S = 2.0
"""Time within which a running daemon projects a record that it appended."""
CHECK_EVERY_S = 0.1
"""Pause between two checks for that."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Result of an audit."""

    begin_seq: int
    """Seq of the first record compared: 1, or the one after the snapshot that begins the log."""
    end_seq: int
    rows: int
    """Number of rows compared."""
    wrong: tuple[str, ...]
    """Names of rows that are missing or differ from the log; at most ``NAMES_MAX``."""
    extra: tuple[str, ...]
    """Names of rows that the log does not account for; at most ``NAMES_MAX``."""
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
    log_rows = await _log_rows(store, begin, end_seq)
    wrong, wrong_count = await _wrong(store, begin, end_seq, log_rows.newest, repair)
    extra, extra_count = await _extra(store, begin, end_seq, log_rows, repair)
    return Audit(
        begin.seq + 1, end_seq, log_rows.rows, wrong, extra, wrong_count, extra_count, repair
    )


async def _end(store: Store) -> int:
    """Seq up to which rows are compared: the log's end, once a running daemon has projected it."""
    end_seq = await store.last_seq()
    for _ in range(round(PROJECTED_WITHIN_S / CHECK_EVERY_S)):
        if await store.projected_seq() >= end_seq:
            break
        await asyncio.sleep(CHECK_EVERY_S)
    return end_seq


async def _changes(store: Store, begin: Origin, end_seq: int) -> AsyncIterator[Changes]:
    """Compute again what every append changed."""
    engine = begin.engine()
    async for record in store.read(begin.seq):
        if record.seq > end_seq:
            return
        yield changes_of(engine, record, redo(engine, record).history)


@dataclass(slots=True)
class _LogRows:
    """The rows that the log accounts for."""

    newest: dict[str, int] = field(default_factory=dict)
    """Seq of the append that wrote a changing row last, by the row's name."""
    history: dict[int, int] = field(default_factory=dict)
    """Number of history entries by seq."""
    decisions: dict[int, int] = field(default_factory=dict)
    """Number of decisions by seq."""

    @property
    def rows(self) -> int:
        return len(self.newest) + sum(self.history.values()) + sum(self.decisions.values())

    def has(self, name: str) -> bool:
        """Whether a row of a store is one of them; stores number and split rows differently."""
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


async def _log_rows(store: Store, begin: Origin, end_seq: int) -> _LogRows:
    log_rows = _LogRows()
    async for changes in _changes(store, begin, end_seq):
        log_rows.newest.update(dict.fromkeys(_changing(changes), changes.seq))
        if changes.history:
            log_rows.history[changes.seq] = len(changes.history)
        if changes.decisions:
            log_rows.decisions[changes.seq] = 1 + max(each.number for each in changes.decisions)
    return log_rows


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
    wrong: list[str] = []
    count = 0
    portion: list[Changes] = []
    size = 0
    async for changes in _changes(store, begin, end_seq):
        portion.append(_newest_rows(changes, newest))
        size += len(_changing(portion[-1])) + len(changes.history) + len(changes.decisions)
        if size < PORTION_ROWS and changes.seq < end_seq:
            continue
        names = await store.differing(tuple(portion), end_seq)
        if names and repair:
            await store.rewrite(tuple(portion), end_seq)
        wrong += names[: NAMES_MAX - len(wrong)]
        count += len(names)
        portion, size = [], 0
    return tuple(wrong), count


def _newest_rows(changes: Changes, newest: dict[str, int]) -> Changes:
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
    store: Store, begin: Origin, end_seq: int, log_rows: _LogRows, repair: bool
) -> tuple[tuple[str, ...], int]:
    """Names and number of rows that the log does not account for."""
    if begin.seq:
        return (), 0  # without the log's beginning, older rows cannot be told from extra ones
    extra = [name async for name in store.row_names() if not log_rows.has(name)]
    if await store.last_seq() != end_seq:
        return (), 0  # the log grew meanwhile: one of them may be a new row
    if extra and repair:
        await store.forget(tuple(extra))
    return tuple(extra[:NAMES_MAX]), len(extra)
