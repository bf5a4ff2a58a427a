"""Formats of public traces, by the rows that their publishers quote (decision 0272)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.replay_bed import reshape

HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
1425513,uzqls,vcpDC,1,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 14:15:21,675233,0
"""  # noqa: E501
PAI = (
    "4f057009a5d481acec67b088,tensorflow,1.0,Terminated,1739162.0,1739200.0,"
    "600.0,29.296875,50.0,MISC\n"
)
PHILLY: dict[str, Any] = {
    "status": "Pass",
    "jobid": "application_1506638472019_14199",
    "user": "ce2f4c",
    "submitted_time": "2017-10-07 01:11:39",
    "attempts": [
        {
            "start_time": "2017-10-07 01:12:09",
            "end_time": "2017-10-07 01:13:23",
            "detail": [{"ip": "m47", "gpus": [f"gpu{n}" for n in range(8)]}],
        },
        {
            "start_time": "2017-10-07 01:13:30",
            "end_time": "2017-10-09 06:53:12",
            "detail": [{"ip": "m412", "gpus": [f"gpu{n}" for n in range(8)]}],
        },
    ],
}
OF_PHILLY = (
    *("--submit", "submitted_time", "--gpus", "attempts.-1.detail.gpus", "--name", "jobid"),
    *("--start", "attempts.-1.start_time", "--end", "attempts.-1.end_time", "--user", "user"),
)
OF_PAI = (
    *(
        "--head",
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type",
    ),
    *("--submit", "start_time", "--end", "end_time", "--gpus", "inst_num", "--percent", "plan_gpu"),
)


def gpu_hours_of(path: Path, *options: str) -> tuple[dict[str, int], float]:
    """Return the jobs by GPUs, and the GPU hours, that `describe` says of a trace."""
    found = reshape("workload", "describe", str(path), *options, "-o", "json")
    assert found.exit_code == 0, found.output
    demand = json.loads(found.stdout)["demand"]
    return demand["jobs_by_gpus"], demand["gpu_hours"]


def test_rows_of_helios_need_no_column(tmp_path: Path) -> None:
    path = tmp_path / "cluster_log.csv"
    path.write_text(HELIOS)
    by_gpus, hours = gpu_hours_of(path, "--name", "job_id", "--user", "user")
    assert by_gpus == {"1": 2, "4": 1}
    assert hours == pytest.approx((36848 + 4 * 249 + 675233) / 3600, rel=1e-4)


def test_a_job_of_philly_has_its_last_attempt(tmp_path: Path) -> None:
    path = tmp_path / "cluster_job_log.json"
    runs = {**PHILLY, "jobid": "runs", "attempts": [{**PHILLY["attempts"][0], "end_time": None}]}
    path.write_text(json.dumps([PHILLY, runs, {**PHILLY, "jobid": "none", "attempts": []}]))
    by_gpus, hours = gpu_hours_of(path, *OF_PHILLY)
    assert by_gpus == {"8": 1}
    assert hours == pytest.approx(8 * 193182 / 3600, rel=1e-4)
    found = reshape("workload", "convert", str(path), *OF_PHILLY)
    assert "read: 3 rows: 1 in 1 job, 2 left out" in found.stderr
    assert "1 row without a length" in found.stderr
    assert "1 row without a GPU" in found.stderr


def test_half_a_gpu_of_pai_keeps_its_gpu_time(tmp_path: Path) -> None:
    path = tmp_path / "pai_task_table.csv"
    path.write_text(PAI)
    by_gpus, hours = gpu_hours_of(path, *OF_PAI, "--parts", "keep")
    assert by_gpus == {"1": 1}
    assert hours == pytest.approx(0.5 * 38 / 3600, rel=0.05)


def test_a_log_of_another_form_is_refused_with_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "qstat.csv"
    path.write_text("Job_Id,resources_used.walltime,ngpus\n1,01:00:00,2\n")
    found = reshape("workload", "convert", str(path))
    what = "no column 'submit_time'; columns: Job_Id, resources_used.walltime, ngpus"
    assert what in str(found.exception)
