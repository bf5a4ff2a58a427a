"""Accounting files of Slurm: its durations, its lists of resources, and its rows of job steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reshape_controller.core.model import Spans
from reshape_controller.replay import slurm_cells
from reshape_controller.replay.conversion import Choices, Columns, Conversion, by_reason
from reshape_controller.replay.convert import convert
from reshape_controller.replay.trace_gpus import Parts
from reshape_controller.replay.trace_rows import BadRowsError, Layout
from reshape_profiles.loader import bundled
from tests.support.gate import examples
from tests.support.replay_bed import reshape

SACCT = Path(__file__).parents[3] / "examples" / "trace" / "sacct.txt"
NAMED = ["--separator", "|", "--name", "JobID", "--user", "User", "--submit", "Submit"]
NAMED += ["--gpus", "AllocTRES"]
TIMES = ["--start", "Start", "--end", "End"]
HEAD = "JobID|Submit|Elapsed|AllocTRES\n"
COLUMNS = Columns("Submit", "AllocTRES", duration="Elapsed", name="JobID")
FOUR = "billing=8,cpu=8,gres/gpu=4,mem=64G"


def of_rows(
    folder: Path, rows: str, parts: Parts = Parts.LEAVE_OUT, columns: Columns = COLUMNS
) -> Conversion:
    path = folder / "sacct.txt"
    path.write_text(HEAD + rows)
    choices = Choices(parts=parts, layout=Layout(separator="|"))
    return convert([path], columns, bundled(), choices)


def counts(found: Conversion) -> dict[str, int]:
    return {reason: count for reason, count, _ in by_reason(found.left_out)}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:00", 0.0),
        ("00:45", 45.0),
        ("05:00", 300.0),
        ("01:30:00", 5400.0),
        ("1-04:00:00", 100800.0),
        ("365-23:59:59", 366 * 86400.0 - 1.0),
        ("00:01.250", 1.25),
        (" 120:00:00 ", 432000.0),
    ],
)
def test_a_duration_of_slurm_is_read_in_seconds(text: str, seconds: float) -> None:
    assert slurm_cells.seconds_of(text) == seconds


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 10**8))
def test_each_duration_that_slurm_writes_is_read_as_its_seconds(seconds: int) -> None:
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    text = f"{days}-{hour:02}:{minute:02}:{second:02}"
    assert slurm_cells.seconds_of(text) == seconds
    if not days:
        assert slurm_cells.seconds_of(text.removeprefix("0-")) == seconds


@pytest.mark.parametrize(
    "text", ["-00:01:00", "1-24:00:00", "00:60:00", "00:00:60", "1-05:30", "1:2:3:4", ":", "1e3:00"]
)
def test_a_text_that_slurm_does_not_write_is_no_duration(tmp_path: Path, text: str) -> None:
    assert slurm_cells.seconds_of(text) is None
    what = rf"sacct\.txt: line 2: Elapsed is '{text}'; write seconds, or \[D-\]HH:MM:SS"
    with pytest.raises(BadRowsError, match=what):
        of_rows(tmp_path, f"1|0|{text}|{FOUR}\n")


@pytest.mark.parametrize(
    ("text", "gpus", "kind"),
    [
        (FOUR, 4, ""),
        ("cpu=1,gres/gpu:a100=4", 4, "a100"),
        ("gres/gpu:a100=4,gres/gpu=4", 4, "a100"),
        ("gres/gpu=6,gres/gpu:a100=4", 6, "a100"),
        ("gres/gpu:v100=1,gres/gpu:a100=2", 3, "a100+v100"),
        ("cpu=8,mem=64G,node=1", 0, ""),
        ("gres/gpumem=80G,gres/gpuutil=90,gres/shard=5,gres/mps=100", 0, ""),
        ("gres/gpu:a100_3g.20gb=1", 3 / 7, "a100_3g.20gb"),
        ("gres/gpu:a30_2g.12gb=1", 1 / 2, "a30_2g.12gb"),
        ("gres/gpu=3,gres/gpu:1g.5gb=2,gres/gpu:a100=1", 1 + 2 / 7, "1g.5gb+a100"),
    ],
)
def test_gpus_are_those_of_the_list_of_resources(text: str, gpus: float, kind: str) -> None:
    assert slurm_cells.is_resources(text)
    assert slurm_cells.gpus_of(text) == pytest.approx(gpus)
    assert slurm_cells.gpu_type_of(text) == kind


@pytest.mark.parametrize("count", ["", "x", "-1", "1.5", "4G", "9" * 5000])
def test_a_number_of_gpus_that_cannot_be_read_is_named_with_its_line(
    tmp_path: Path, count: str
) -> None:
    with pytest.raises(BadRowsError, match=r"line 2: AllocTRES is 'cpu=1,gres/gpu=.* is no number"):
        of_rows(tmp_path, f"1|0|05:00|cpu=1,gres/gpu={count}\n")


def test_other_texts_in_the_column_of_gpus_are_no_lists_of_resources(tmp_path: Path) -> None:
    for text in ("gpu:4", "cpu=1,gpu", "gres:gpu:4"):
        with pytest.raises(BadRowsError, match=r"line 2: AllocTRES is .* and must be a number"):
            of_rows(tmp_path, f"1|0|05:00|{text}\n")


def test_a_mig_slice_is_a_part_of_a_gpu_and_never_silently_whole(tmp_path: Path) -> None:
    rows = f"1|0|05:00|{FOUR}\n2|0|700|gres/gpu:a100_2g.10gb=1\n"
    assert counts(of_rows(tmp_path, rows)) == {"with a part of a GPU": 1}
    kept = of_rows(tmp_path, rows, Parts.KEEP).jobs[1]
    assert kept.gpu_s == pytest.approx(200, abs=2)


def test_a_job_has_the_gpu_time_of_its_row(tmp_path: Path) -> None:
    (job,) = of_rows(tmp_path, f"7|2026-03-02T08:00:00|1-01:00:00|{FOUR}\n").jobs
    assert job.gpu_s == pytest.approx(4 * 25 * 3600, abs=4)


def test_steps_are_left_out_as_their_job_has_their_gpus(tmp_path: Path) -> None:
    steps = "".join(f"1.{step}|0|05:00|{FOUR}\n" for step in ("batch", "extern", "0"))
    found = of_rows(tmp_path, f"1|0|05:00|{FOUR}\n{steps}")
    assert [job.name for job in found.jobs] == ["1"]
    assert by_reason(found.left_out) == [("of steps inside Slurm's jobs", 3, 0.0)]


def test_a_dot_in_a_name_of_another_trace_marks_no_step(tmp_path: Path) -> None:
    assert [job.name for job in of_rows(tmp_path, "a.b|0|300|4\n").jobs] == ["a.b"]


def test_a_job_on_several_hosts_has_a_worker_for_each(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(
        HEAD + f"1|0|300|{FOUR},node=2\n2|0|300|{FOUR}\n3|0|300|cpu=8,gres/gpu=24,node=3\n"
    )
    columns = replace(COLUMNS, hosts="AllocTRES")
    choices = Choices(layout=Layout(separator="|"), span=Spans.ANY)
    found = convert([path], columns, bundled(), choices)
    assert [job.workers for job in found.jobs] == [2, 1, 3]
    path.write_text(HEAD + f"1|0|300|{FOUR},node=two\n")
    with pytest.raises(BadRowsError, match="'two' is no number of hosts"):
        convert([path], columns, bundled(), choices)


@pytest.mark.parametrize("text", ["UNLIMITED", "Partition_Limit", "Unknown", ""])
def test_a_length_without_a_limit_is_no_length(tmp_path: Path, text: str) -> None:
    found = of_rows(tmp_path, f"1|0|05:00|{FOUR}\n2|0|{text}|{FOUR}\n")
    assert counts(found) == {"without a length": 1}


def test_a_job_that_waits_or_runs_has_no_start_or_no_end(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(
        "Submit|Start|End|AllocTRES\n"
        f"2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T08:10:00|{FOUR}\n"
        f"2026-03-02T08:00:00|2026-03-02T08:00:00|Unknown|{FOUR}\n"
        f"2026-03-02T08:00:00|Unknown|Unknown|{FOUR}\n"
        f"Unknown|2026-03-02T08:00:00|2026-03-02T08:10:00|{FOUR}\n"
    )
    columns = Columns("Submit", "AllocTRES", start="Start", end="End")
    found = convert([path], columns, bundled(), Choices(layout=Layout(separator="|")))
    assert counts(found) == {"without a length": 2, "without a submission": 1}


def test_the_gpu_type_of_a_job_is_that_of_its_resources(tmp_path: Path) -> None:
    rows = "1|0|6000|gres/gpu:tesla=1\n2|0|6000|gres/gpu=1\n"
    columns = Columns("Submit", "AllocTRES", duration="Elapsed", gpu_type="AllocTRES")
    with pytest.raises(BadRowsError, match=r"line 2: AllocTRES is 'tesla', .* --map tesla=V100"):
        of_rows(tmp_path, rows, columns=columns)


def test_the_documented_command_converts_a_file_of_sacct(tmp_path: Path) -> None:
    out = tmp_path / "jobs.csv"
    found = reshape("workload", "convert", str(SACCT), *NAMED, *TIMES, "--out", str(out))
    assert found.exit_code == 0, found.output
    for reason in (
        "1 row of steps inside Slurm's jobs (7.69% of rows, 0.00% of GPU time)",
        "1 row with more than 8 GPUs (--span or --cap keeps them)",
        "2 rows without a GPU",
        "1 row without a length",
    ):
        assert f"left out: {reason}" in found.stderr
    names = [line.partition(",")[0] for line in out.read_text().splitlines()[1:]]
    assert names == ["4101", "4102", "4103_1", "4103_2", "4106", "4107", "4108", "4109"]


def test_a_separator_that_is_not_named_is_named_by_the_error(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("id|submit_time|gpu_num|duration\n1|0|1|60\n")
    found = reshape("workload", "convert", str(path))
    assert "add --separator '|'" in str(found.exception)


def test_a_file_of_sacct_needs_no_options(tmp_path: Path) -> None:
    named, plain = tmp_path / "named.csv", tmp_path / "plain.csv"
    reshape("workload", "convert", str(SACCT), *NAMED, *TIMES, "--out", str(named))
    found = reshape("workload", "convert", str(SACCT), "--out", str(plain))
    assert found.exit_code == 0, found.output
    assert plain.read_text() == named.read_text()
