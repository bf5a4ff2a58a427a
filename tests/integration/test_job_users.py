"""A job of another user reaches nothing of the operator's, of other users' or of its SideCar's.

As root alone. The jobs belong to users without an account, as the daemon's are root's.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_launcher.local import users
from reshape_launcher.spec import LaunchSpec
from reshape_sidecar.agent.spec import Folder
from reshape_sidecar.contract import ENV_GENERATION
from reshape_sidecar.wire import Mode, Observed, Phase
from tests.support import escapes, intruder
from tests.support import training_programs as programs
from tests.support.containment_bed import released
from tests.support.sidecar_bed import DEVICES, bed, eventually
from tests.support.user_bed import ADA, BOB, Elsewhere, UserBed, place, user_bed

INTRUDER = Path(intruder.__file__).read_text()
REFUSALS = {"PermissionError", "FileNotFoundError"}


def status_of(pid: int | None) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}


def variables_of(pid: int | None) -> dict[str, str]:
    text = os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes())
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def training_again(job: UserBed, generation: int) -> Observed:
    job.started(generation)
    return job.coordinator.until(
        f"a step of generation {generation}",
        lambda o: o.generation == generation and o.phase is Phase.RUNNING and o.progress.step > 0,
    )


def test_training_runs_as_its_user_and_its_sidecar_does_not() -> None:
    with user_bed() as job:
        seen = job.training(programs.STEPS)
        status = status_of(seen.pid)
        assert set(status["Uid"]) == {str(ADA)}
        assert set(status["Gid"]) == {str(users.NOBODY)}
        assert (status["Groups"], status["NoNewPrivs"], status["CapEff"]) == ([], ["1"], ["0" * 16])
        variables = variables_of(seen.pid)
        assert (variables["USER"], variables["LOGNAME"]) == (str(ADA), str(ADA))
        assert os.stat(variables["HOME"]).st_uid == ADA
        for pid in (job.init().pid, job.agent()):
            assert set(status_of(pid)["Uid"]) == {"0"}


def test_a_job_of_a_user_reshapes_down_and_up_with_its_steps() -> None:
    with user_bed() as job:
        job.training(programs.STEPS)
        down = training_again(job, job.coordinator.want(Mode.RUN, *DEVICES[:1]))
        up = training_again(job, job.coordinator.want(Mode.RUN, *DEVICES))
        assert down.outcome is not None
        assert up.outcome is not None
        assert 0 < (down.outcome.saved_step or 0) < (up.outcome.saved_step or 0)
        assert up.progress.step > (up.outcome.saved_step or 0)
        assert {path.stat().st_uid for path in (job.path / "checkpoints").rglob("*")} == {ADA}


def test_training_of_a_user_dies_with_its_init() -> None:
    with user_bed() as job:
        job.training(programs.IGNORES)
        job.remove_init()
        eventually("its end", lambda: not job.alive())


def test_the_agent_follows_no_folder_of_a_record_that_its_user_may_not_enter() -> None:
    with user_bed() as job:
        victim = job.path / "operators"
        victim.mkdir(mode=0o700)
        checkpoints = job.path / "checkpoints"
        checkpoints.rmdir()
        checkpoints.symlink_to(victim)
        job.coordinator.want(Mode.SAVE_AND_STOP)
        job.launch(job.spec(programs.PLAIN))
        seen = job.coordinator.until("a fault", lambda o: o.phase is Phase.UNFIT)
        assert f"checkpoint folder {checkpoints} is not writable" in (seen.error or "")
        assert os.listdir(victim) == []


def beside(job: UserBed, home: Path) -> LaunchSpec:
    """Start the container of another user's job in the same home; return its spec."""
    own = job.root / "bob-1"
    spec = replace(
        job.spec(INTRUDER),
        job="bob-1",
        uid=BOB,
        coordinator_url="http://127.0.0.1:9",
        code=str(own / "work"),
        checkpoints=str(own / "checkpoints"),
        env=(("SECRET", "of Bob's"),),
    )
    asyncio.run(job.launcher.launch(spec, "bobs-token"))
    eventually("Bob's agent", (own / "attempt-1" / "run" / "agent.sock").exists)
    return spec


def test_a_job_gets_nothing_of_the_operator_of_others_or_of_its_sidecar() -> None:
    with place() as folder, bed(folder, UserBed) as job:
        assert isinstance(job, UserBed)
        home = folder / "home"
        home.mkdir(mode=0o700)
        job.root = home / "jobs"
        job.folder = Folder(job.root / "job-1" / "attempt-1")
        job.launcher = Elsewhere(job.root, home)
        private = [home / name for name in ("token", "secret", "store.sqlite")]
        for path in private:
            path.write_text("the operator's")  # with the mode that a store has by itself
        try:
            beside(job, home)
            found = tried(job, home, private)
            assert {what: end for what, end in found.items() if end not in REFUSALS} == {}
        finally:
            asyncio.run(job.launcher.remove("bob-1", 1, 0.0))


def tried(job: UserBed, home: Path, private: list[Path]) -> dict[str, str]:
    """Have an intruder train, and return what it tried with what came of it."""
    job.initialised(INTRUDER)
    own, bobs = job.folder, Folder(job.root / "bob-1" / "attempt-1")
    files = [
        *private,
        *(attempt.path / name for attempt in (own, bobs) for name in ("token", "spec.json")),
        *(own.run / "agent.json", own.logs / "init.log", own.logs / "agent.log"),
    ]
    folders = [home, job.root, own.path, own.run, own.logs, bobs.path, bobs.path.parent]
    wanted: dict[str, list[Path] | list[int]] = {
        "read": files,
        "list": [*folders, bobs.path.parent / "work", bobs.path.parent / "checkpoints"],
        "write": [*files, own.run / "meeting", own.path / "new", home / "new", bobs.run / "new"],
        "remove": [own.run, own.logs, own.path, own.run / "init.json", own.logs / "training.log"],
        "connect": [own.run / "init.sock", bobs.run / "init.sock", bobs.run / "agent.sock"],
        "process": [job.init().pid, job.agent()],
    }
    texts = {name: [str(each) for each in every] for name, every in wanted.items()}
    (job.path / "code" / "wanted.json").write_text(json.dumps(texts))
    job.started(job.coordinator.want(Mode.RUN, *DEVICES))
    found: dict[str, str] = json.loads((job.path / "code" / "tried.json").read_text())
    assert len(found) > sum(map(len, wanted.values()))
    return found


@pytest.mark.parametrize("escape", ["daemonised", "moves_itself"])
def test_no_escape_of_a_users_job_lives_once_its_release_is_verified(escape: str) -> None:
    tag = f"{os.getpid()}-{time.monotonic_ns()}"
    with user_bed() as job:
        generation = job.training(Path(escapes.__file__).read_text(), escape, tag).generation
        os.kill(job.init().pid, signal.SIGKILL)
        job.gone()
        eventually("a verified release", lambda: released(job, generation))
        assert escapes.survivors(tag) == []


def test_a_process_of_another_user_with_the_jobs_marker_keeps_none_of_its_gpus() -> None:
    with user_bed() as job:
        job.training(programs.STEPS)
        generation = job.process().generation
        forged = {**job.marker.environment(), ENV_GENERATION: str(generation)}
        with subprocess.Popen(
            ["/bin/sleep", "600"],
            env=forged, user=BOB, group=users.NOBODY, extra_groups=(), cwd="/",
        ) as forger:  # fmt: skip
            try:
                stopped = job.coordinator.want(Mode.SAVE_AND_STOP)
                job.coordinator.until("stopped", lambda o: o.stopped_generation == stopped)
                eventually("a verified release", lambda: released(job, generation))
                job.remove_init()
                eventually("its end", lambda: not job.alive())
                assert forger.poll() is None, "it is not the job's to end"
            finally:
                forger.kill()
