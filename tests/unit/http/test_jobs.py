"""Jobs over HTTP: what is accepted, what is refused and how, what is shown."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_controller.access.identities import Identities
from reshape_controller.access.identity import Role
from reshape_controller.access.token_file import NamedToken, TokenFile, digest
from reshape_controller.core.model import HostId, JobId, JobState, Stage
from reshape_controller.http.render import job_view, public_view
from reshape_controller.live import user_bounds
from reshape_controller.store.protocol import JobRow
from reshape_gpu.values import JobView
from reshape_sidecar.wire import Evaluation, Observed, Phase, Progress, Saves
from tests.support.http_bed import RECORD, TOKEN, Api, run
from tests.support.store_values import job_row


def test_a_job_is_created_shown_listed_and_cancelled(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        made = await it.post("/v1/jobs", RECORD, Reshape_User="ada")
        assert (made.code, made.json["name"], made.json["user"]) == (201, "job", "ada")
        key = made.json["id"]
        assert made.headers["location"] == f"/v1/jobs/{key}"
        assert list(made.json) == [field.name for field in dataclasses.fields(JobView)]
        running = await it.reaches("job", "running")
        assert running["size"] == 4
        listed = (await it.get("/v1/jobs?state=running,adjusting")).json
        assert [job["id"] for job in listed["jobs"]] == [key]
        assert (await it.get("/v1/jobs?state=completed")).json["jobs"] == []
        assert (await it.post(f"/v1/jobs/{key}/cancel")).code == 200
        await it.reaches(key, "cancelled")
        again = await it.post(f"/v1/jobs/{key}/cancel")
        assert (again.code, again.json["code"]) == (409, "conflict")
        events = (await it.get(f"/v1/jobs/{key}/history")).json["events"]
        assert events[0]["kind"] == "submitted"
        assert {"granted", "cancelled"} <= {event["kind"] for event in events}
        decided = (await it.get(f"/v1/jobs/{key}/decisions")).json["decisions"]
        assert decided[0]["event"]["name"] == "job"
        assert decided[0]["explanation"]

    run(tmp_path, test)


def test_the_evaluations_of_a_job_are_in_its_own_view_and_not_in_the_list(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        made = await it.post("/v1/jobs", RECORD)
        await it.reaches(made.json["id"], "running")
        sidecar = it.launcher.job(JobId(made.json["id"]))
        found = (Evaluation("f1", 10, 0.5),)
        progress = replace(sidecar.observed.progress, evaluations=found)
        sidecar.observed = replace(sidecar.observed, progress=progress)
        sidecar.finish()
        ended = await it.reaches(made.json["id"], "completed")
        assert ended["evaluations"] == [{"metric": "f1", "step": 10, "value": 0.5}]
        (listed,) = (await it.get("/v1/jobs")).json["jobs"]
        assert listed == {**ended, "evaluations": []}

    run(tmp_path, test)


def test_what_is_wrong_with_a_whole_record_is_told_without_a_field() -> None:
    errors = (("", "is not JSON", ""), ("epochs", "-1 is below 1", ""))
    row = JobRow(JobId("bad-1"), "bad", "", JobState.REJECTED, 1, 0.0, None, errors)
    assert job_view(row).reason == "is not JSON; epochs: -1 is below 1"


def test_what_keeps_a_container_from_coming_up_is_told_until_it_has_ended() -> None:
    row = job_row(1, 7)
    assert row.job is not None
    coming = replace(row, job=replace(row.job, stage=Stage.LAUNCHING))
    assert job_view(coming, trouble="no room").reason == "seq 7: no room"
    assert job_view(coming).reason == "seq 7"
    assert job_view(row, trouble="no room").reason == "seq 7", "that container is gone"


def test_yaml_is_taken_as_well(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        text = "name: job\ncommand: train\nframework: other\noptional_gpus: [1]\n"
        made = await it.post("/v1/jobs", text, Content_Type="application/yaml")
        assert (made.code, made.json["optional_gpus"]) == (201, [1])

    run(tmp_path, test)


def test_everything_that_is_wrong_with_a_record_is_told_at_once(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        bad = {**RECORD, "epochs": -1, "gpu": 2, "env": {"LD_PRELOAD": "x"}}
        answer = await it.post("/v1/jobs", bad)
        assert (answer.code, answer.json["code"]) == (422, "rejected")
        paths = [error["path"] for error in answer.json["errors"]]
        assert sorted(paths) == ["env.LD_PRELOAD", "epochs", "gpu"]
        assert answer.json["path"] == paths[0]
        assert (await it.get("/v1/jobs")).json["total"] == 0

    run(tmp_path, test)


def test_what_no_host_can_hold_and_a_name_that_lives_are_refused(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        large = await it.post("/v1/jobs", {**RECORD, "optional_gpus": [64]})
        assert (large.code, large.json["path"]) == (422, "optional_gpus[0]")
        assert (await it.post("/v1/jobs", RECORD)).code == 201
        twin = await it.post("/v1/jobs", RECORD)
        assert (twin.code, twin.json["path"]) == (422, "name")

    run(tmp_path, test)


def test_what_could_never_be_launched_is_refused_before_it_is_accepted(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        answer = await it.post("/v1/jobs", {**RECORD, "image": "nowhere"})
        assert (answer.code, answer.json["path"]) == (422, "image")
        assert answer.json["hint"] == "name another"
        assert (await it.get("/v1/jobs")).json["total"] == 0

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("body", "code"),
    [("{", 422), ("[]", 422), ("", 422), (b"\xff\xfe", 400), ("[" * 100_000, 422), ("null", 422)],
)
def test_a_body_that_is_no_record_is_refused(tmp_path: Path, body: str | bytes, code: int) -> None:
    async def test(it: Api) -> None:
        answer = await it.post("/v1/jobs", body)
        assert answer.code == code
        assert set(answer.json) == {"code", "message", "path", "hint", "errors"}
        assert answer.json["message"]

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/v1/jobs?limit=0", "query limit"),
        ("/v1/jobs?limit=many", "query limit"),
        ("/v1/jobs?limit=nan", "query limit"),
        ("/v1/jobs?limit=1.5", "query limit"),
        ("/v1/jobs?state=flying", "query state"),
        ("/v1/jobs?after=nobody", "query after"),
        ("/v1/jobs?order=best", "query order"),
        ("/v1/timeline?from_s=-1", "query from_s"),
    ],
)
def test_a_bad_query_is_named(tmp_path: Path, path: str, where: str) -> None:
    async def test(it: Api) -> None:
        answer = await it.get(path)
        assert (answer.code, answer.json["path"]) == (400, where)

    run(tmp_path, test)


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        for path in ("/v1/jobs/x", "/v1/jobs/x/logs", "/v1/jobs/x/history", "/x", "/v1/jobs/.."):
            answer = await it.get(path)
            assert (answer.code, answer.json["code"]) == (404, "not-found"), path
        for path in ("/v1/jobs/x/cancel", "/v1/hosts/x/drain"):
            assert (await it.post(path)).code == 404, path
        assert (await it.ask("DELETE", "/v1/jobs")).code == 405

    run(tmp_path, test)


def test_pages_follow_each_other_without_gap(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        for number in range(7):
            record = {**RECORD, "name": f"job-{number}", "optional_gpus": [4]}
            assert (await it.post("/v1/jobs", record)).code == 201
        found, after = [], ""
        while True:
            page = (await it.get(f"/v1/jobs?limit=3{after}")).json
            assert page["total"] == 7
            found += [job["name"] for job in page["jobs"]]
            if page["next_after"] is None:
                break
            after = f"&after={page['next_after']}"
        assert found == [f"job-{number}" for number in range(7)]
        newest = (await it.get("/v1/jobs?limit=3&order=newest")).json
        assert [job["name"] for job in newest["jobs"]] == ["job-6", "job-5", "job-4"]
        rest = await it.get(f"/v1/jobs?order=newest&after={newest['next_after']}")
        assert [job["name"] for job in rest.json["jobs"]] == ["job-3", "job-2", "job-1", "job-0"]

    run(tmp_path, test)


@pytest.mark.parametrize("verb", ["pause", "halt"])
def test_pause_and_resume_and_drain_are_answered_with_the_new_state(
    tmp_path: Path, verb: str
) -> None:
    async def test(it: Api) -> None:
        await it.post("/v1/jobs", RECORD)
        await it.reaches("job", "running")
        refused = await it.post("/v1/jobs/job/resume")
        assert (refused.code, refused.json["code"]) == (409, "conflict")
        assert (await it.post(f"/v1/jobs/job/{verb}")).code == 200
        await it.reaches("job", "halted")
        for word in ("paused", "halted"):
            (found,) = (await it.get(f"/v1/jobs?state={word}")).json["jobs"]
            assert (found["name"], found["state"]) == ("job", "halted"), word
        assert (await it.get("/v1/jobs?state=running")).json["jobs"] == []
        drained = await it.post("/v1/hosts/local/drain")
        assert (drained.code, drained.json["drained"]) == (200, True)
        assert (await it.post("/v1/jobs/job/resume")).code == 200
        gpus = (await it.get("/v1/gpus")).json["gpus"]
        assert [(gpu["state"], gpu["drained"]) for gpu in gpus] == [("idle", True)] * 4
        assert (await it.post("/v1/hosts/local/undrain")).json["drained"] is False
        await it.reaches("job", "running")
        gpus = (await it.get("/v1/gpus")).json["gpus"]
        assert {gpu["owner_name"] for gpu in gpus} == {"job"}

    run(tmp_path, test)


def test_the_steps_that_a_stop_would_lose_are_those_of_the_newest_report() -> None:
    row = job_row(1, 1)
    assert row.job is not None
    job = replace(row.job, saves=Saves.NEVER, progress=Progress(step=5), stage=Stage.TRAINING)
    newest = Observed(row.id, job.attempt, 1, 2, Phase.RUNNING, progress=Progress(step=90))
    view = job_view(replace(row, job=job), newest)
    assert (view.step, view.unsaved_steps) == (90, 90)


def test_a_job_on_several_hosts_names_all_of_them_also_to_other_users() -> None:
    row = job_row(1, 1)
    assert row.job is not None
    here = replace(row.job, host=HostId("node-1"))
    gang = replace(here, hosts=(HostId("node-1"), HostId("node-2"), HostId("node-2")))
    for job, hosts in ((here, ()), (gang, ("node-1", "node-2"))):
        view = job_view(replace(row, job=job))
        for seen in (view, public_view(view)):
            assert (seen.host, seen.hosts) == ("node-1", hosts)


def test_the_progress_has_the_time_at_which_it_was_reported() -> None:
    row = job_row(1, 1)
    assert row.job is not None
    trains = replace(row.job, stage=Stage.TRAINING, sequence=5, progress_at_s=40.0)
    row = replace(row, job=replace(trains, progress=Progress(step=5)))

    def reported_at_s(sequence: int, step: int) -> float | None:
        seen = Observed(
            row.id, trains.attempt, 1, sequence, Phase.RUNNING, progress=Progress(step=step)
        )
        return job_view(row, seen, progress_at_s=70.0).reported_at_s

    assert reported_at_s(6, 90) == 70.0
    assert reported_at_s(4, 4) == 40.0, "the log has a newer one"
    assert job_view(row).reported_at_s == 40.0, "as after a restart of the daemon"
    row = replace(row, job=replace(trains, progress=Progress()))
    assert reported_at_s(6, 0) is None, "no step was reported"


def test_a_submission_that_is_repeated_with_its_key_is_one_job(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        first = await it.post("/v1/jobs", RECORD, Idempotency_Key="run-7")
        again = await it.post("/v1/jobs", RECORD, Idempotency_Key="run-7")
        assert (first.code, again.code) == (201, 201)
        assert again.json["id"] == first.json["id"]
        elsewhere = {**RECORD, "name": "other", "checkpoints": str(tmp_path / "other")}
        other = await it.post("/v1/jobs", elsewhere, Idempotency_Key="run-7")
        assert other.json["id"] != first.json["id"]
        changed = await it.post("/v1/jobs", {**RECORD, "retries": 1}, Idempotency_Key="run-7")
        assert (changed.code, changed.json["code"]) == (409, "conflict")
        assert "use a new key for each job" in changed.json["message"]
        long = await it.post("/v1/jobs", RECORD, Idempotency_Key="x" * 201)
        assert long.code == 400
        await it.post(f"/v1/jobs/{first.json['id']}/cancel")
        await it.reaches(first.json["id"], "cancelled")
        after = await it.post("/v1/jobs", RECORD, Idempotency_Key="run-7")
        assert after.json["id"] == first.json["id"], "also after its end"
        assert len((await it.get("/v1/jobs")).json["jobs"]) == 2

    run(tmp_path, test)


def test_two_submissions_with_one_key_at_once_are_one_job(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        posts = (it.post("/v1/jobs", RECORD, Idempotency_Key="once") for _ in range(4))
        answers = await asyncio.gather(*posts)
        assert {answer.code for answer in answers} == {201}
        assert len({answer.json["id"] for answer in answers}) == 1

    run(tmp_path, test)


def test_a_user_has_so_many_jobs_and_bytes_of_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_bounds, "USER_JOBS_MAX", 3)
    monkeypatch.setattr(user_bounds, "USER_BYTES_MAX", 1000)

    async def test(it: Api) -> None:
        long = await it.post("/v1/jobs", {**RECORD, "env": {"TEXT": "x" * 1000}})
        assert (long.code, long.json["path"]) == (422, "env")
        assert "put large values into files" in long.json["hint"]
        array = {**RECORD, "name": "a", "array": {"SEED": [1, 2, 3, 4]}}
        many = await it.post("/v1/arrays", array)
        assert (many.code, many.json["path"]) == (422, "name")
        jobs = [await it.post("/v1/jobs", {**RECORD, "name": f"j{n}"}) for n in range(4)]
        assert [each.code for each in jobs] == [201, 201, 201, 422]
        await it.post(f"/v1/jobs/{jobs[0].json['id']}/cancel")
        await it.reaches(jobs[0].json["id"], "cancelled")
        assert (await it.post("/v1/jobs", {**RECORD, "name": "j4"})).code == 201

    run(tmp_path, test)


def test_a_user_puts_so_many_bytes_into_the_log_at_once_and_an_operator_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_bounds, "LOG_BYTES_AT_ONCE", 20_000.0)
    monkeypatch.setattr(user_bounds, "LOG_BYTES_PER_S", 10.0)
    ada = NamedToken("ada", Role.USER, digest(b"adas-token"), 0.0)
    people = Identities(lambda: TOKEN, lambda: TokenFile((ada,)))

    async def test(it: Api) -> None:
        answers = []
        for number in range(6):
            record = {**RECORD, "name": f"a{number}", "env": {"TEXT": "x" * 4000}}
            answers.append(await it.post("/v1/jobs", record, token="adas-token"))
            await it.post(f"/v1/jobs/a{number}/cancel")
        codes = [answer.code for answer in answers]
        assert codes == [201, 201, 201, 429, 429, 429]
        assert "ada has submitted more than" in answers[-1].json["message"]
        assert 0 < int(answers[-1].headers["retry-after"]) < 600
        for number in range(6):
            record = {**RECORD, "name": f"o{number}", "env": {"TEXT": "x" * 4000}}
            assert (await it.post("/v1/jobs", record)).code == 201

    run(tmp_path, test, people)


def test_a_pattern_that_a_server_would_match_for_hours_is_refused(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await it.post("/v1/jobs", {**RECORD, "name": "a" * 40})
        assert (await it.get("/v1/jobs?name=*a*a*")).json["total"] == 1
        found = await it.get("/v1/jobs?name=" + "*a" * 20)
        assert (found.code, found.json["path"]) == (400, "query name")
        assert "more than 3 stars" in found.json["message"]

    run(tmp_path, test)
