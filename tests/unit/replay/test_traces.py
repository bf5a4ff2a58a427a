"""Trace files: what is read, and what is said of what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reshape_controller.core.model import LengthUnit
from reshape_controller.replay.inputs import ReplayError, cluster_of
from reshape_controller.replay.traces import csv_text, jsonl_text, parse
from tests.support.replay_bed import reshape

TYPES = ("a", "b")
HEAD = "submit_s,job_type,optional_gpus,steps,priority,user\n"
LINE = {"submit_s": 1, "job_type": "a", "steps": 5}


def test_a_csv_is_read_in_the_order_of_submission() -> None:
    workload = parse(HEAD + "20,a,1 2 4,100,,\n5,b,8,50,3,ada\n", "t", TYPES, jsonl=False)
    second, first = workload.jobs[1], workload.jobs[0]
    assert (first.submit_s, first.spec.job_type, first.spec.optional_gpus) == (5.0, "b", (8,))
    assert (first.spec.priority, first.spec.user) == (3, "ada")
    assert second.spec.length is not None
    assert (second.spec.length.unit, second.spec.length.value) == (LengthUnit.STEPS, 100.0)
    assert second.spec.optional_gpus == (1, 2, 4)


def test_json_lines_and_csv_hold_the_same_jobs() -> None:
    text = '{"submit_s": 1, "job_type": "a", "target_accuracy": 0.5, "optional_gpus": [2, 1]}\n'
    gang = '{"submit_s": 2, "job_type": "a", "steps": 9, "optional_gpus": [4], "workers": 2, '
    gang += '"span": "any", "placement": "spread"}\n'
    for lines in (text, text + gang):
        workload = parse(lines, "t", TYPES, jsonl=True)
        for form, jsonl in ((csv_text, False), (jsonl_text, True)):
            assert parse(form(workload), "t", TYPES, jsonl=jsonl).jobs == workload.jobs
    assert "workers" not in csv_text(parse(text, "t", TYPES, jsonl=True))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"workers": 3}, "workers is 3, and they cannot share 2, 4 GPUs equally"),
        ({"workers": 0}, "workers is 0, and must be a whole number from 1 to 1024"),
        ({"span": "any"}, "span is any, which places workers on several hosts; give workers"),
        ({"span": "often", "workers": 2}, "span is 'often', and must be one of never, if-needed"),
        ({"placement": "spread", "workers": 2}, "placement is spread, and span is never"),
    ],
)
def test_workers_and_span_follow_the_rules_of_a_record(
    fields: dict[str, object], what: str
) -> None:
    text = json.dumps({**LINE, "optional_gpus": [2, 4], **fields})
    with pytest.raises(ReplayError, match=f"line 1: {what}"):
        parse(text, "t", TYPES, jsonl=True)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (",a,1,5,,", "line 2: submit_s is missing"),
        ("1,c,1,5,,", "line 2: job_type 'c' has no profile"),
        ("1,a,1,,,", "line 2: give one of epochs, steps, target_accuracy, not none"),
        ("-1,a,1,5,,", "line 2: submit_s is '-1'"),
        ("nan,a,1,5,,", "line 2: submit_s is 'nan'"),
        ("1,a,0,5,,", "line 2: optional_gpus is '0'"),
        ("1,a,1,0,,", "line 2: steps is 0, which no job can reach"),
        ("1,a,1,5.5,,", "line 2: steps is 5.5, and must be a whole number"),
        ("1,a,1,5,high,", "line 2: priority is 'high'"),
        (
            "1,a,1,5,1e300,",
            "priority is '1e300', and must be a whole number from -1000000 to 100000",
        ),
        (f"1,a,1,5,{10**30},", "line 2: priority is '10000000"),
        (f"1,a,1,5,-{10**30},", "line 2: priority is '-1000000"),
        (f"1,a,1 {10**30},5,,", "give at most 64 numbers of GPUs from 1 to 1024, as in 1 2 4"),
        ("1,a,1025,5,,", "line 2: optional_gpus is '1025'"),
        (f"1,a,{'9' * 5000},5,,", "line 2: optional_gpus is '999"),
        ("1,a,1,1e308,,", "line 2: steps is 1e+308, and must be at most 1e+12"),
        ("1,a,1,5", "line 2: must have as many cells as line 1"),
        ("1,a,1,5,,,,", "line 2: must have as many cells as line 1"),
    ],
)
def test_a_line_that_is_no_job_is_named(row: str, what: str) -> None:
    with pytest.raises(ReplayError) as error:
        parse(HEAD + row + "\n", "t", TYPES, jsonl=False)
    assert what in str(error.value)


def test_unknown_columns_broken_lines_and_empty_files_are_refused() -> None:
    with pytest.raises(ReplayError, match="unknown column 'gpu'"):
        parse("submit_s,gpu\n", "t", TYPES, jsonl=False)
    with pytest.raises(ReplayError, match="line 1: is not valid JSON"):
        parse("{", "t", TYPES, jsonl=True)
    with pytest.raises(ReplayError, match="no jobs"):
        parse(HEAD, "t", TYPES, jsonl=False)
    twice = '{"name": "x", "submit_s": 1, "job_type": "a", "steps": 5}\n' * 2
    with pytest.raises(ReplayError, match="line 2: the job name 'x' is also in line 1"):
        parse(twice, "t", TYPES, jsonl=True)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"global_batch": 0}, "global_batch is 0, and must be a whole number from 1"),
        ({"global_batch": -5}, "global_batch is -5, and must be a whole number from 1"),
        (
            {"global_batch": 6, "optional_gpus": [1, 2, 4]},
            "global_batch is 6, which cannot be split evenly over 4 GPUs",
        ),
        ({"max_wait_s": 1e300}, "max_wait_s is 1e+300, and must be a number from 0 to 3.1536e+07"),
        ({"priority": 10**30}, "priority is 1000000000000000000000000000000, and must be a whole"),
        (
            {"optional_gpus": [1, 10**30]},
            "optional_gpus is [1, 1000000000000000000000000000000]; give",
        ),
        ({"name": "a\ud800"}, "name is 'a\\ud800', which holds half a character"),
        ({"name": True}, "name is True, and must be a text"),
        ({"user": [1]}, "user is [1], and must be a text"),
        ({"user": "a\ud800"}, "user is 'a\\ud800', which holds half a character"),
    ],
)
def test_a_value_that_no_job_can_have_is_named_with_its_line(
    change: dict[str, object], what: str
) -> None:
    with pytest.raises(ReplayError) as error:
        parse(json.dumps(LINE | change), "t", TYPES, jsonl=True)
    assert f"t: line 1: {what}" in str(error.value)


def test_a_line_that_is_too_deep_is_no_json() -> None:
    with pytest.raises(ReplayError, match="line 1: is not valid JSON"):
        parse("[" * 100_000, "t", TYPES, jsonl=True)


def test_a_column_that_is_there_twice_is_refused_instead_of_the_first_one_ignored() -> None:
    with pytest.raises(ReplayError, match="line 1: column 'steps' appears twice"):
        parse("submit_s,job_type,steps,steps\n1,a,5,6\n", "t", TYPES, jsonl=False)


def test_a_name_that_is_twice_in_a_line_is_refused_instead_of_the_first_one_ignored() -> None:
    line = '{"submit_s": 1, "job_type": "a", "steps": 5, "steps": 6}'
    with pytest.raises(ReplayError, match="line 1: 'steps' appears twice; keep one"):
        parse(line, "t", TYPES, jsonl=True)


@pytest.mark.parametrize("command", [("replay", "-w"), ("workload", "convert")])
def test_a_file_of_a_spreadsheet_begins_with_a_mark_that_is_no_part_of_its_first_column(
    command: tuple[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "trace.csv"
    head = "submit_s,job_type,steps" if command[0] == "replay" else "submit_time,gpu_num,duration"
    row = "0,lenet-b1024-mnist,5" if command[0] == "replay" else "0,1,60"
    path.write_text(f"\ufeff{head}\r\n{row}\r\n", encoding="utf-8")
    assert reshape(*command, str(path)).exit_code == 0


def test_a_cluster_is_written_in_one_line() -> None:
    cluster = cluster_of("8xV100+2*4xA100-SXM4-80GB")
    assert [(host.gpu_type, host.gpus) for host in cluster.hosts] == [
        ("V100", 8),
        ("A100-SXM4-80GB", 4),
        ("A100-SXM4-80GB", 4),
    ]
    assert cluster.gpus == 16
    for text in ("", "8", "0xV100", "V100x8", "8xV100+", "0*8xV100", "999999*8xV100"):
        with pytest.raises(ReplayError, match="cluster"):
            cluster_of(text)


def test_a_line_of_json_ends_where_a_line_of_the_file_ends() -> None:
    row = '{"submit_s": 0, "job_type": "kind", "steps": 5, "name": "a\u2028b\x85c"}'
    (job,) = parse(f"{row}\n", "t", ["kind"], jsonl=True).jobs
    assert job.spec.name == "a\u2028b\x85c"
