"""The history read back from its end, by numbers of records. State: none."""

from __future__ import annotations

from collections.abc import AsyncIterator

from reshape_controller.core.record import HistoryEntry
from reshape_controller.store.protocol import Store

RECORDS, RECORDS_MAX = 1000, 64_000
"""Records of which the history is read at once; further back twice as many each time, up to this.
"""


async def parts_back(
    store: Store, after_seq: int, up_to_seq: int
) -> AsyncIterator[list[HistoryEntry]]:
    """Yield the entries of the records after one, up to another, in parts: the newest first.
    Raises StoreError."""
    end_seq, records = up_to_seq, RECORDS
    while end_seq > after_seq:
        begin_seq = max(after_seq, end_seq - records)
        entries = [entry for _, _, entry in await store.history_between(begin_seq, end_seq)]
        yield entries[::-1]
        end_seq, records = begin_seq, min(2 * records, RECORDS_MAX)
