"""Two people share a daemon of root: their jobs are their own users', and reach nothing else.

As root alone. The daemon is started where every user may run Python.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.access.identity import Role
from reshape_controller.access.token_file import FILE_NAME, NamedToken, TokenFile, digest
from reshape_launcher.local import users
from reshape_sidecar import codec
from tests.support.daemon_bed import SAVES, Bed, eventually
from tests.support.user_bed import ADA, BOB, OPEN_GROUND, give, place

TOKENS = {"ada": "reshape_" + "a" * 40, "bob": "reshape_" + "b" * 40}
UIDS = {"ada": ADA, "bob": BOB}

INTRUDER = """
import json, os, pathlib, signal, socket, sys, time, urllib.error, urllib.request
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
attempt = pathlib.Path(os.environ["RESHAPE_SOCKET"]).parents[1]
home, bobs, url = attempt.parents[2], os.environ["BOBS"], os.environ["URL"]
other = home / "jobs" / bobs
answers, read = {}, {}
for path in (home / "token", home / "secret", home / "tokens.json", home / "store.sqlite",
             attempt / "token", other / "attempt-1" / "token", other / "checkpoints" / "step"):
    try:
        read[str(path.relative_to(home))] = path.read_bytes().decode(errors="replace").strip()
    except OSError as error:
        answers["read " + str(path.relative_to(home))] = type(error).__name__

def request(path, bearer, body):
    headers = {"Content-Type": "application/json"}
    if bearer:
        headers["Authorization"] = "Bearer " + bearer
    try:
        asked = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(asked) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code

own = os.environ["RESHAPE_JOB"]
report = {"job": bobs, "attempt": 1, "generation": 9, "sequence": time.time_ns(),
          "phase": "finished", "type": "Observed"}
for number, bearer in enumerate(["", os.environ["MINE"], *read.values()]):
    answers[f"cancel with {number}"] = request(f"/v1/jobs/{bobs}/cancel", bearer, {})
    answers[f"report for Bob's with {number}"] = request(f"/v1/sidecar/{bobs}/1", bearer, report)
    answers[f"report for its own with {number}"] = request(
        f"/v1/sidecar/{own}/1", bearer, report | {"job": own})
for path in (attempt / "run" / "init.sock", other / "attempt-1" / "run" / "agent.sock"):
    with socket.socket(socket.AF_UNIX) as client:
        try:
            folder = os.open(path.parent, os.O_PATH)
            client.connect(f"/proc/self/fd/{folder}/{path.name}")
            answers[f"connect to {path.name}"] = "connected"
        except OSError as error:
            answers[f"connect to {path.name}"] = type(error).__name__
print("ANSWERS " + json.dumps(answers), flush=True)
print("VARIABLES " + json.dumps(sorted(os.environ)), flush=True)
while True:
    time.sleep(0.05)
"""


class SharedBed(Bed):
    """A daemon of root with a token for Ada and a token for Bob."""

    prefix = OPEN_GROUND

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.home.mkdir(mode=0o700)
        tokens = (
            NamedToken(name, Role.USER, digest(token.encode()), time.time(), uid=UIDS[name])
            for name, token in TOKENS.items()
        )
        file = self.home / FILE_NAME
        file.write_text(codec.dumps(TokenFile(tuple(tokens))))
        file.chmod(0o600)
        for name in TOKENS:
            give(folder / name, UIDS[name])

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(AWS_SECRET_ACCESS_KEY="sesame", **more)

    @property
    def url(self) -> str:
        return str(json.loads((self.home / "address.json").read_text())["url"])

    def submit_as(
        self, name: str, job: str, script: str, steps: int = 100_000, **fields: Any
    ) -> str:
        """Submit a job of Ada's or Bob's; return its id."""
        code = self.folder / name
        (code / f"{job}.py").write_text(script)
        record = {
            "name": job,
            "command": ["python", f"{job}.py", str(steps)],
            "code": str(code),
            "framework": "other",
            "optional_gpus": [2, 4],
            "steps": steps,
            "may_restart": True,
            **fields,
        }
        headers = {"Authorization": f"Bearer {TOKENS[name]}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self.url}/v1/jobs", json.dumps(record).encode(), headers
        )
        try:
            with urllib.request.urlopen(request) as answer:
                return str(json.load(answer)["id"])
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read()) from None

    def log_of(self, job: str) -> str:
        path = self.home / "jobs" / job / "attempt-1" / "logs" / "training.log"
        return path.read_text() if path.exists() else ""

    def said(self, job: str, word: str) -> Any:
        """Wait for a line that begins with ``word``; return what stands behind it."""

        def line() -> str | None:
            lines = self.log_of(job).splitlines()
            return next((one for one in lines if one.startswith(word)), None)

        found = eventually(line, text=lambda: self._logs(job))
        return json.loads(found.removeprefix(word))


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedBed]:
    with place() as folder:
        bed = SharedBed(folder)
        try:
            bed.up()
            yield bed
        finally:
            bed.close()


def uid_of(pid: int) -> int:
    return os.stat(f"/proc/{pid}").st_uid


def test_jobs_of_two_users_reshape_and_each_runs_as_its_own(shared: SharedBed) -> None:
    elastic = shared.submit_as("ada", "elastic", SAVES, optional_gpus=[2, 4])
    assert uid_of(shared.pid(elastic, size=4)) == ADA
    newcomer = shared.submit_as("bob", "newcomer", SAVES, 80, optional_gpus=[2], max_wait_s=1)
    assert uid_of(shared.pid(newcomer)) == BOB
    assert uid_of(shared.pid(elastic, size=2)) == ADA
    shared.reaches(newcomer, "completed")
    after = shared.reaches(elastic, "running", size=4)
    assert (after["reshape_downs"], after["reshape_ups"], after["attempt"]) == (1, 1, 1)
    log = shared.log_of(elastic)
    begins = [line.split(" on ")[0].split()[-1] for line in log.splitlines() if "begins" in line]
    saves = [line.split()[-1] for line in log.splitlines() if line.startswith("saved")]
    assert begins == ["0", *saves]
    assert (shared.home / "jobs" / elastic / "checkpoints" / "step").stat().st_uid == ADA
    assert shared.reshape("cancel", elastic).returncode == 0
    shared.reaches(elastic, "cancelled")


def test_a_job_cannot_cancel_anothers_with_anything_that_it_finds(shared: SharedBed) -> None:
    bobs = shared.submit_as("bob", "quiet", SAVES, optional_gpus=[2])
    pid = shared.pid(bobs)
    env = {"BOBS": bobs, "URL": shared.url, "MINE": TOKENS["ada"]}
    job = shared.submit_as("ada", "intruder", INTRUDER, optional_gpus=[2], env=env)
    answers = shared.said(job, "ANSWERS ")
    refused = {"PermissionError", "FileNotFoundError", 401, 403, 404}
    assert {what: answer for what, answer in answers.items() if answer not in refused} == {}
    assert len(answers) == 7 + 2 * 3 + 2, "nothing was read, so each request was tried twice"
    assert "AWS_SECRET_ACCESS_KEY" not in shared.said(job, "VARIABLES ")
    assert (shared.job(bobs)["state"], shared.pid(bobs)) == ("running", pid)
    isolation = shared.json("status")["isolation"]
    assert isolation == users.isolation()
    assert "runs as that user" in isolation
