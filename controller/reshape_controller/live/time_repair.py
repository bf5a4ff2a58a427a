"""A log whose time went ahead at a start with a wrong clock, with its times set back.

Does: finds that start, and yields the same records with the times after it set back by what the
log is ahead now; feeds both logs to an engine, which has to command the same at each record. Never:
changes an event, a plan or a command, or their order. Pure: records in, records out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from reshape_controller.core.engine import Engine
from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.events import ControllerStarted
from reshape_controller.core.plan import Plan
from reshape_controller.core.record import LogRecord
from reshape_controller.live.clock import FAR_S
from reshape_controller.scheduling.rounds import redo
from reshape_controller.store.digest import GENESIS, seal
from reshape_sidecar import codec


class CannotSetBack(ReshapeError):
    """The times stay as they are; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far a log is ahead, and the start from which on it is."""

    seq: int
    """The first record of that start."""
    from_s: float
    """Its time."""
    last_seq: int
    ends_s: float
    """Time of the log's newest record."""
    by_s: float
    """Seconds by which that is later than now."""


def find(records: Iterable[LogRecord], now_s: float) -> Ahead:
    """Return how far a log is ahead of ``now_s``, which is right. Raises CannotSetBack."""
    gaps: list[tuple[int, float, float]] = []
    last_seq, ends_s = 0, float("-inf")
    for record in records:
        if any(isinstance(event, ControllerStarted) for event in record.events):
            gaps.append((record.seq, record.at_s, record.at_s - ends_s))
        last_seq, ends_s = record.seq, record.at_s
    by_s = ends_s - now_s
    if by_s <= FAR_S:
        raise CannotSetBack(
            f"the log is not ahead of this machine's clock, but {-by_s:.0f} s behind; remedy: none "
            "is needed; if the clock itself is wrong, set it right first"
        )
    for seq, from_s, gap_s in reversed(gaps):
        if gap_s >= by_s:
            return Ahead(seq, from_s, last_seq, ends_s, by_s)
    raise CannotSetBack(
        f"the log is {by_s:.0f} s ahead, but no start jumped by so much: its time went ahead while "
        "a controller ran; remedy: go on, the daemon's time falls back by a tenth of what passes"
    )


def set_back(records: Iterable[LogRecord], ahead: Ahead) -> Iterator[LogRecord]:
    """Yield the records with their times set back, sealed anew. Raises CannotSetBack."""
    before, after = Engine(), Engine()
    digest, earliest_s = GENESIS, float("-inf")
    for record in records:
        made = record
        if record.seq >= ahead.seq:
            at_s = max(earliest_s, record.at_s - ahead.by_s)
            plans = tuple(_set_back(plan, ahead) for plan in record.plans)
            made = replace(record, at_s=at_s, plans=plans)
        earliest_s = made.at_s
        if codec.dumps(redo(before, record).commands) != codec.dumps(redo(after, made).commands):
            raise CannotSetBack(
                f"record {record.seq} would command something else with the right times; nothing "
                "is changed; remedy: go on, the daemon's time falls back by a tenth of what passes"
            )
        made = seal(digest, made)
        digest = made.digest
        yield made


def _set_back(plan: Plan, ahead: Ahead) -> Plan:
    if plan.wake_at_s is None:
        return plan
    return replace(plan, wake_at_s=max(0.0, plan.wake_at_s - ahead.by_s))
