"""Slurm's accounting: rows of one JobID are one job, and no row vanishes.

The files in ``slurm/`` are what Slurm 22.05.8 wrote of 24 jobs on a cluster as that of
``findings/parts/slurm.sh``; of the JSON the steps are cut.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reshape_controller.replay.conversion import (
    DURATION,
    Choices,
    Columns,
    Conversion,
    TraceJob,
    by_reason,
)
from reshape_controller.replay.convert import convert
from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.slurm_jobs import (
    ASKED,
    BESIDE_BAD,
    NEVER_BEGAN,
    NO_END,
    REPEATED,
    STEPS,
    STILL_RUN,
    STILL_WAIT,
    STRANGE,
    UNFINISHED,
)
from reshape_controller.replay.trace_rows import Layout
from reshape_profiles.loader import bundled
from tests.support.gate import examples
from tests.support.replay_bed import reshape

REAL = Path(__file__).parent / "slurm"
COLUMNS = Columns(duration=DURATION)
CHOICES = Choices(sizes=(), skip_bad=True)
HEAD = "JobID|Submit|Start|End|Elapsed|State|AllocTRES\n"
DAY = "2026-03-02T"
RESIZED = (
    f"101|{DAY}08:00:00|{DAY}08:00:05|{DAY}08:10:10|00:10:05|RESIZING|gres/gpu=4",
    f"101|{DAY}08:10:10|{DAY}08:00:05|{DAY}08:40:19|00:40:14|COMPLETED|gres/gpu=2",
)


def of_files(*paths: Path, columns: Columns = COLUMNS, choices: Choices = CHOICES) -> Conversion:
    return convert(paths, columns, bundled(), choices)


def of_rows(folder: Path, *rows: str, head: str = HEAD, choices: Choices = CHOICES) -> Conversion:
    path = folder / "sacct.txt"
    path.write_text(head + "".join(f"{row}\n" for row in rows))
    return of_files(path, choices=choices)


def jobs_of(found: Conversion) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Return GPU time, in whole seconds, and sizes of each job."""
    return {job.name: (round(job.gpu_s), job.optional_gpus) for job in found.jobs}


def reasons(found: Conversion) -> dict[str, int]:
    return {reason: count for reason, count, _ in by_reason(found.left_out)}


def has_gpu_time(job: TraceJob, gpu_s: float) -> bool:
    """Whether a job has this GPU time, but for the rounding to whole steps."""
    step_gpu_s = job.gpu_s / job.steps
    return abs(job.gpu_s - gpu_s) <= step_gpu_s / 2 + 1e-6


@pytest.mark.parametrize("form", ["txt", "json"])
def test_rows_that_slurm_wrote_are_the_jobs_that_ran(form: str) -> None:
    found = of_files(REAL / f"rows-22.05.8.{form}")
    jobs = {job.name: job for job in found.jobs}
    ran = {
        "1": (4 * 6 + 2 * 19, (2, 4)),  # resized after 6 s
        "2": (2 * 3 + 2 * 12, (2,)),  # requeued after 3 s
        "3": (6, (1,)),  # suspended for 6 s
        "4": (3 * 9, (3,)),  # heterogeneous: 1 and 2 GPUs
        "6_1": (4, (1,)),
        "6_2": (4, (1,)),
        "6_3": (4, (1,)),
        "7": (3, (1,)),  # failed
        "10": (2 * 7, (2,)),  # with steps
        "12": (60, (1,)),  # out of time
        "15": (4 * 5 + 2 * 27, (2, 4)),  # suspended before and after its resize
        "18": (10, (1,)),  # cancelled
    }
    for name, (gpu_s, sizes) in ran.items():
        assert has_gpu_time(jobs[name], gpu_s), (name, jobs[name].gpu_s)
        assert jobs[name].optional_gpus == sizes
    assert jobs["2"].submit_s == jobs["1"].submit_s
    assert reasons(found) == {
        f"{NEVER_BEGAN} (CANCELLED)": 1,
        STILL_RUN: 1,
        "with more than 8 GPUs (--span or --cap keeps them)": 1,
        "without a GPU": 1,
        **({STEPS: 25} if form == "txt" else {}),
    }
    rows = (REAL / "rows-22.05.8.txt").read_text().splitlines()[1:]
    count = sum("." not in row.partition("|")[0] or form == "txt" for row in rows)
    assert found.used_rows + sum(row.rows for row in found.left_out) == count


def test_a_resized_job_is_elastic_among_the_counts_that_it_had(tmp_path: Path) -> None:
    found = of_rows(tmp_path, *RESIZED, choices=Choices())
    (job,) = found.jobs
    assert (job.name, job.optional_gpus, job.rows) == ("101", (2, 4), 2)
    assert has_gpu_time(job, 4 * 605 + 2 * 1809)
    assert "2 rows of Slurm are 1 job: the rows of one JobID are one job" in found.assumptions


def test_a_row_after_a_resize_counts_from_the_resize_on(tmp_path: Path) -> None:
    for head, rows in (
        (HEAD, RESIZED[1:]),
        ("JobID|Submit|Start|End|AllocTRES\n", [RESIZED[1].replace("|00:40:14|COMPLETED", "")]),
    ):
        (job,) = of_rows(tmp_path, *rows, head=head).jobs
        assert has_gpu_time(job, 2 * 1809)


def test_the_times_join_rows_without_a_state(tmp_path: Path) -> None:
    head = "JobID|Submit|Start|End|AllocTRES\n"
    rows = [row.replace("|00:10:05|RESIZING", "") for row in RESIZED]
    rows = [row.replace("|00:40:14|COMPLETED", "") for row in rows]
    (job,) = of_rows(tmp_path, *reversed(rows), head=head).jobs
    assert has_gpu_time(job, 4 * 605 + 2 * 1809)
    assert job.optional_gpus == (2, 4)


def test_a_requeued_job_has_the_gpu_time_of_all_its_runs(tmp_path: Path) -> None:
    found = of_rows(
        tmp_path,
        f"7|{DAY}08:00:00|{DAY}08:01:00|{DAY}08:11:00|00:10:00|PREEMPTED|gres/gpu=2",
        f"7|{DAY}08:11:01|{DAY}08:20:00|{DAY}08:25:00|00:05:00|NODE_FAIL|gres/gpu=2",
        f"7|{DAY}08:25:00|{DAY}08:30:00|{DAY}09:30:00|01:00:00|COMPLETED|gres/gpu=2",
        f"8|{DAY}08:00:00|{DAY}08:00:00|{DAY}08:01:00|00:01:00|COMPLETED|gres/gpu=1",
    )
    job = next(job for job in found.jobs if job.name == "7")
    assert has_gpu_time(job, 2 * (600 + 300 + 3600))
    assert job.optional_gpus == (2,)
    assert job.submit_s == min(each.submit_s for each in found.jobs)


def test_a_number_that_slurm_gives_again_is_another_job(tmp_path: Path) -> None:
    found = of_rows(
        tmp_path,
        f"7|{DAY}08:00:00|{DAY}08:01:00|{DAY}08:11:00|00:10:00|COMPLETED|gres/gpu=2",
        f"7|{DAY}18:11:01|{DAY}18:20:00|{DAY}18:25:00|00:05:00|NODE_FAIL|gres/gpu=1",
    )
    assert jobs_of(found).keys() == {"7", "7-2"}
    assert any("JobIDs that began anew" in text for text in found.assumptions)


def test_a_run_that_slurm_requeues_after_a_long_epilog_is_of_the_same_job(tmp_path: Path) -> None:
    found = of_rows(
        tmp_path,
        f"7|{DAY}08:00:00|{DAY}08:01:00|{DAY}08:11:00|00:10:00|PREEMPTED|gres/gpu=2",
        f"7|{DAY}08:13:30|{DAY}08:20:00|{DAY}08:30:00|00:10:00|FAILED|gres/gpu=2",
        f"7|{DAY}08:35:00|{DAY}08:36:00|{DAY}08:46:00|00:10:00|COMPLETED|gres/gpu=2",
    )
    (job,) = found.jobs
    assert has_gpu_time(job, 3 * 2 * 600)


def test_a_job_resized_twice_and_one_requeued_and_resized_have_all_their_gpu_time(
    tmp_path: Path,
) -> None:
    found = of_rows(
        tmp_path,
        f"1|{DAY}08:00:00|{DAY}08:00:05|{DAY}08:10:05|00:10:00|RESIZING|gres/gpu:a=8,gres/gpu=8",
        f"1|{DAY}08:10:05|{DAY}08:00:05|{DAY}08:20:05|00:20:00|RESIZING|gres/gpu:a=4",
        f"1|{DAY}08:20:05|{DAY}08:00:05|{DAY}08:30:05|00:30:00|COMPLETED|gres/gpu=2",
        f"2|{DAY}09:00:00|{DAY}09:00:00|{DAY}09:10:00|00:10:00|REQUEUED|gres/gpu=4",
        f"2|{DAY}09:10:00|{DAY}09:12:00|{DAY}09:22:00|00:10:00|RESIZING|gres/gpu=4",
        f"2|{DAY}09:22:00|{DAY}09:12:00|{DAY}09:32:00|00:20:00|COMPLETED|gres/gpu=1",
    )
    jobs = {job.name: job for job in found.jobs}
    assert has_gpu_time(jobs["1"], (8 + 4 + 2) * 600)
    assert jobs["1"].optional_gpus == (2, 4, 8)
    assert has_gpu_time(jobs["2"], (4 + 4 + 1) * 600)
    assert jobs["2"].optional_gpus == (1, 4)
    assert found.used_rows == 6


def test_gpus_that_only_the_request_names_are_those_of_a_job_that_ran(tmp_path: Path) -> None:
    """Slurm starts no job without the GPUs that it asked for."""
    head = "JobID|Submit|Start|End|State|ReqTRES|AllocTRES\n"
    ran = f"{DAY}08:00:00|{DAY}08:00:00|{DAY}08:10:00|COMPLETED"
    found = of_rows(
        tmp_path,
        f"1|{ran}|cpu=8,gres/gpu=2|cpu=8,node=1",
        f"2|{ran}|cpu=8,gres/gpu:a100=3|",
        f"3|{ran}|gres/gpu=4|gres/gpu:a100=1",
        f"4|{ran}|cpu=8|cpu=8",
        f"5|{DAY}08:00:00|Unknown|{DAY}08:10:00|CANCELLED by 7|gres/gpu=2|",
        f"6|{DAY}08:00:00|{DAY}08:00:00|{DAY}08:10:00|RESIZING|gres/gpu=2|gres/gpu=2",
        f"6|{DAY}08:10:00|{DAY}08:00:00|{DAY}08:20:00|COMPLETED|gres/gpu=2|cpu=8",
        head=head,
    )
    gpu_s = {"1": 2 * 600, "2": 3 * 600, "3": 600, "6": 2 * 600}
    assert {job.name for job in found.jobs} == gpu_s.keys()
    assert all(has_gpu_time(job, gpu_s[job.name]) for job in found.jobs)
    assert reasons(found) == {"without a GPU": 1, f"{NEVER_BEGAN} (CANCELLED)": 1}
    assert f"{ASKED} (2 jobs)" in found.assumptions


def test_a_job_that_ended_without_an_end_is_as_long_as_its_elapsed(tmp_path: Path) -> None:
    found = of_rows(
        tmp_path,
        f"1|{DAY}08:00:00|{DAY}08:00:00|Unknown|00:10:00|COMPLETED|gres/gpu=1",
        f"2|{DAY}08:00:00|{DAY}08:00:00|Unknown|00:10:00|RUNNING|gres/gpu=1",
    )
    (job,) = found.jobs
    assert has_gpu_time(job, 600)
    assert reasons(found) == {STILL_RUN: 1}
    assert f"{NO_END} (1 job)" in found.assumptions


def test_states_that_slurm_does_not_have_are_named(tmp_path: Path) -> None:
    times = f"{DAY}08:00:00|{DAY}08:00:00|{DAY}08:10:00|00:10:00"
    states = ("COMPLETED", "ODD", "OUT_OF_ME+", "CANCELLED by 1000", "", "completed")
    rows = [f"{n}|{times}|{state}|gres/gpu=1" for n, state in enumerate(states)]
    found = of_rows(tmp_path, *rows)
    assert len(found.jobs) == len(states)
    assert f"{STRANGE.format('ODD')} (1 job)" in found.assumptions
    assert len([text for text in found.assumptions if "does not have" in text]) == 1


def test_what_is_assumed_is_counted_of_jobs_that_are_used(tmp_path: Path) -> None:
    times = f"{DAY}08:00:00|{DAY}08:00:00|{DAY}08:10:00|00:10:00|FAILED"
    rows = [f"1|{times}|gres/gpu=1", f"2|{times}|cpu=64", f"3|{times}|gres/gpu=64"]
    assert f"{UNFINISHED} (1 job)" in of_rows(tmp_path, *rows).assumptions


def test_users_tell_jobs_with_one_number_apart(tmp_path: Path) -> None:
    head = "JobID|User|Submit|Start|End|AllocTRES\n"
    rows = (
        f"7|ana|{DAY}08:00:00|{DAY}08:01:00|{DAY}08:11:00|gres/gpu=2",
        f"7|bo|{DAY}08:11:00|{DAY}08:20:00|{DAY}08:25:00|gres/gpu=1",
    )
    found = of_rows(tmp_path, *rows, head=head)
    assert [(job.name, job.user) for job in found.jobs] == [("7", "ana"), ("7-2", "bo")]


def test_components_of_a_heterogeneous_job_have_their_gpus_at_once(tmp_path: Path) -> None:
    times = f"{DAY}08:00:00|{DAY}08:00:00|{DAY}08:10:00|00:10:00|COMPLETED"
    found = of_rows(
        tmp_path,
        f"9+0|{times}|cpu=4,gres/gpu:a100=2,gres/gpu=2,node=1",
        f"9+1|{times}|cpu=4,gres/gpu:v100=3",
        f"9+2|{times}|cpu=64,node=4",
    )
    (job,) = found.jobs
    assert (job.name, job.optional_gpus, job.rows) == ("9", (5,), 3)
    assert has_gpu_time(job, 5 * 600)


def test_files_of_two_months_may_repeat_a_row(tmp_path: Path) -> None:
    begin = f"5|{DAY}08:00:00|{DAY}08:00:00|"
    first, second = tmp_path / "march.txt", tmp_path / "april.txt"
    first.write_text(f"{HEAD}{begin}Unknown|00:10:00|RUNNING|gres/gpu=1\n")
    second.write_text(f"{HEAD}{begin}{DAY}08:30:00|00:30:00|COMPLETED|gres/gpu=1\n")
    for paths in ((first, second), (second, first), (first, second, second)):
        found = of_files(*paths)
        (job,) = found.jobs
        assert has_gpu_time(job, 1800)
        assert reasons(found) == {REPEATED: len(paths) - 1}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (f"1|{DAY}08:00:00|Unknown|Unknown|00:00:00|PENDING|", STILL_WAIT),
        (f"1_[3-9%2]|{DAY}08:00:00|Unknown|Unknown|00:00:00|PENDING|", STILL_WAIT),
        (
            f"1|{DAY}08:00:00|None|{DAY}09:00:00|00:00:00|CANCELLED by 7|",
            f"{NEVER_BEGAN} (CANCELLED)",
        ),
        (f"1|{DAY}08:00:00|{DAY}08:00:00|Unknown|01:00:00|RUNNING|gres/gpu=1", STILL_RUN),
        (f"1|{DAY}08:00:00|{DAY}08:00:00|Unknown|01:00:00|SUSPENDED|gres/gpu=1", STILL_RUN),
        (
            f"1|{DAY}08:00:00|{DAY}08:00:00|{DAY}09:00:00|01:00:00|REQUEUED|gres/gpu=1",
            STILL_WAIT,
        ),
        (f"1.0|{DAY}08:00:00|{DAY}08:00:00|{DAY}09:00:00|01:00:00|COMPLETED|gres/gpu=1", STEPS),
        (
            f"1|{DAY}08:00:00|{DAY}08:00:00|{DAY}09:00:00|01:00:00|COMPLETED|cpu=1",
            "without a GPU",
        ),
    ],
)
def test_each_row_that_becomes_no_job_has_a_reason(tmp_path: Path, row: str, reason: str) -> None:
    other = f"2|{DAY}08:00:00|{DAY}08:00:00|{DAY}09:00:00|01:00:00|COMPLETED|gres/gpu=1"
    assert reasons(of_rows(tmp_path, row, other)) == {reason: 1}


def test_a_requeued_job_that_waits_again_is_left_out_with_its_gpu_time(tmp_path: Path) -> None:
    other = f"2|{DAY}08:00:00|{DAY}08:00:00|{DAY}09:00:00|01:00:00|COMPLETED|gres/gpu=1"
    begin = f"1|{DAY}08:00:00|{DAY}08:00:00|{DAY}08:10:00|00:10:00|REQUEUED|gres/gpu=4"
    waits = f"1|{DAY}08:10:00|Unknown|Unknown|00:00:00|PENDING|"
    ended = f"1|{DAY}08:10:00|None|{DAY}08:30:00|00:00:00|CANCELLED by 7|"
    found = of_rows(tmp_path, begin, waits, other)
    assert by_reason(found.left_out) == [(STILL_WAIT, 2, 4 * 600.0)]
    jobs = {job.name: job for job in of_rows(tmp_path, begin, ended, other).jobs}
    assert has_gpu_time(jobs["1"], 4 * 600)


def test_a_row_that_cannot_be_read_takes_its_job_with_it_and_is_named(tmp_path: Path) -> None:
    other = f"2|{DAY}08:00:00|{DAY}08:00:00|{DAY}09:00:00|01:00:00|COMPLETED|gres/gpu=1"
    found = of_rows(tmp_path, RESIZED[0], RESIZED[1].replace("gpu=2", "gpu=two"), other)
    assert [job.name for job in found.jobs] == ["2"]
    assert reasons(found) == {BESIDE_BAD: 1}
    assert found.bad.count == 1
    assert "line 3" in found.bad.shown[0]


def test_running_jobs_count_so_far_if_elapsed_is_their_length(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    runs = RESIZED[1].replace(f"{DAY}08:40:19", "Unknown").replace("COMPLETED", "RUNNING")
    path.write_text(f"{HEAD}{RESIZED[0]}\n{runs}\n")
    (job,) = of_files(path, columns=replace(COLUMNS, duration="Elapsed")).jobs
    assert has_gpu_time(job, 4 * 605 + 2 * 1809)


def test_a_running_job_may_have_a_default_duration(tmp_path: Path) -> None:
    row = f"1|{DAY}08:00:00|{DAY}08:00:00|Unknown|01:00:00|RUNNING|gres/gpu=1"
    found = of_rows(tmp_path, row, choices=replace(CHOICES, default_duration_s=7200.0))
    assert has_gpu_time(found.jobs[0], 7200)


def test_other_spellings_of_the_same_rows_are_the_same_jobs(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    names = tuple(HEAD.strip().split("|"))
    texts = {
        "raw": (HEAD + "".join(f"{row}\n" for row in RESIZED)).replace("JobID|", "JobIDRaw|"),
        "parsable": HEAD.replace("\n", "|\n") + "".join(f"{row}|\n" for row in RESIZED),
        "windows": "\ufeff" + HEAD.replace("\n", "\r\n") + "".join(f"{r}\r\n" for r in RESIZED),
        "tabs": (HEAD + "".join(f"{row}\n" for row in RESIZED)).replace("|", "\t"),
        "noheader": "".join(f"{row}\n" for row in RESIZED),
    }
    for name, text in texts.items():
        path.write_bytes(text.encode())
        layout = Layout(names if name == "noheader" else None)
        (job,) = of_files(path, choices=replace(CHOICES, layout=layout)).jobs
        assert has_gpu_time(job, 4 * 605 + 2 * 1809), name


def test_a_quote_in_a_text_of_slurm_is_a_character(tmp_path: Path) -> None:
    head = "JobID|JobName|Submit|Start|End|AllocTRES\n"
    rows = [f'{n}|"half|{DAY}08:00:00|{DAY}08:00:00|{DAY}09:00:00|gres/gpu=1' for n in (1, 2)]
    assert [job.name for job in of_rows(tmp_path, *rows, head=head).jobs] == ["1", "2"]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 5000)), min_size=1, max_size=6))
def test_no_gpu_time_is_lost_or_counted_twice(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, int]]
) -> None:
    rows, at, begin = [], 100, 60
    for number, (gpus, seconds) in enumerate(pieces):
        submit, end = (0, begin + seconds) if not number else (at, at + seconds)
        state = "RESIZING" if number < len(pieces) - 1 else "COMPLETED"
        clock = f"{(end - begin) // 3600:02}:{(end - begin) // 60 % 60:02}:{(end - begin) % 60:02}"
        rows.append(f"1|{submit}|{begin}|{end}|{clock}|{state}|gres/gpu:t={gpus},gres/gpu={gpus}")
        at = end
    (job,) = of_rows(tmp_path_factory.mktemp("rows"), *rows).jobs
    assert has_gpu_time(job, sum(gpus * seconds for gpus, seconds in pieces))
    assert set(job.optional_gpus) == {gpus for gpus, _ in pieces}
    assert job.rows == len(pieces)


def test_numbers_of_later_versions_of_json_are_read(tmp_path: Path) -> None:
    job = json.loads((REAL / "rows-22.05.8.json").read_text())["jobs"][0]
    job["time"]["submission"] = {"set": True, "infinite": False, "number": 1795938717}
    job["array"] = {"job_id": 77, "task_id": {"set": True, "infinite": False, "number": 0}}
    job["het"] = {"job_id": 0, "job_offset": {"set": False, "infinite": False, "number": 0}}
    job["state"]["current"] = ["CANCELLED"]
    path = tmp_path / "sacct.json"
    path.write_text(json.dumps({"jobs": [job, "other"]}))
    found = of_files(path)
    assert jobs_of(found).keys() == {"77_0"}
    assert found.bad.count == 1


def test_a_file_of_slurm_needs_no_option_and_no_other_file_beside_it(tmp_path: Path) -> None:
    out, other = tmp_path / "jobs.csv", tmp_path / "other.csv"
    path = REAL / "rows-22.05.8.txt"
    found = reshape("workload", "convert", str(path), "--out", str(out))
    assert found.exit_code == 0, found.output
    assert reshape("replay", "-w", str(out), "-o", "json").exit_code == 0
    other.write_text("submit_time,gpu_num,duration\n0,1,60\n")
    with pytest.raises(ReplayError, match="is no file of Slurm, and others are"):
        of_files(path, other)
    raw = tmp_path / "raw.txt"
    raw.write_text(f"{HEAD}{RESIZED[1]}\n".replace("JobID", "JobIDRaw"))
    with pytest.raises(ReplayError, match="some files have JobID, others JobIDRaw"):
        of_files(path, raw)
