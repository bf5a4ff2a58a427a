"""Profiles over HTTP: recorded, shown, and what predictions go by from then on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reshape_profiles import loader
from reshape_profiles.schema import Profile, SpeedPoint
from tests.support.http_bed import RECORD, Api, run

SLOW = Profile("slow", speed=(SpeedPoint("testing", 2, 100.0, "x"), SpeedPoint("testing", 4, 50.0)))
JOB = {**RECORD, "job_type": "slow", "steps": 10}


async def predicted_s(it: Api, job: str) -> float:
    """The makespan that the newest decision about a job expects."""
    newest = (await it.get(f"/v1/jobs/{job}/decisions")).json["decisions"][-1]
    return float(newest["options"][newest["chosen"]]["makespan_s"])


def test_a_recorded_profile_is_shown_and_is_what_the_next_decision_predicts_by(
    tmp_path: Path,
) -> None:
    async def test(it: Api) -> None:
        answer = await it.post("/v1/profiles", loader.document((SLOW,)))
        assert (answer.code, answer.json) == (200, {"recorded": ["slow"], "unchanged": []})
        (row,) = (await it.get("/v1/profiles")).json["profiles"]
        assert (row["job_type"], row["learned"]) == ("slow", None)
        assert row["profile"]["speed"][0]["seconds_per_step"] == 100.0
        await it.post("/v1/jobs", JOB)
        await it.reaches("job", "running")
        assert 500 <= await predicted_s(it, "job") < 600, "10 steps of 50 s on 4 GPUs"

    run(tmp_path, test)


def test_what_is_recorded_already_is_left_as_it_is(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        other = Profile("other", text="another")
        await it.post("/v1/profiles", loader.document((SLOW,)))
        before = (await it.get("/v1/profiles")).json["profiles"]
        answer = await it.post("/v1/profiles", loader.document((other, SLOW)))
        assert answer.json == {"recorded": ["other"], "unchanged": ["slow"]}
        after = (await it.get("/v1/profiles")).json["profiles"]
        assert [row for row in after if row["job_type"] == "slow"] == before, "same seq, too"

    run(tmp_path, test)


def test_a_running_job_is_not_touched_by_another_profile_of_its_type(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await it.post("/v1/jobs", JOB)
        before = await it.reaches("job", "running")
        await it.post("/v1/profiles", loader.document((SLOW,)))
        after = (await it.get("/v1/jobs/job")).json
        same = ("state", "gpus", "attempt", "generation", "container_restarts")
        assert {name: after[name] for name in same} == {name: before[name] for name in same}

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("body", "code", "path", "what"),
    [
        ("{", 400, "body", "not valid JSON"),
        ([], 422, "body", "is not a table"),
        ({"profiles": []}, 422, "body.profiles", "unknown"),
        ({"profile": [{"job_type": "a/b"}]}, 422, "body: profile[0].job_type", "'a/b'"),
        ({"profile": [{"job_type": "a", "speed": [["V", "1", 1]]}]}, 422, "speed[0][1]", "'1'"),
        ({"profile": [{"job_type": "a", "text": "x" * 600_000}]}, 413, "", "bytes"),
    ],
)
def test_a_wrong_document_is_refused_with_its_place_and_nothing_is_recorded(
    tmp_path: Path, body: Any, code: int, path: str, what: str
) -> None:
    async def test(it: Api) -> None:
        answer = await it.post("/v1/profiles", body)
        assert answer.code == code
        assert path in answer.json["path"]
        assert what in answer.json["message"]
        assert (await it.get("/v1/profiles")).json["profiles"] == []

    run(tmp_path, test)
