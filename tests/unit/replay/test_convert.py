"""Public traces: what becomes of a row, what is left out, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.replay.convert import Assumed, Columns, Converted, convert
from reshape_controller.replay.inputs import ReplayError
from reshape_profiles.loader import bundled
from tests.support.replay_bed import reshape

COLUMNS = Columns("at", "gpus", "seconds", "id")
HEAD = "id,at,gpus,seconds\n"
ASSUMED = Assumed()


def converted(rows: str, assumed: Assumed = ASSUMED) -> Converted:
    return convert(HEAD + rows, "t.csv", COLUMNS, bundled(), assumed)


def test_a_row_trains_as_long_as_it_did_on_the_gpus_that_it_had() -> None:
    (job,) = converted("a,50,4,7200\n").workload.jobs
    book = ProfileBook({profile.job_type: profile for profile in bundled().profiles})
    step_s = book.seconds_per_step(job.spec.job_type, "V100", 4)
    assert job.spec.length is not None
    assert job.spec.length.value * step_s == pytest.approx(7200, abs=step_s)
    assert job.spec.optional_gpus == (1, 2, 4, 8)
    assert job.submit_s == 0.0


def test_a_number_of_gpus_that_is_no_power_of_two_is_kept_beside_them() -> None:
    (job,) = converted("a,50,3,7200\n").workload.jobs
    assert job.spec.optional_gpus == (1, 2, 3, 4, 8)


def test_jobs_come_in_the_order_of_their_dates() -> None:
    rows = "late,2017-10-03 12:00:30,1,60\nearly,2017-10-03T12:00:00,1,60\n"
    jobs = converted(rows).workload.jobs
    assert [(job.spec.name, job.submit_s) for job in jobs] == [("early", 0.0), ("late", 30.0)]


def test_rows_that_cannot_be_replayed_are_counted_by_reason() -> None:
    rows = "a,0,1,60\nb,1,0,60\nc,2,16,60\nd,3,1,0\ne,4,0.5,60\nf,5,2.5,60\n"
    assert converted(rows).left_out == (
        ("with a part of a GPU", 1),
        ("with more than 8 GPUs (a job lives on one host)", 1),
        ("without a duration", 1),
        ("without a whole GPU", 2),
    )


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ("a,soon,1,60\n", "line 2: at is 'soon'"),
        ("a,1,many,60\n", "line 2: gpus is 'many'"),
        ("a,0,1,60\nb,2017-10-03,1,60\n", "line 3: at is '2017-10-03', and others are of another"),
        ("a,1,1,1e308\n", "line 2: seconds is 1e+308, and must be at most 1e+10 seconds"),
        ("a,1,1,inf\n", "line 2: seconds is 'inf'"),
        ("a,1,1\n", "line 2: must have as many cells as line 1"),
        ("a,1,0,60\n", "no row can be replayed (1 without a whole GPU)"),
        ("a,inf,1,60\n", "line 2: at is 'inf', and must be seconds, at most 1e+10"),
        ("a,1700000000000,1,60\n", "line 2: at is '1700000000000', and must be seconds"),
        ("a,1,1,60\na,2,1,60\n", "line 3: id is 'a', as in line 2; name a column"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(rows: str, what: str) -> None:
    with pytest.raises(ReplayError) as error:
        converted(rows)
    assert what in str(error.value)


def test_columns_job_sets_and_gpu_types_that_are_not_there_are_named() -> None:
    with pytest.raises(ReplayError, match="no column 'gpus'; columns: id, at"):
        convert("id,at\n", "t.csv", COLUMNS, bundled(), Assumed())
    with pytest.raises(ReplayError, match="unknown job set 'nine'"):
        converted("a,0,1,60\n", Assumed(job_set="nine"))
    with pytest.raises(ReplayError, match="has no speeds on H100"):
        converted("a,0,1,60\n", Assumed(gpu_type="H100"))


def test_a_converted_trace_can_be_replayed_and_says_what_it_assumes(tmp_path: Path) -> None:
    source, target = tmp_path / "public.csv", tmp_path / "jobs.csv"
    source.write_text(HEAD + "a,0,2,600\nb,60,1,900\nc,90,32,900\n")
    words = ["workload", "convert", str(source), "--submit", "at", "--gpus", "gpus"]
    found = reshape(*words, "--duration", "seconds", "--name", "id", "--out", str(target))
    assert found.exit_code == 0, found.output
    assert "assumed: durations" in found.stderr
    assert "left out: 1 rows with more than 8 GPUs" in found.stderr
    assert found.stdout == ""
    again = reshape("replay", "-w", str(target), "-o", "json")
    assert again.exit_code == 0, again.output


def test_a_row_without_a_figure_is_left_out_and_counted_instead_of_ending_the_conversion() -> None:
    found = converted("a,0,1,60\nb,1,,60\nc,2,1,\nd,3,1,NaN\ne,,2,60\nf,None,2,60\n")
    assert [job.spec.name for job in found.workload.jobs] == ["a"]
    assert dict(found.left_out) == {
        "without a whole GPU": 1,
        "without a duration": 2,
        "without a submission": 2,
    }
