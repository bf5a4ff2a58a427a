"""Public traces: what becomes of a row, what is left out, and what is said about it."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reshape_controller.core.model import Spans
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.replay.arrivals import Bound, load, window
from reshape_controller.replay.conversion import Choices, Columns, Conversion, by_reason
from reshape_controller.replay.convert import convert
from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.trace_gpus import Parts
from reshape_controller.replay.trace_rows import (
    BAD_REASONS_SHOWN_MAX,
    BAD_ROWS_SHOWN_MAX,
    BadRowsError,
    Layout,
)
from reshape_profiles.loader import bundled
from tests.support.gate import examples

COLUMNS = Columns("at", "gpus", duration="seconds", name="id")
HEAD = "id,at,gpus,seconds\n"
CHOICES = Choices()
BOOK = ProfileBook({profile.job_type: profile for profile in bundled().profiles})
VGG = "vgg16-b64-imagenet"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def converted(
    folder: Path, rows: str, choices: Choices = CHOICES, columns: Columns = COLUMNS
) -> Conversion:
    path = folder / "t.csv"
    path.write_text(HEAD + rows)
    return convert([path], columns, bundled(), choices)


def with_head(folder: Path, text: str, choices: Choices = CHOICES, /, **columns: str) -> Conversion:
    path = folder / "t.csv"
    path.write_text(text)
    return convert([path], Columns("at", "gpus", **columns), bundled(), choices)


def counts(found: Conversion) -> dict[str, int]:
    return {reason: count for reason, count, _ in by_reason(found.left_out)}


def problem_of(folder: Path, rows: str, choices: Choices = CHOICES) -> str:
    with pytest.raises(ReplayError) as error:
        converted(folder, rows, choices)
    return str(error.value)


def test_a_row_trains_as_long_as_it_did_on_the_gpus_that_it_had(folder: Path) -> None:
    (job,) = converted(folder, "a,50,4,7200\n").jobs
    step_s = BOOK.seconds_per_step(job.job_type, "V100", 4)
    assert job.steps * step_s == pytest.approx(7200, abs=step_s)
    assert job.optional_gpus == (1, 2, 4, 8)
    assert job.gpu_s == pytest.approx(4 * 7200, abs=4 * step_s)


def test_a_number_of_gpus_that_is_no_power_of_two_is_kept_beside_them(folder: Path) -> None:
    (job,) = converted(folder, "a,50,3,7200\n").jobs
    assert job.optional_gpus == (1, 2, 3, 4, 8)


def test_jobs_come_in_the_order_of_their_dates(folder: Path) -> None:
    rows = "late,2017-10-03 12:00:30,1,60\nearly,2017-10-03T12:00:00,1,60\n"
    early, late = converted(folder, rows).jobs
    assert (early.name, late.name) == ("early", "late")
    assert late.submit_s - early.submit_s == 30.0


def test_rows_that_cannot_be_replayed_are_counted_by_reason_and_by_gpu_time(folder: Path) -> None:
    rows = "a,0,1,60\nb,1,0,60\nc,2,16,60\nd,3,1,0\ne,4,0.5,60\nf,5,2.5,60\ng,,2,60\n"
    assert by_reason(converted(folder, rows).left_out) == [
        ("with a part of a GPU", 2, 0.5 * 60 + 2.5 * 60),
        ("with more than 8 GPUs (--span or --cap keeps them)", 1, 16 * 60),
        ("without a GPU", 1, 0.0),
        ("without a length", 1, 0.0),
        ("without a submission", 1, pytest.approx(2 * 60, abs=1)),
    ]


def test_cells_that_say_that_a_figure_is_missing_are_empty_cells(folder: Path) -> None:
    rows = "a,0,1,60\nb,1,,60\nc,2,1,\nd,3,1,NaN\ne,,2,60\nf,None,2,60\n"
    found = converted(folder, rows)
    assert [job.name for job in found.jobs] == ["a"]
    assert counts(found) == {
        "without a GPU": 1,
        "without a length": 2,
        "without a submission": 2,
    }


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ("a,soon,1,60\n", "t.csv: line 2: at is 'soon'"),
        ("a,1,many,60\n", "line 2: gpus is 'many'"),
        ("a,0,1,60\nb,2017-10-03,1,60\n", "line 3: at is '2017-10-03', and others are of another"),
        ("a,1,1,1e308\n", "line 2: seconds is 1e+308, and must be at most 1e+10 seconds"),
        ("a,1,1,inf\n", "line 2: seconds is 'inf'"),
        ("a,1,1,-5\n", "line 2: seconds is -5: times run backwards; correct it, or give"),
        ("a,1,1\n", "line 2: has 3 cells, and must have as many as line 1 (4)"),
        ("a,1,0,60\n", "no row can be replayed (1 without a GPU)"),
        ("a,inf,1,60\n", "line 2: at is 'inf', and must be seconds, at most 1e+10"),
        ("a,1700000000000,1,60\n", "line 2: at is '1700000000000', and must be seconds"),
        ("a,1,1,60\na,2,1,60\n", "line 3: id is 'a', as in line 2; name a column"),
        ('a,1,1,60\n"b,1,1,60\n', "line 3: is not valid CSV"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(folder: Path, rows: str, what: str) -> None:
    assert what in problem_of(folder, rows)


def test_each_bad_row_is_named_up_to_a_limit_and_the_others_are_counted(folder: Path) -> None:
    rows = "".join(f"j{n},{n},x{n},60\n" for n in range(BAD_REASONS_SHOWN_MAX + 5))
    with pytest.raises(BadRowsError) as error:
        converted(folder, rows)
    bad = error.value.bad
    assert bad.count == BAD_REASONS_SHOWN_MAX + 5
    assert len(bad.shown) == BAD_REASONS_SHOWN_MAX
    assert bad.shown[3] == "t.csv: line 5: gpus is 'x3', and must be a number"
    assert str(error.value).endswith("and 5 more rows")


def test_bad_rows_of_the_same_reason_are_named_together_up_to_a_limit(folder: Path) -> None:
    good = "a,0,1,60\n"
    with pytest.raises(BadRowsError) as error:
        converted(folder, "b,x,1,60\n" + good + "c,x,1,60\nd,0,1\n")
    assert error.value.bad.shown == (
        "t.csv: lines 2, 4: at is 'x'; write seconds, or a date as 2017-10-03 12:00:00",
        "t.csv: line 5: has 3 cells, and must have as many as line 1 (4)",
    )
    found = converted(folder, good + "b,x,1,60\n" * 50, Choices(skip_bad=True)).bad
    (text,) = found.shown
    lines = text.removeprefix("t.csv: lines ").partition(": ")[0].split(", ")
    assert lines == [str(3 + n) for n in range(BAD_ROWS_SHOWN_MAX)]
    assert found.more == 50 - BAD_ROWS_SHOWN_MAX


def test_bad_rows_are_left_out_if_that_is_asked_for(folder: Path) -> None:
    found = converted(folder, "a,0,1,60\nb,x,1,60\nc,2,1\n", Choices(skip_bad=True))
    assert [job.name for job in found.jobs] == ["a"]
    assert found.bad.count == 2
    assert found.bad.shown[0].startswith("t.csv: line 3: at is 'x'")


def test_jobs_without_a_length_and_times_that_run_backwards_take_a_default(folder: Path) -> None:
    rows = "a,0,1,60\nb,1,1,\nc,2,1,-4\n"
    found = converted(folder, rows, Choices(default_duration_s=900.0))
    steps = {job.name: job.gpu_s for job in found.jobs}
    assert steps["b"] == pytest.approx(900, abs=2)
    assert steps["c"] == pytest.approx(900, abs=2)
    assert any("backwards: 900 s (2 rows of the trace)" in line for line in found.assumptions)


def test_an_end_stands_for_a_duration_from_the_start_or_else_from_the_submission(
    folder: Path,
) -> None:
    text = "at,begin,end,gpus\n0,100,700,2\n"
    (job,) = with_head(folder, text, start="begin", end="end").jobs
    assert job.gpu_s == pytest.approx(2 * 600, abs=4)
    found = with_head(folder, text, end="end")
    assert found.jobs[0].gpu_s == pytest.approx(2 * 700, abs=4)
    assert "at to end: training alone" in found.assumptions[1]
    assert "waiting counts as training" in found.assumptions[1]


@pytest.mark.parametrize(
    ("row", "what"),
    [("0,100,50,1\n", "end is before begin"), ("200,100,300,1\n", "begin is before at")],
)
def test_an_end_before_its_start_is_a_bad_row(folder: Path, row: str, what: str) -> None:
    with pytest.raises(BadRowsError, match=what):
        with_head(folder, "at,begin,end,gpus\n" + row, start="begin", end="end")


def test_a_job_that_did_not_start_has_no_length(folder: Path) -> None:
    text = "at,begin,end,gpus\n0,0,50,1\n10,,60,1\n"
    assert counts(with_head(folder, text, start="begin", end="end")) == {"without a length": 1}


def test_model_batch_and_iterations_stand_for_a_duration(folder: Path) -> None:
    text = f"at,gpus,model,batch,iters\n0,2,{VGG},64,1000\n1,2,VGG16,128,1000\n"
    columns = {"model": "model", "batch": "batch", "iterations": "iters"}
    found = with_head(folder, text, Choices(names={"VGG16": VGG}), **columns)
    assert [(job.job_type, job.steps) for job in found.jobs] == [(VGG, 1000), (VGG, 2000)]
    step_s = BOOK.seconds_per_step(VGG, "V100", 2)
    assert found.jobs[1].gpu_s == pytest.approx(2000 * 2 * step_s)


def test_iterations_of_a_part_or_of_too_many_gpus_become_steps_of_the_same_gpu_time(
    folder: Path,
) -> None:
    text = f"at,gpus,model,iters\n0,0.5,{VGG},1000\n1,16,{VGG},1000\n"
    columns = {"model": "model", "iterations": "iters"}
    kept = with_head(folder, text, Choices(parts=Parts.KEEP, cap=True), **columns)
    step_s = {gpus: BOOK.seconds_per_step(VGG, "V100", gpus) for gpus in (8, 16)}
    capped = round(1000 * 16 * step_s[16] / (8 * step_s[8]))
    assert [job.steps for job in kept.jobs] == [500, capped]
    assert "more than 8 GPUs: 8, for the same GPU time (1 row of the trace)" in kept.assumptions
    rounded = with_head(folder, text, Choices(parts=Parts.ROUND, cap=True), **columns)
    assert [job.steps for job in rounded.jobs] == [1000, capped], "as long as on whole GPUs"


def test_a_model_without_a_profile_is_refused_or_drawn_as_asked(folder: Path) -> None:
    text = "at,gpus,seconds,model\n0,1,60,bert\n1,1,60,bert\n"
    columns = {"model": "model", "duration": "seconds"}
    with pytest.raises(
        BadRowsError, match=r"model is 'bert', and no profile .* --map bert="
    ) as bad:
        with_head(folder, text, **columns)
    assert bad.value.bad.shown[0].startswith("t.csv: lines 2, 3: model is")
    found = with_head(folder, text, Choices(default_unknown=True), **columns)
    assert len({job.job_type for job in found.jobs}) == 1
    assert (
        "models without a profile: a type of job set one (2 rows of the trace)" in found.assumptions
    )


def test_a_row_without_a_gpu_needs_neither_a_model_nor_a_length(folder: Path) -> None:
    text = "at,gpus,seconds,model\n" + f"0,1,60,{VGG}\n1,0,x,\n2,0,60,bert\n"
    found = with_head(folder, text, model="model", duration="seconds")
    assert [job.job_type for job in found.jobs] == [VGG]
    assert counts(found) == {"without a GPU": 2}


def test_a_missing_model_is_refused_or_drawn_by_the_jobs_name(folder: Path) -> None:
    text = "at,gpus,seconds,model\n" + "".join(f"{n},1,60,\n" for n in range(20))
    columns = {"model": "model", "duration": "seconds"}
    with pytest.raises(
        BadRowsError, match=r"lines 2, 3, .*: model is '', no model; write one, or give"
    ):
        with_head(folder, text, **columns)
    found = with_head(folder, text, Choices(default_unknown=True), **columns)
    by_name = with_head(folder, text, duration="seconds")
    assert [job.job_type for job in found.jobs] == [job.job_type for job in by_name.jobs]
    assert len({job.job_type for job in found.jobs}) > 1
    assert "rows without a model: a type of job set one (20 rows of the trace)" in found.assumptions


def test_a_gpu_type_without_speeds_is_refused_or_the_default_as_asked(folder: Path) -> None:
    text = "at,gpus,seconds,gpu\n0,1,6000,P100\n1,1,6000,T4\n2,1,6000,\n"
    columns = {"gpu_type": "gpu", "duration": "seconds"}
    with pytest.raises(BadRowsError, match=r"line 3: gpu is 'T4', .* --map T4=V100"):
        with_head(folder, text, **columns)
    found = with_head(folder, text, Choices(default_unknown=True), **columns)
    for job, on in zip(found.jobs, ("P100", "V100", "V100"), strict=True):
        step_s = BOOK.seconds_per_step(job.job_type, on, 1)
        assert job.steps == pytest.approx(6000 / step_s, abs=1)
    mapped = with_head(folder, text, Choices(names={"T4": "P100"}), **columns).jobs[1]
    assert mapped.steps * BOOK.seconds_per_step(mapped.job_type, "P100", 1) == pytest.approx(
        6000, abs=2
    )


def test_parts_of_gpus_are_left_out_rounded_or_kept_as_asked(folder: Path) -> None:
    text = "at,gpus,milli,seconds\n0,1,250,8000\n1,2,1000,100\n"
    columns = {"milli": "milli", "duration": "seconds"}
    assert counts(with_head(folder, text, **columns)) == {"with a part of a GPU": 1}
    part = with_head(folder, text, Choices(parts=Parts.ROUND), **columns).jobs[0]
    assert part.gpu_s == pytest.approx(8000, abs=2)
    part = with_head(folder, text, Choices(parts=Parts.KEEP), **columns).jobs[0]
    assert part.gpu_s == pytest.approx(2000, abs=2)


def test_hundredths_count_for_each_gpu_and_may_be_several_gpus(folder: Path) -> None:
    text = "at,gpus,plan,seconds\n0,4,25,800\n1,2,400,600\n2,1,100,60\n3,2,150,600\n"
    columns = {"percent": "plan", "duration": "seconds"}
    kept = with_head(folder, text, Choices(parts=Parts.KEEP, sizes=()), **columns)
    assert [job.optional_gpus for job in kept.jobs] == [(4,), (8,), (1,), (4,)]
    assert [job.gpu_s for job in kept.jobs] == [
        pytest.approx(gpu_s, abs=8) for gpu_s in (800, 8 * 600, 60, 3 * 600)
    ]
    assert counts(with_head(folder, text, **columns)) == {"with a part of a GPU": 2}
    with pytest.raises(BadRowsError, match="plan is '-1', and must be hundredths of a GPU"):
        with_head(folder, text.replace(",25,", ",-1,"), **columns)
    with pytest.raises(ReplayError, match="--milli or --percent"):
        with_head(folder, text, milli="plan", **columns)


def test_times_and_durations_that_are_numbers_have_the_unit_that_is_named(folder: Path) -> None:
    rows = "a,1500000000000000,2,60000000\nb,1500000030000000,1,00:01:00\n"
    first, second = converted(folder, rows, Choices(unit_s=1e-6)).jobs
    assert second.submit_s - first.submit_s == 30.0
    assert [first.gpu_s, second.gpu_s] == pytest.approx([120, 60], abs=2)
    assert "must be seconds, at most 1e+10; --time-unit names another" in problem_of(folder, rows)


def test_values_inside_of_json_objects_have_a_path_and_lists_count_their_entries(
    folder: Path,
) -> None:
    hosts = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0", "gpu1"]}]
    attempt = {"begin": "2017-10-07 16:00:00", "end": "2017-10-07 17:00:00", "on": hosts}
    job = {"id": "a", "at": "2017-10-07 15:59:00", "attempts": [{}, attempt]}
    queued = {"id": "b", "at": "2017-10-07 16:59:00", "attempts": []}
    path = folder / "t.json"
    path.write_text(json.dumps([job, queued]))
    last = "attempts.-1"
    columns = Columns("at", f"{last}.on.gpus", hosts=f"{last}.on.ip", name="id")
    columns = replace(columns, start=f"{last}.begin", end=f"{last}.end")
    found = convert([path], columns, bundled(), Choices(span=Spans.ANY))
    assert [(one.name, one.workers) for one in found.jobs] == [("a", 2)]
    assert found.jobs[0].gpu_s == pytest.approx(4 * 3600, abs=4)
    assert counts(found) == {"without a GPU": 1}
    dotted = folder / "t.jsonl"
    dotted.write_text('{"at": 0, "request": {"gpus": 2}, "s.d": 60, "can": [2, 4]}\n')
    columns = Columns("at", "request.gpus", duration="s.d", sizes="can")
    (flat,) = convert([dotted], columns, bundled(), CHOICES).jobs
    assert flat.optional_gpus == (2, 4)
    assert flat.gpu_s == pytest.approx(120, abs=2)
    with pytest.raises(ReplayError, match=r"no row has a name 'request\.cpus'; names: at, can"):
        convert([dotted], replace(columns, gpus="request.cpus"), bundled(), CHOICES)


def test_a_missing_part_is_a_whole_gpu_and_parts_of_several_gpus_are_parts(folder: Path) -> None:
    text = "at,gpus,milli,seconds\n0,8,,600\n1,2,500,8000\n"
    columns = {"milli": "milli", "duration": "seconds"}
    left = with_head(folder, text, **columns)
    assert [job.gpu_s for job in left.jobs] == [pytest.approx(8 * 600, abs=8)]
    assert by_reason(left.left_out) == [("with a part of a GPU", 1, 8000.0)]
    for parts, gpu_s in ((Parts.KEEP, 8000), (Parts.ROUND, 16000)):
        found = with_head(folder, text, Choices(parts=parts, sizes=()), **columns)
        assert found.jobs[1].optional_gpus == (2,), "as many GPUs as the job had parts of"
        assert found.jobs[1].gpu_s == pytest.approx(gpu_s, abs=4)
        assert any(line.startswith("parts of GPUs: whole ones") for line in found.assumptions)


@pytest.mark.parametrize("milli", ["2000", "-1"])
def test_thousandths_of_more_than_a_gpu_are_a_bad_row(folder: Path, milli: str) -> None:
    text = f"at,gpus,milli,seconds\n0,2,{milli},600\n"
    what = f"line 2: milli is '{milli}', and must be thousandths of each GPU, from 0 to 1000"
    with pytest.raises(BadRowsError, match=what):
        with_head(folder, text, milli="milli", duration="seconds")


def test_jobs_above_the_largest_size_do_the_same_work_on_it_if_that_is_asked_for(
    folder: Path,
) -> None:
    (job,) = converted(folder, "a,0,32,600\n", Choices(cap=True)).jobs
    assert max(job.optional_gpus) == 8
    assert job.gpu_s == pytest.approx(32 * 600, abs=8)


def test_jobs_larger_than_a_host_keep_their_gpus_on_several_hosts_if_that_is_asked_for(
    folder: Path,
) -> None:
    rows = "a,0,16,600\nb,1,12,600\nc,2,17,600\nd,3,4,600\ne,4,2000,600\n"
    found = converted(folder, rows, Choices(span=Spans.IF_NEEDED))
    assert [(job.workers, job.span.value, job.optional_gpus) for job in found.jobs] == [
        (2, "if-needed", (2, 4, 8, 16)),
        (2, "if-needed", (2, 4, 8, 12)),
        (17, "if-needed", (17,)),
        (1, "never", (1, 2, 4, 8)),
    ]
    assert [job.gpu_s for job in found.jobs] == [
        pytest.approx(gpus * 600, abs=gpus) for gpus in (16, 12, 17, 4)
    ]
    assert counts(found) == {"with more than 1024 GPUs": 1}
    assert any("two up to 8, of larger jobs up to their own" in line for line in found.assumptions)
    assert any("at most 8 GPUs each (3 rows of the trace)" in line for line in found.assumptions)
    rigid = converted(folder, rows, Choices(span=Spans.IF_NEEDED, sizes=()))
    assert [job.optional_gpus for job in rigid.jobs] == [(16,), (12,), (17,), (4,)]


def test_a_job_has_as_many_workers_as_it_had_hosts_if_they_can_share_its_gpus(folder: Path) -> None:
    text = "at,gpus,seconds,nodes\n0,16,60,4\n1,8,60,2\n2,12,60,5\n3,2,60,4\n4,16,60,\n"
    columns = {"duration": "seconds", "hosts": "nodes"}
    found = with_head(folder, text, Choices(span=Spans.ANY), **columns)
    assert [job.workers for job in found.jobs] == [4, 2, 6, 2, 2]
    needed = with_head(folder, text, Choices(span=Spans.IF_NEEDED), **columns)
    assert [job.workers for job in needed.jobs] == [4, 1, 6, 1, 2], "a host has 8 GPUs"
    with pytest.raises(BadRowsError, match=r"nodes is '1.5', and must be a whole number of hosts"):
        with_head(folder, text.replace("4\n", "1.5\n"), Choices(span=Spans.ANY), **columns)
    with pytest.raises(ReplayError, match="a column of hosts is of use with --span only"):
        with_head(folder, text, **columns)


def test_sizes_are_the_jobs_own_those_asked_for_or_those_of_the_row(folder: Path) -> None:
    text = "at,gpus,seconds,can\n0,3,600,1-4\n1,2,600,\n2,1,600,1 8\n"
    rigid = with_head(folder, text, Choices(sizes=()), duration="seconds")
    assert [job.optional_gpus for job in rigid.jobs] == [(3,), (2,), (1,)]
    asked = with_head(folder, text, Choices(sizes=(2, 4)), duration="seconds")
    assert [job.optional_gpus for job in asked.jobs] == [(2, 3, 4), (2, 4), (1, 2, 4)]
    own = with_head(folder, text, duration="seconds", sizes="can")
    assert [job.optional_gpus for job in own.jobs] == [(1, 2, 3, 4), (2,), (1, 8)]
    with pytest.raises(BadRowsError, match="can is '1-x'; write at most 64 numbers"):
        with_head(folder, text.replace("1-4", "1-x"), duration="seconds", sizes="can")


def test_users_and_priorities_of_the_trace_come_along(folder: Path) -> None:
    text = "at,gpus,seconds,who,rank\n0,1,60,ann,5\n1,1,60,bob,\n"
    columns = {"duration": "seconds", "user": "who", "priority": "rank"}
    ann, bob = with_head(folder, text, **columns).jobs
    assert ((ann.user, ann.priority), (bob.user, bob.priority)) == (("ann", 5), ("bob", 0))
    with pytest.raises(BadRowsError, match=r"rank is '0\.5', and must be a whole number"):
        with_head(folder, text.replace(",5", ",0.5"), **columns)


def test_files_without_a_head_with_tabs_as_json_lines_and_compressed_give_the_same_jobs(
    folder: Path,
) -> None:
    rows = [("a", 0, 2, 600), ("b", 30, 1, 900)]
    wanted = converted(folder, "a,0,2,600\nb,30,1,900\n").jobs
    bare = "".join(",".join(str(cell) for cell in row) + "\n" for row in rows)
    (folder / "bare.csv").write_text(bare)
    (folder / "t.tsv").write_text((HEAD + bare).replace(",", "\t"))
    (folder / "semicolons.txt").write_text((HEAD + bare).replace(",", ";"))
    names = HEAD.strip().split(",")
    lines = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    (folder / "t.jsonl").write_text(lines)
    (folder / "lines.json").write_text("\n" + lines)
    entries = [dict(zip(names, row, strict=True)) for row in rows]
    (folder / "list.json").write_text(json.dumps(entries))
    (folder / "indented.json").write_text("\n" + json.dumps(entries, indent=2))
    (folder / "t.csv.gz").write_bytes(gzip.compress((HEAD + bare).encode()))
    (folder / "t.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "packed.csv").write_bytes(gzip.compress((HEAD + bare).encode()))
    (folder / "unpacked.csv.gz").write_text(HEAD + bare)
    (folder / "spaced.csv").write_text((HEAD + bare).replace(",", ", ").replace("\n", " \r\n"))
    (folder / "blanks.txt").write_text((HEAD + bare).replace(",", " "))
    (folder / "late-head.csv").write_text("\n\n" + HEAD + bare)
    layouts = {
        "bare.csv": Layout(head=tuple(names)),
        "semicolons.txt": Layout(separator=";"),
        "blanks.txt": Layout(separator=" "),
    }
    tables = ("bare.csv", "t.tsv", "semicolons.txt", "spaced.csv", "blanks.txt", "late-head.csv")
    csvs = (*tables, "t.csv.gz", "packed.csv", "unpacked.csv.gz")
    for name in (*csvs, "t.jsonl", "t.jsonl.gz", "lines.json", "list.json", "indented.json"):
        choices = Choices(layout=layouts.get(name, Layout()))
        assert convert([folder / name], COLUMNS, bundled(), choices).jobs == wanted, name


def test_several_files_are_a_single_trace_whose_names_are_unique(folder: Path) -> None:
    one, two = folder / "one.csv", folder / "two.csv"
    one.write_text(HEAD + "a,50,2,600\n")
    two.write_text(HEAD + "b,0,1,900\n")
    found = convert([one, two], COLUMNS, bundled(), CHOICES)
    assert [job.name for job in found.jobs] == ["b", "a"]
    numbered = convert([one, two], replace(COLUMNS, name=None), bundled(), CHOICES)
    assert len({job.name for job in numbered.jobs}) == 2
    two.write_text(HEAD + "\na,0,1,900\n")
    with pytest.raises(BadRowsError, match=r"two.csv: line 3: id is 'a', as in line 2 of one.csv"):
        convert([one, two], COLUMNS, bundled(), CHOICES)


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("t.csv.gz", b"\x1f\x8bid,at\n", "is not whole gzip data"),
        ("t.csv.gz", gzip.compress(HEAD.encode() * 99)[:-9], "is not whole gzip data"),
        ("t.csv", b"\xff\xfe", "is not UTF-8 text"),
        ("t.csv", HEAD.encode("utf-16"), "is not UTF-8 text"),
        ("t.csv", b"PK\x03\x04data", "is a ZIP archive or a spreadsheet; unpack it"),
        ("t.csv.xz", b"\xfd7zXZ\0", "is xz data; unpack it first"),
        ("t.parquet", b"PAR1\x15", "is a Parquet file; save it as CSV"),
        ("t.tar", b"t.csv" + b"\0" * 99, "is an archive or other binary data; unpack it"),
        ("t.tar.gz", gzip.compress(b"t.csv" + b"\0" * 99), "is an archive or other binary data"),
        ("t.csv", b"", "is empty"),
        ("t.csv", b"\n\n", "is empty"),
        ("t.csv", b"a,0,2,600\nb,30,1,900\n", "without a head by --head NAME,NAME"),
        ("t.csv", HEAD.replace(",", ";").encode(), "columns: id;at;gpus;seconds; add --separator"),
        ("t.txt", HEAD.replace(",", "\t").encode(), "add --separator tab"),
        ("t.tsv", HEAD.encode(), "add --separator ','"),
        ("t.csv", b"id,at,gpus,seconds,at\n", "line 1: 2 columns are called 'at'"),
        ("t.jsonl", b'{"at": 0\n', "line 1: is not valid JSON"),
        ("t.jsonl", b"[1]\n", "line 1: is not an object"),
        ("t.jsonl", b'{"id": "a", "at": 0, "gpus": 1}\n', "no row has a name 'seconds'"),
        ("t.json", b'[\n{"id": "a"}\n{}]', "line 3: has neither , nor ] after an entry"),
        ("t.json", b'[{"id": "a"},\n]', "line 2: is not valid JSON"),
        ("t.json", b'[{"id": "a"', "line 1: is not valid JSON"),
        ("t.json", b"[{},\n\n[1]]", "line 3: is not an object"),
        ("t.json", b"[]", "no row can be replayed (no rows)"),
    ],
    ids=[
        *("no gzip", "half a gzip", "half UTF-16", "UTF-16", "ZIP", "xz", "Parquet", "tar"),
        *("packed tar", "empty", "blank", "no head", "semicolons", "tabs", "commas", "twice"),
        *("no JSON", "no object", "no such name"),
        *("no comma", "a comma too many", "half a list", "no object in a list", "an empty list"),
    ],
)
def test_files_that_cannot_be_read_are_named(
    folder: Path, name: str, data: bytes, what: str
) -> None:
    (folder / name).write_bytes(data)
    with pytest.raises(ReplayError) as error:
        convert([folder / name], COLUMNS, bundled(), CHOICES)
    assert name in str(error.value)
    assert what in str(error.value)


def test_columns_job_sets_and_gpu_types_that_are_not_there_are_named(folder: Path) -> None:
    (folder / "u.csv").write_text("id,at\n")
    headless = Choices(layout=Layout(head=("id", "at")))
    with pytest.raises(ReplayError, match=r"u.csv: --head: no column 'gpus'"):
        convert([folder / "u.csv"], COLUMNS, bundled(), headless)
    with pytest.raises(ReplayError, match="no column 'gpus'; columns: id, at"):
        convert([folder / "u.csv"], COLUMNS, bundled(), CHOICES)
    with pytest.raises(ReplayError, match="unknown job set 'nine'"):
        converted(folder, "a,0,1,60\n", Choices(job_set="nine"))
    with pytest.raises(ReplayError, match="has no speeds on H100"):
        converted(folder, "a,0,1,60\n", Choices(gpu_type="H100"))
    with pytest.raises(ReplayError, match="name one column: of durations, of ends"):
        converted(folder, "a,0,1,60\n", columns=replace(COLUMNS, end="seconds"))


def test_a_window_has_the_jobs_that_are_submitted_in_it(folder: Path) -> None:
    rows = "a,100,1,60\nb,160,1,60\nc,220,1,60\nd,170,0,60\n"
    whole = converted(folder, rows)
    found, outside = window(whole, Bound(60.0, True), Bound(220.0, False))
    assert [job.name for job in found.jobs] == ["b"]
    assert outside == 2
    assert counts(found) == {"without a GPU": 1}
    with pytest.raises(ReplayError, match="the trace has submissions from 100 to 220 s"):
        window(whole, Bound(9000.0, True))
    with pytest.raises(ReplayError, match=r"in the window from 9100 s on; the trace"):
        window(whole, Bound(9000.0, True))
    with pytest.raises(ReplayError, match=r"in the window to 50 s; the trace"):
        window(whole, None, Bound(50.0, False))


def test_a_window_counts_from_the_first_row_whether_or_not_it_becomes_a_job(folder: Path) -> None:
    rows = "a,100,0.5,60\nb,,1,60\nc,160,1,60\nd,230,1,60\n"
    for parts in Parts:
        whole = converted(folder, rows, Choices(parts=parts))
        found, _ = window(whole, Bound(60.0, True), Bound(120.0, True))
        assert [job.name for job in found.jobs] == ["c"], parts


def test_the_load_is_gpu_time_over_that_of_the_cluster_between_submissions(folder: Path) -> None:
    found = converted(folder, "a,0,2,600\nb,1000,1,800\n")
    assert load(found.jobs, 4) == pytest.approx(2000 / 4000, rel=0.01)
    with pytest.raises(ReplayError, match="submitted at once"):
        load(found.jobs[:1], 4)


ROWS = st.lists(
    st.tuples(
        st.floats(0.0, 1e6),
        st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.5, 8.0, 12.0, 64.0]),
        st.floats(0.01, 1e6),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=examples(60), deadline=None)
@given(ROWS, st.sampled_from(bundled().sets), st.booleans(), st.sampled_from(Spans))
def test_converted_jobs_have_the_gpu_time_of_the_trace_within_half_a_step(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[float, float, float]],
    job_set: tuple[str, tuple[str, ...]],
    in_iterations: bool,
    span: Spans,
) -> None:
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    path.write_text(HEAD + "".join(f"j{n},{a!r},{g!r},{s!r}\n" for n, (a, g, s) in enumerate(rows)))
    choices = Choices(job_set=job_set[0], parts=Parts.KEEP, cap=True, span=span)
    columns = replace(COLUMNS, duration=None, iterations="seconds") if in_iterations else COLUMNS
    found = convert([path], columns, bundled(), choices)
    assert len(found.jobs) == len(rows)
    assert not found.left_out
    for job in found.jobs:
        _, gpus, length = rows[int(job.name[1:])]
        whole = math.ceil(gpus)
        own = min(8, whole) if span is Spans.NEVER else whole
        hosts = math.ceil(job.workers / (8 // (own // job.workers)))
        step_gpu_s = own * BOOK.seconds_per_step(job.job_type, "V100", own, hosts)
        ran_s = BOOK.seconds_per_step(job.job_type, "V100", whole, hosts)
        unit_s = ran_s if in_iterations else 1.0
        trace_gpu_s = gpus * length * unit_s
        most = step_gpu_s if trace_gpu_s < step_gpu_s else step_gpu_s / 2 * (1 + 1e-9) + 1e-6
        assert abs(job.steps * step_gpu_s - trace_gpu_s) <= most
        assert own in job.optional_gpus
        assert all(size % job.workers == 0 for size in job.optional_gpus)
        assert own // job.workers <= 8


def test_a_broken_quote_stops_no_file_and_hides_no_line(folder: Path) -> None:
    good = "".join(f"{name},1,1,60\n" for name in ("c", "d", "e"))
    found = converted(folder, f'a,1,1,60\n"b"x,1,1,60\n{good}', Choices(skip_bad=True))
    assert [job.name for job in found.jobs] == ["a", "c", "d", "e"]
    assert found.bad.count == 1
    found = converted(folder, f'a,1,1,60\n"b,1,1,60\n{good}', Choices(skip_bad=True))
    assert [job.name for job in found.jobs] == ["a"]
    assert found.bad.count == 4


def test_dates_without_a_zone_are_of_the_zone_that_is_named(folder: Path) -> None:
    rows = "a,2026-03-29 01:30:00,1,60\nb,2026-03-29 03:30:00,1,60\nc,2026-03-29T02:00:00Z,1,60\n"
    found = converted(folder, rows, Choices(zone=ZoneInfo("Europe/Berlin")))
    first, second, third = found.jobs
    assert second.submit_s - first.submit_s == 3600.0  # the clocks went forward between them
    assert third.submit_s - second.submit_s == 1800.0
    assert any("dates without a zone: Europe/Berlin" in text for text in found.assumptions)
