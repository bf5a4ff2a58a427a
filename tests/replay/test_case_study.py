"""The paper's case study, against arithmetic by hand from the inputs that its text states."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from reshape_controller.core.model import Length, LengthUnit, Mechanism
from reshape_controller.policies import make_policy
from reshape_controller.replay import case_figures, figures
from reshape_controller.replay.case_study import (
    BY_RESTART,
    COLD,
    IN_PLACE,
    PANELS,
    PRINTED,
    scene,
    steps,
)
from reshape_controller.replay.inputs import WorkJob, Workload
from reshape_controller.replay.shell import Result, Scene, replay
from tests.support.replay_bed import reshape

ROOT = Path(__file__).resolve().parents[2]
STEP_4_S = 0.1 / 2.4
STEP_2_S = 0.1 / 1.7
END_S = 10.0
"""Last checkpoint and stop."""


def run(given: Scene, policy: str, mechanism: str, **options: object) -> Result:
    return replay(given, make_policy(policy, **options), Mechanism(mechanism), check=True)


def longer(given: Scene, factor: int) -> Scene:
    """Job 1 has ``factor`` times as many steps."""
    first, second = given.workload.jobs
    assert first.spec.length is not None
    length = Length(LengthUnit.STEPS, first.spec.length.value * factor)
    jobs = (WorkJob(first.submit_s, replace(first.spec, length=length)), second)
    return replace(given, workload=Workload("longer", jobs))


def test_the_default_panel_starts_job_2_174_s_after_job_1_has_ended() -> None:
    result = run(scene(COLD, sizes=((4,), (2,))), "default", "none", sizes="largest")
    one, two = result.jobs
    assert one.first_step_s == pytest.approx(174.0, abs=0.1)
    assert one.finished_s == pytest.approx(633.0, abs=1.0)
    assert two.first_step_s == pytest.approx(633.0 + 174.0, abs=1.0)
    assert two.finished_s == pytest.approx(1249.0, abs=1.0)
    assert result.reshapes == ()


def test_in_place_job_2_trains_110_s_after_its_submission_and_job_1_pauses_27_s() -> None:
    result = run(scene(IN_PLACE), "paper", "sidecar")
    one, two = result.jobs
    down, up = result.reshapes
    assert (down.asked_at_s, down.seconds) == pytest.approx((180.0 + 83.0, 27.0), abs=0.1)
    assert two.first_step_s == pytest.approx(290.0, abs=0.1)
    assert two.finished_s == pytest.approx(290.0 + 442.0, abs=1.0)
    # At 290 s 633 - 263 = 370 s of training on four GPUs are left, and 442 s on two do 313 of them.
    assert up.asked_at_s == pytest.approx(732.0, abs=1.0)
    assert one.finished_s == pytest.approx(732.0 + 37.0 + 57.0, abs=1.0)


def test_in_place_a_job_1_of_twice_the_length_grows_back_in_37_s() -> None:
    result = run(longer(scene(IN_PLACE), 2), "paper", "sidecar")
    one, two = result.jobs
    down, up = result.reshapes
    assert (down.size_before, down.size_after, up.size_after) == (4, 2, 4)
    assert up.asked_at_s == pytest.approx(two.finished_s, abs=0.1)
    assert up.seconds == pytest.approx(37.0, abs=0.2)
    done = (263.0 - 174.0) / STEP_4_S + (up.asked_at_s - 290.0) / STEP_2_S
    left = 2 * steps(459.0, 4) - done
    end_s = up.asked_at_s + 37.0 + left * STEP_4_S + END_S
    assert one.finished_s == pytest.approx(end_s, abs=1.0)


def test_by_restart_the_pauses_are_204_s_and_242_s() -> None:
    result = run(scene(BY_RESTART), "paper", "terminate")
    one, two = result.jobs
    down, up = result.reshapes
    assert (down.asked_at_s, down.seconds) == pytest.approx((180.0, 204.0), abs=0.1)
    assert two.first_step_s == pytest.approx(384.0, abs=0.1)
    assert two.finished_s == pytest.approx(384.0 + 442.0, abs=1.0)
    # Under the device plugin Job 2's GPUs are free when its pod is gone.
    assert up.asked_at_s == pytest.approx(two.finished_s + 90.0, abs=0.1)
    assert up.seconds == pytest.approx(242.0, abs=0.2)
    done = (180.0 - 174.0) / STEP_4_S + (up.asked_at_s - 384.0) / STEP_2_S
    left = steps(459.0, 4) - done
    end_s = up.asked_at_s + 242.0 + left * STEP_4_S + END_S
    assert one.finished_s == pytest.approx(end_s, abs=1.0)


def job_1_by_hand(stops_s: int, on_two_s: int, asked_s: int, up_s: int) -> tuple[int, int, int]:
    """Return what Job 1 has left when it stops and when it is asked to grow (both in seconds on
    four GPUs), and its end, from the figures of the text alone; ``on_two_s``: first step on two."""
    left_s = 633 - stops_s
    left_then_s = left_s - (asked_s - on_two_s) * 1.7 / 2.4
    return left_s, round(left_then_s), round(asked_s + up_s + left_then_s)


def test_panels_b_and_c_follow_by_hand_to_a_second_and_the_page_says_the_same() -> None:
    job_2_s = 1249 - 807
    by_restart = job_1_by_hand(180, 384, 384 + job_2_s + 90, 242)
    in_place = job_1_by_hand(290 - 27, 290, 290 + job_2_s, 37)
    assert by_restart == (453, 76, 1234)
    assert in_place == (370, 57, 826)
    page = (ROOT / "docs" / "reproducing-the-paper.md").read_text()
    for line in (
        "633 − 180 = 453 s | 633 − 263 = 370 s",
        "384 + 442 + 90 = 916 s | from 290 s until Job 2 ends: 290 + 442 = 732 s",
        "532 × 1.7 / 2.4 = 377 s | 442 × 1.7 / 2.4 = 313 s",
        "916 + 242 + 76 = 1,234 s | 732 + 37 + 57 = 826 s",
    ):
        assert line in page
    for costs, mechanism, (_, _, end_s) in (
        (BY_RESTART, "terminate", by_restart),
        (IN_PLACE, "sidecar", in_place),
    ):
        result = run(scene(costs), "paper", mechanism)
        assert [(one.size_before, one.size_after) for one in result.reshapes] == [(4, 2), (2, 4)]
        assert result.jobs[0].finished_s == pytest.approx(end_s, abs=1.0)


def test_job_1_takes_its_first_step_at_the_same_time_in_every_panel() -> None:
    found = json.loads(reshape("replay", "--workload", "case-study", "-o", "json").stdout)
    firsts = [line["first_step_s"] for line in found if line["job"] == "job-1"]
    assert firsts == pytest.approx([174.0] * 3, abs=0.1)
    assert found[2]["completed_s"] == pytest.approx(1234.0, abs=1.0)
    assert found[4]["completed_s"] == pytest.approx(826.0, abs=1.0)


def test_each_panel_has_its_own_costs_and_says_so() -> None:
    names = [panel.costs.name for panel in PANELS]
    assert len(set(names)) == 3
    assert all(panel.costs.overhead.source for panel in PANELS)


def test_the_command_prints_our_times_beside_the_papers() -> None:
    found = reshape("replay", "--workload", "case-study", "-o", "json")
    assert found.exit_code == 0, found.output
    lines = json.loads(found.stdout)
    assert [(line["panel"], line["job"]) for line in lines] == [
        (panel.name, job) for panel in PANELS for job in ("job-1", "job-2")
    ]
    assert [line["paper_completed_s"] for line in lines] == [633, 1249, 1143, 815, 845, 692]
    assert lines[1]["completed_s"] == pytest.approx(1249.0, abs=1.0)


def test_the_figures_show_iterations_per_second_and_the_printed_times(tmp_path: Path) -> None:
    out = tmp_path / "case"
    found = reshape("replay", "--workload", "case-study", "--out", str(out))
    assert found.exit_code == 0, found.output
    speeds = (out / "figures" / "figure-03.svg").read_text()
    for words in ("job-1", "job-2", "iterations per second", "(b) by restart", "(c) in place"):
        assert words in speeds
    reshapes = (out / "figures" / "figure-01.svg").read_text()
    assert "(a) default" not in reshapes, "it reshapes nothing"
    for words in ("(b) by restart", "(c) in place", "2 GPUs"):
        assert words in reshapes
    assert reshapes.count(">4 GPUs<") == 3, "until the end of both, in (b) after two reshapes"
    bars = (out / "figures" / "figure-04.svg").read_text()
    assert "makespan (s)" in bars
    assert "printed" in bars
    assert len(json.loads((out / "summary.json").read_text())) == 6


def test_job_1_does_24_then_17_then_24_iterations_per_second_in_place() -> None:
    result = run(scene(IN_PLACE), "paper", "sidecar")
    points = case_figures.course(result, "job-1", {"job-1": 4, "job-2": 2})
    assert [speed for _, speed in points] == pytest.approx([0, 24, 0, 17, 0, 24, 0])
    ends = [at_s for at_s, _ in points]
    assert ends == pytest.approx([0, 174, 263, 290, 732, 769, 816], abs=1.0)


def test_allocated_gpus_over_time_end_with_none() -> None:
    result = replay(scene(IN_PLACE), make_policy("paper"), Mechanism.SIDECAR, keep=True)
    times, values = figures.course(result, "allocated")
    assert times == sorted(times)
    assert (values[-2], values[-1]) == (4, 0)
    end_s = result.jobs[0].submitted_s + times[-1]
    assert end_s == pytest.approx(result.jobs[0].finished_s)


def test_the_printed_metrics_follow_from_the_printed_times() -> None:
    found = [case_figures.metrics(PRINTED[panel.name]) for panel in PANELS]
    assert found == [(1249, 851), (1143, 889), (845, 678.5)]


def test_job_1_starts_trains_and_reshapes_twice_in_place() -> None:
    result = run(scene(IN_PLACE), "paper", "sidecar")
    found = case_figures.spans(result, "job-1", {"job-1": 4, "job-2": 2})
    assert [label for label, *_ in found] == [
        *("starts", "4 GPUs", "reshapes", "2 GPUs", "reshapes", "4 GPUs")
    ]
    assert [end_s for *_, end_s in found] == pytest.approx([174, 263, 290, 732, 769, 826], abs=1.0)
    assert all(a[2] == b[1] for a, b in pairwise(found))
