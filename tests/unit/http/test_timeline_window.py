"""A part of a timeline, and fewer spans for a long one."""

from __future__ import annotations

import itertools
import random

import pytest

from reshape_controller.http.timeline import GpuLane, JobLane, Span, Timeline
from reshape_controller.http.timeline_window import merged, until

PHASES = ("starting", "training", "saving")


def timeline(count: int, seed: int = 1, lanes: int = 3) -> Timeline:
    """Lanes of random spans, with a gap now and then; the last span of each goes on."""
    dice = random.Random(seed)
    gpus = []
    for number in range(lanes):
        spans, at_s = [], 1000.0
        for _ in range(count):
            length_s = dice.expovariate(0.1)
            spans.append(Span(dice.choice(PHASES), at_s, at_s + length_s, f"job-{number}", 1))
            at_s += length_s + (dice.expovariate(0.1) if dice.random() < 0.02 else 0.0)
        spans.append(Span("training", at_s, None, f"job-{number}", 1))
        gpus.append(GpuLane(f"gpu-{number}", "local", number, tuple(spans)))
    to_s = max(lane.spans[-1].from_s for lane in gpus) + 5.0
    return Timeline(9, 1000.0, to_s, tuple(gpus), ())


def covered_s(spans: tuple[Span, ...], now_s: float) -> float:
    return sum((now_s if span.to_s is None else span.to_s) - span.from_s for span in spans)


@pytest.mark.parametrize("most", [60, 200, 1000])
def test_a_long_timeline_has_at_most_so_many_spans_and_leaves_none_out(most: int) -> None:
    whole = timeline(2000)
    found = merged(whole, most)
    assert most / 8 < sum(len(lane.spans) for lane in found.gpus) <= most
    for before, after in zip(whole.gpus, found.gpus, strict=True):
        assert sum(span.merged for span in after.spans) == len(before.spans)
        once_s, then_s = (covered_s(each.spans, whole.to_s) for each in (before, after))
        window_s = whole.to_s - whole.from_s
        assert once_s - 1e-6 <= then_s <= window_s, "short gaps may be covered, no span is left out"
        for one, other in itertools.pairwise(after.spans):
            assert one.to_s is not None
            assert one.to_s <= other.from_s
        assert after.spans[-1].to_s is None


def test_a_short_timeline_stays_as_it_is() -> None:
    whole = timeline(20)
    assert merged(whole, 63) == whole
    assert merged(whole, 62) != whole


def test_a_merged_span_has_the_phase_of_its_longest_part_and_no_long_gap_in_it() -> None:
    spans = (
        Span("starting", 0.0, 1.0, "a"),
        Span("training", 1.0, 4.0, "a", 2),
        Span("saving", 4.0, 5.0, "a"),
        Span("training", 900.0, 905.0, "b"),
    )
    whole = Timeline(1, 0.0, 1000.0, (GpuLane("g", "h", 0, spans),), ())
    (lane,) = merged(whole, 2).gpus
    assert lane.spans == (Span("training", 0.0, 5.0, "a", 2, merged=3), spans[3])


def test_what_begins_later_is_left_out() -> None:
    whole = timeline(50)
    jobs = tuple(
        JobLane(f"job-{at_s}", "x", "running", at_s, None, 0, ()) for at_s in (1000.0, 1200.0)
    )
    cut = until(Timeline(9, whole.from_s, whole.to_s, whole.gpus, jobs), 1100.0)
    assert cut.to_s == 1100.0
    assert [job.id for job in cut.jobs] == ["job-1000.0"]
    assert all(span.from_s < 1100.0 for lane in cut.gpus for span in lane.spans)
    assert until(whole, whole.to_s + 1) is whole
