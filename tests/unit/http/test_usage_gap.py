"""The usage of a log with a long time in which no controller ran."""

from __future__ import annotations

import pytest

from reshape_controller.core.model import GpuId, HostId, JobId
from reshape_controller.http.usage import Holder, UsageBook, Use

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
