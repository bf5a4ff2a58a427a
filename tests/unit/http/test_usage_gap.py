"""The usage of a log with a gap without a controller, and of one with lost steps."""

from __future__ import annotations

import pytest

from reshape_controller.core.model import GpuId, HostId, JobId
from reshape_controller.http.timeline import Recorder
from reshape_controller.http.usage import Holder, UsageBook, Use
from reshape_gpu.usage import By
from tests.support.world import World

JOB = Holder(JobId("job"), HostId("a"), "V100")
NOBODY = Holder(None, HostId("a"), "V100")


def test_a_gap_without_a_controller_is_silent_for_all_gpus_and_the_sum_stays() -> None:
    book = UsageBook()
    for number in range(3):
        book.book(GpuId(f"gpu-{number}"), NOBODY, Use.FREE, 0.0)
    for number in range(2):
        book.book(GpuId(f"gpu-{number}"), JOB, Use.TRAINED, 100.0)
    book.pass_gap(160.0, 864_160.0)
    book.book(GpuId("gpu-0"), NOBODY, Use.FREE, 864_170.0)
    totals = book.of_hosts(864_180.0)
    assert totals[HostId("a"), Use.TRAINED] == pytest.approx(60.0 * 2 + 10.0 + 20.0)
    assert totals[HostId("a"), Use.SILENT] == pytest.approx(3 * 864_000.0)
    assert sum(totals.values()) == pytest.approx(3 * 864_180.0)
    part = book._totals(150.0, 864_165.0)
    assert part[JOB, Use.TRAINED] == pytest.approx(2 * 10.0 + 2 * 5.0)
    assert part[NOBODY, Use.SILENT] == pytest.approx(3 * 864_000.0)


def test_time_that_was_lost_is_counted_as_repeated_in_the_stretch_in_which_it_was_lost() -> None:
    world = World().boot(4)
    recorder = Recorder()
    recorder.begin(world.engine, 0)

    def read() -> None:
        recorder.record(world.engine, 1, world.now_s)

    world.running("a", 4, 4, user="ada")
    world.container("a").seconds_per_step = 0.5
    world.train("a", 100)
    read()
    world.wait(100.0)
    world.crash("a")
    read()
    world.wait(100.0)

    def repeated(from_s: float, to_s: float, user: str | None = None) -> float:
        found = recorder.usage.usage(By.USER, from_s, to_s, user)
        return sum(row.repeated_gpu_s for row in found.rows)

    assert repeated(0.0, 200.0) == repeated(50.0, 150.0, "ada") == 100 * 0.5 * 4
    assert repeated(0.0, 99.0) == repeated(101.0, 200.0) == repeated(0.0, 200.0, "bob") == 0.0
