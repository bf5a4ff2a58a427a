"""The notifier: at least once, in order, each receiver by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reshape_controller.core.model import GpuId, Host, HostId, Job, JobState
from reshape_controller.core.state import State
from reshape_controller.live.journal import Fenced
from reshape_controller.live.notifications import notifier as module
from reshape_controller.live.notifications.notifier import CURSOR, Notifier, run_all
from reshape_controller.live.notifications.targets import Target
from reshape_controller.store.protocol import Changes, JobRow
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.notifications import ADA, DEADLINE_S, entry, target
from tests.support.receiver import SECRET, Receiver


class Tally:
    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def notified(self, outcome: str) -> None:
        self.outcomes.append(outcome)


class Bed:
    """A store with a history, and notifiers over it."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.seq = 0
        self.state = State()
        self.now_s = 1000.0
        self.tally = Tally()
        self.is_fenced = False
        self._tasks: list[asyncio.Task[None]] = []

    async def happens(self, *kinds: str, job: Job = ADA) -> None:
        """Append a record with entries of these kinds."""
        self.seq += 1
        spec = job.spec
        row = JobRow(job.id, spec.name, spec.user, job.state, self.seq, job.submitted_at_s, job)
        history = tuple(entry(kind, job=job.id) for kind in kinds)
        await self.store.project(Changes(self.seq, 1.0, (row,), history=history))

    def notifier(self, to: Target) -> Notifier:
        return Notifier(
            *(to, self.store, self._check_fence, lambda: self.seq),
            *(lambda: self.state, lambda: self.now_s, self.tally),
        )

    def begins(self, to: Target) -> asyncio.Task[None]:
        self._tasks.append(asyncio.create_task(self.notifier(to).run()))
        return self._tasks[-1]

    async def _check_fence(self) -> None:
        if self.is_fenced:
            raise Fenced("another controller took over")

    async def ends(self) -> None:
        """End the notifiers as a kill would: at any place."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def reaches(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not what():
                await asyncio.sleep(0.01)

    async def noted(self, seq: int, name: str = "chat") -> None:
        """Wait until the cursor is there."""
        async with asyncio.timeout(DEADLINE_S):
            while await self.store.cursor(CURSOR + name) != seq:
                await asyncio.sleep(0.01)


def run(folder: Path, test: Callable[[Bed], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACK_OFF_S", 0.02)
    monkeypatch.setattr(module, "LOOK_S", 0.02)

    async def inside() -> None:
        store = SqliteStore(folder / "store.sqlite")
        await store.open()
        bed = Bed(store)
        try:
            found = test(bed)
            assert asyncio.iscoroutine(found)
            await found
        finally:
            await bed.ends()
            await store.close()

    asyncio.run(inside())


def test_a_receiver_that_is_away_gets_each_event_in_order_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(bed: Bed) -> None:
        receiver = Receiver()
        await receiver.open()
        await receiver.close()
        await bed.happens("completed")
        bed.begins(target(receiver.url))
        await bed.noted(1)
        for kind in ("reshape-cost", "launched", "failed"):
            await bed.happens(kind)
        with capture_logs() as lines:
            await bed.reaches(lambda: bed.tally.outcomes.count("failed") > 2)
        await receiver.open()
        await bed.noted(4)
        assert receiver.ids == ["2-0", "4-0"], (
            "what was before the target's first start is not sent"
        )
        assert SECRET not in str(lines)
        assert "path-secret" not in str(lines)
        assert bed.tally.outcomes[-2:] == ["delivered", "delivered"]
        await receiver.close()

    run(tmp_path, test, monkeypatch)


def test_a_restart_between_sending_and_noting_sends_again_with_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(bed: Bed) -> None:
        receiver = Receiver()
        await receiver.open()
        to = target(receiver.url)
        bed.begins(to)
        await bed.noted(0)
        receiver.held = asyncio.Event()
        await bed.happens("completed")
        await bed.reaches(lambda: len(receiver.received) == 1)
        await bed.ends()
        assert await bed.store.cursor(CURSOR + "chat") == 0
        receiver.held.set()
        bed.begins(to)
        await bed.noted(1)
        assert receiver.ids == ["1-0", "1-0"]
        await bed.ends()
        bed.begins(to)
        await bed.happens("cancelled")
        await bed.noted(2)
        assert receiver.ids == ["1-0", "1-0", "2-0"]
        await receiver.close()

    run(tmp_path, test, monkeypatch)


def test_a_controller_that_was_replaced_sends_and_notes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(bed: Bed) -> None:
        receiver = Receiver()
        await receiver.open()
        await receiver.close()
        ends = bed.begins(target(receiver.url))
        await bed.noted(0)
        await bed.happens("completed")
        await bed.reaches(lambda: bed.tally.outcomes.count("failed") > 1)
        bed.is_fenced = True
        await receiver.open()
        with pytest.raises(Fenced):
            await ends
        assert receiver.ids == []
        assert await bed.store.cursor(CURSOR + "chat") == 0
        await receiver.close()

    run(tmp_path, test, monkeypatch)


def test_the_daemon_gets_the_fence_itself_from_its_notifiers_and_not_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(bed: Bed) -> None:
        bed.is_fenced = True
        with pytest.raises(Fenced):
            await run_all(bed.notifier(target("http://127.0.0.1:9", name)) for name in "ab")

    run(tmp_path, test, monkeypatch)


def test_a_slow_receiver_does_not_delay_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(bed: Bed) -> None:
        slow, quick = Receiver(), Receiver()
        slow.held = asyncio.Event()
        await slow.open()
        await quick.open()
        bed.begins(target(slow.url))
        bed.begins(target(quick.url, "mail"))
        await bed.noted(0)
        await bed.noted(0, "mail")
        both = replace(ADA, spec=replace(ADA.spec, notify=("chat", "mail")))
        for _ in range(3):
            await bed.happens("reshape-cost", job=both)
        await bed.noted(3, "mail")
        assert quick.ids == ["1-0", "2-0", "3-0"]
        assert len(slow.received) <= 1
        slow.held.set()
        await bed.noted(3)
        assert slow.ids[-1] == "3-0"
        for receiver in (slow, quick):
            await receiver.close()

    run(tmp_path, test, monkeypatch)


def test_a_message_that_the_receiver_refuses_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(bed: Bed) -> None:
        receiver = Receiver(422)
        await receiver.open()
        bed.begins(target(receiver.url))
        await bed.noted(0)
        await bed.happens("completed")
        await bed.noted(1)
        receiver.status = 200
        await bed.happens("failed")
        await bed.noted(2)
        assert bed.tally.outcomes == ["refused", "delivered"]
        await receiver.close()

    run(tmp_path, test, monkeypatch)


def test_a_job_that_waits_too_long_is_sent_once_while_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITS_EVERY", 1)

    async def test(bed: Bed) -> None:
        receiver = Receiver()
        await receiver.open()
        bed.state.hosts[HostId("a")] = Host(HostId("a"), "testing", (GpuId("a-0"),))
        bed.state.jobs[ADA.id] = ADA
        bed.begins(target(receiver.url))
        await bed.noted(0)
        await bed.happens("reshape-cost")
        await bed.noted(1)
        assert receiver.ids == ["1-0"], "it has waited for 900 s, not for an hour"
        bed.now_s = 9000.0
        await bed.reaches(lambda: len(receiver.received) == 2)
        begun = replace(ADA, started_at_s=200.0, state=JobState.RUNNING)
        await bed.happens("completed", job=begun)
        await bed.noted(2)
        assert receiver.ids == ["1-0", f"{ADA.id}-waiting", "2-0"]
        await receiver.close()

    run(tmp_path, test, monkeypatch)


def test_a_defect_delays_notifications_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STORE_RETRY_S", 0.02)

    async def test(bed: Bed) -> None:
        receiver = Receiver()
        await receiver.open()
        bed.state = None  # type: ignore[assignment]
        with capture_logs() as logs:
            task = bed.begins(target(receiver.url))
            await bed.reaches(lambda: len(logs) > 1)
        assert {each["event"] for each in logs} == {"notifications-delayed"}
        assert "'jobs'" in logs[0]["error"]
        bed.state = State()
        await bed.happens("completed")
        await bed.reaches(lambda: receiver.ids == ["1-0"])
        assert not task.done()
        await receiver.close()

    run(tmp_path, test, monkeypatch)
