"""A log that is behind its marks is refused, on every store; after an accepted loss it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from reshape_controller.live.journal import Fenced, Journal
from reshape_controller.live.leadership import Leadership
from reshape_controller.live.marks import LogMarks, accepted, end_of
from reshape_controller.live.recovery import recover
from reshape_controller.store.mark import Mark, MarkFile, parse
from reshape_controller.store.protocol import RolledBack, Store
from reshape_launcher.leases import Lease, StoredLease
from tests.support.store_bed import fill, run
from tests.support.store_values import record, records

MADE = records(6)


def refused(make: Callable[[], Store], marks: LogMarks, text: str) -> None:
    async def work(store: Store) -> None:
        with pytest.raises(RolledBack, match=text):
            await marks.check(store)

    run(make, work)


def taken(make: Callable[[], Store], marks: LogMarks) -> None:
    run(make, lambda store: marks.check(store))


def test_a_log_that_ends_one_record_before_its_mark_is_refused_with_both_numbers(
    make: Callable[[], Store], tmp_path: Path
) -> None:
    run(make, lambda store: fill(store, MADE[:5]))
    marks = LogMarks(tmp_path / "mark")
    marks.note(MADE[5])
    refused(make, LogMarks(tmp_path / "mark"), r"ends at seq 5, but .*mark has noted seq 6: .* 1 a")
    marks.close()


@pytest.mark.parametrize("seq", [5, 6])
def test_a_log_at_its_mark_or_one_append_after_it_is_taken(
    make: Callable[[], Store], tmp_path: Path, seq: int
) -> None:
    run(make, lambda store: fill(store, MADE))
    marks = LogMarks(tmp_path / "mark")
    marks.note(MADE[seq - 1])
    taken(make, LogMarks(tmp_path / "mark"))
    marks.close()


def test_another_log_of_the_same_length_is_refused(
    make: Callable[[], Store], tmp_path: Path
) -> None:
    run(make, lambda store: fill(store, (*MADE[:5], record(6, MADE[4].digest, writer="other"))))
    marks = LogMarks(tmp_path / "mark")
    marks.note(MADE[5])
    refused(make, LogMarks(tmp_path / "mark"), "another record at seq 6")
    marks.close()


def test_a_store_without_a_mark_or_with_a_torn_one_is_taken(
    make: Callable[[], Store], tmp_path: Path
) -> None:
    run(make, lambda store: fill(store, MADE))
    taken(make, LogMarks(tmp_path / "mark"))
    (tmp_path / "mark").write_bytes(b"torn")
    taken(make, LogMarks(tmp_path / "mark"))


def test_an_empty_log_with_a_mark_is_refused(make: Callable[[], Store], tmp_path: Path) -> None:
    MarkFile(tmp_path / "mark").replace(Mark(3, 1, MADE[2].digest))
    refused(make, LogMarks(tmp_path / "mark"), "ends at seq 0, but .* seq 3: .* 3 acknowledged")


def test_after_an_accepted_loss_the_epoch_is_above_every_lost_one(
    make: Callable[[], Store], tmp_path: Path
) -> None:
    async def work(store: Store) -> None:
        await fill(store, MADE[:4])
        file = MarkFile(tmp_path / "mark")
        file.replace(accepted(Mark(6, 8, MADE[5].digest), *await end_of(store)))
        journal = Journal(store, LogMarks(file.path, parse(Mark(9, 9, "b" * 64).text())))
        await journal.check_marks()
        assert journal.marks.loss_accepted
        journal.take_over(await recover(store))
        assert (journal.seq, journal.epoch) == (4, 10)
        await journal.append(record(5), lambda: False)
        assert not journal.marks.loss_accepted
        newest = file.read()
        assert newest is not None
        assert (newest.seq, newest.epoch, newest.accepts_loss) == (5, 10, False)
        journal.marks.close()

    run(make, work)


def test_a_record_is_noted_only_after_its_append(make: Callable[[], Store], tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        await fill(store, MADE)  # so that the append of another record at seq 1 fails
        journal = Journal(store, LogMarks(tmp_path / "mark"))
        with pytest.raises(Fenced):
            await journal.append(record(1), lambda: False)
        assert MarkFile(tmp_path / "mark").read() is None

    run(make, work)


class SharedLease:
    """A lease in memory."""

    def __init__(self) -> None:
        self.seen = StoredLease(Lease(), "")

    def read(self) -> StoredLease:
        return self.seen

    def write(self, lease: Lease, previous: StoredLease) -> StoredLease | None:
        if previous != self.seen:
            return None
        self.seen = StoredLease(lease, f"{previous.version}+")
        return self.seen


def test_the_next_leader_refuses_a_log_behind_what_the_leader_before_left_in_the_lease(
    make: Callable[[], Store],
) -> None:
    lease = SharedLease()

    async def work(store: Store) -> None:
        await fill(store, MADE[:4])
        first, marks = Leadership(lease, "first"), LogMarks()
        await first.win()
        first.note = marks.lease_text
        marks.note(MADE[5])
        await first.renew()
        await first.release()
        second = Leadership(lease, "second")
        await second.win()
        inherited = LogMarks(None, parse(second.inherited))
        with pytest.raises(RolledBack, match="ends at seq 4, but the lease has noted seq 6"):
            await inherited.check(store)

    run(make, work)


def test_a_fenced_leader_that_renews_the_lease_leaves_the_mark_of_the_later_epoch() -> None:
    later = Mark(3, 2, MADE[2].digest).text()
    marks = LogMarks()
    assert marks.lease_text(later) == later, "it has appended nothing"
    marks.note(MADE[5])  # epoch 1
    assert marks.lease_text(later) == later
    assert marks.lease_text("") == Mark(6, 1, MADE[5].digest).text()


def test_a_server_that_lags_after_a_change_of_its_primary_is_waited_for(
    make: Callable[[], Store],
) -> None:
    async def work(store: Store) -> None:
        await fill(store, MADE[:5])
        checking = asyncio.create_task(
            LogMarks(None, Mark(6, 1, MADE[5].digest), lag_s=20.0).check(store)
        )
        await asyncio.sleep(0.1)
        assert not checking.done()
        await store.append(MADE[5])
        await checking

    run(make, work)
