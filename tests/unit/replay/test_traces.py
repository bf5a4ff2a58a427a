"""Trace files: what is read, and what is said of what cannot be."""

from __future__ import annotations

import pytest

from reshape_controller.core.model import LengthUnit
from reshape_controller.replay.inputs import ReplayError, cluster_of
from reshape_controller.replay.traces import csv_text, jsonl_text, parse

TYPES = ("a", "b")
HEAD = "submit_s,job_type,optional_gpus,steps,priority,user\n"


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
    workload = parse(text, "t", TYPES, jsonl=True)
    for form, jsonl in ((csv_text, False), (jsonl_text, True)):
        assert parse(form(workload), "t", TYPES, jsonl=jsonl).jobs == workload.jobs


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
        ("1,a,1,5,high,", "line 2: priority is 'high'"),
        ("1,a,1,5", "line 2: has another number of cells"),
        ("1,a,1,5,,,,", "line 2: has another number of cells"),
    ],
)
def test_a_line_that_is_no_job_is_named(row: str, what: str) -> None:
    with pytest.raises(ReplayError) as error:
        parse(HEAD + row + "\n", "t", TYPES, jsonl=False)
    assert what in str(error.value)


def test_unknown_columns_broken_lines_and_empty_files_are_refused() -> None:
    with pytest.raises(ReplayError, match="unknown column 'gpu'"):
        parse("submit_s,gpu\n", "t", TYPES, jsonl=False)
    with pytest.raises(ReplayError, match="line 1: is no JSON"):
        parse("{", "t", TYPES, jsonl=True)
    with pytest.raises(ReplayError, match="no jobs"):
        parse(HEAD, "t", TYPES, jsonl=False)
    twice = '{"name": "x", "submit_s": 1, "job_type": "a", "steps": 5}\n' * 2
    with pytest.raises(ReplayError, match="two jobs are called x"):
        parse(twice, "t", TYPES, jsonl=True)


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
