"""Names of jobs are each user's own: a name finds the author's job first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import Role
from reshape_controller.access.token_file import NamedToken, TokenFile, digest
from tests.support.http_bed import RECORD, TOKEN, Api, run

ADA = NamedToken("ada", Role.USER, digest(b"adas-token"), 0.0)
BOB = replace(ADA, name="bob", sha256=digest(b"bobs-token"))


def test_two_users_have_a_job_of_one_name_and_each_acts_on_its_own(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        jobs = {}
        for user in ("ada", "bob"):
            answer = await it.ask("POST", "/v1/jobs", RECORD, token=f"{user}s-token")
            assert answer.code == 201, answer.json
            jobs[user] = answer.json["id"]
        for user in ("bob", "ada"):
            shown = await it.ask("GET", "/v1/jobs/job", token=f"{user}s-token")
            assert shown.json["id"] == jobs[user]
        cancelled = await it.ask("POST", "/v1/jobs/job/cancel", token="adas-token")
        assert (cancelled.code, cancelled.json["id"]) == (200, jobs["ada"])
        theirs = await it.ask("GET", f"/v1/jobs/{jobs['bob']}", token="bobs-token")
        assert theirs.json["state"] not in ("cancelled", "failed")
        again = await it.ask("POST", "/v1/jobs", RECORD, token="bobs-token")
        assert (again.code, again.json["path"]) == (422, "name")
        newest = await it.get("/v1/jobs/job")
        assert newest.json["id"] == jobs["bob"], "an operator without such a job gets the newest"
        mine = (await it.post("/v1/jobs", RECORD)).json["id"]
        assert (await it.get("/v1/jobs/job")).json["id"] == mine

    run(tmp_path, test, Identities(lambda: TOKEN, lambda: TokenFile((ADA, BOB))))
