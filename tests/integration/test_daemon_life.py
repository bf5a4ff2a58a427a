"""The daemon as a user meets it: real processes, real HTTP, kill -9 and start again."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reshape_sidecar.init.look import init_of
from tests.support.daemon_bed import CRASHES, Bed, eventually, start_of
from tests.support.daemon_bed import bed as make_bed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def test_a_job_is_submitted_trains_and_completes_and_its_log_is_kept(bed: Bed) -> None:
    bed.up()
    job = bed.submit("first", steps=10)
    done = bed.reaches(job, "completed")
    assert done["started_at_s"] >= done["initialized_at_s"] >= done["submitted_at_s"]
    log = bed.reshape("logs", "first")
    assert log.returncode == 0
    assert log.stdout.splitlines()[0] == "begins at step 0 on sim-0,sim-1,sim-2,sim-3"
    assert log.stdout.splitlines()[-1] == "done"
    assert eventually(lambda: {gpu["state"] for gpu in bed.json("gpus")["gpus"]} == {"idle"})


def test_a_newcomer_gets_two_gpus_of_the_running_job_which_gets_them_back(bed: Bed) -> None:
    bed.up()
    elastic = bed.submit("elastic", steps=100_000)
    before = bed.reaches(elastic, "running", size=4)
    newcomer = bed.submit("newcomer", steps=80, optional_gpus=[2], max_wait_s=1)
    bed.reaches(elastic, "running", size=2)
    bed.reaches(newcomer, "completed")
    after = bed.reaches(elastic, "running", size=4)
    assert after["attempt"] == before["attempt"], "the container is the same all the time"
    assert (after["reshape_downs"], after["reshape_ups"]) == (1, 1)
    assert after["container_restarts"] == 0
    log = bed.reshape("logs", "elastic", "-n", "100000").stdout
    begins = [line.split(" on ")[0] for line in log.splitlines() if line.startswith("begins")]
    saves = [line for line in log.splitlines() if line.startswith("saved")]
    assert [line.split()[-1] for line in begins] == ["0", *(line.split()[-1] for line in saves)]
    timeline = bed.json("timeline")
    phases = {lane["name"]: [s["phase"] for s in lane["spans"]] for lane in timeline["jobs"]}
    assert phases["newcomer"][:3] == ["queued", "initializing", "initialized"]
    text = bed.reshape("timeline", COLUMNS="100").stdout
    assert max(len(line) for line in text.splitlines()) <= 100
    assert bed.reshape("explain", "newcomer").stdout.count("newcomer") > 1


def test_kill_9_of_the_daemon_touches_no_job_and_work_goes_on_afterwards(bed: Bed) -> None:
    bed.up()
    job = bed.submit("steady", steps=100_000)
    pid = bed.pid(job, size=4)
    started = start_of(pid)
    assert started is not None
    bed.stop(signal.SIGKILL)
    refused = bed.reshape("get")
    assert refused.returncode == 4
    assert "reshape up" in refused.stderr
    assert start_of(pid) == started
    bed.up()
    again = bed.reaches(job, "running", size=4)
    assert (again["pid"], again["attempt"], again["process_restarts"]) == (pid, 1, 0)
    assert start_of(pid) == started
    newcomer = bed.submit("newcomer", steps=5, optional_gpus=[2], max_wait_s=1)
    bed.reaches(newcomer, "completed")
    assert bed.reshape("cancel", "steady").returncode == 0
    bed.reaches(job, "cancelled")
    eventually(lambda: start_of(pid) is None, text="the training process is gone")


def test_an_older_store_is_refused_while_containers_live_that_are_ahead_of_it(bed: Bed) -> None:
    bed.up()
    donor = bed.submit("donor", steps=100_000, optional_gpus=[2, 4])
    bed.pid(donor, size=4)
    folder = bed.folder / "backups"
    folder.mkdir(mode=0o700)
    kept = folder / "kept.sqlite"
    saved = bed.json("db", "backup", str(kept))["last_seq"]
    newcomer = bed.submit("newcomer", steps=100_000, optional_gpus=[2], max_wait_s=1)
    bed.reaches(newcomer, "running", size=2)
    bed.reaches(donor, "running", size=2)  # told of it after the backup, in the same attempt
    bed.stop()
    refused = bed.reshape("db", "restore", str(kept))
    assert refused.returncode == 1
    assert f"the copy ends at record {saved}, but record" in refused.stderr
    lost = bed.json("db", "restore", str(kept), "--accept-loss")
    assert lost["last_seq"] == saved
    assert lost["lost"] == lost["noted_seq"] - saved > 0
    assert bed.launch().wait(90) == 1
    said = bed.log.read_text().rpartition("error: ")[2]
    assert f"{donor} (attempt 1)" in said
    assert f"{newcomer} (attempt 1)" in said
    inits = [int(pid) for pid in said.rpartition("kill -TERM ")[2].splitlines()[0].split()]
    assert len(inits) == 2
    assert all(start_of(pid) is not None for pid in inits), "no training was touched"
    for pid in inits:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: not any(start_of(pid) for pid in inits), text="both have saved and ended")
    bed.up()
    again = bed.reaches(donor, "running", size=4)
    assert again["attempt"] == 2
    assert [job["id"] for job in bed.json("get")["jobs"]] == [donor]


def test_a_rolled_back_store_is_refused_until_its_loss_is_accepted_and_then_has_a_higher_epoch(
    bed: Bed,
) -> None:
    for _ in range(2):  # the second epoch is among what is lost
        bed.up()
        assert bed.reshape("drain", "local").returncode == 0
        epoch = bed.json("status")["epoch"]
        bed.stop(signal.SIGKILL)
    for extra in ("-wal", "-shm"):
        (bed.home / f"store.sqlite{extra}").unlink()
    assert bed.launch().wait(90) == 1
    said = bed.log.read_text().rpartition("error: ")[2]
    assert "store.sqlite.mark has noted seq" in said
    assert "db recover --accept-loss" in said
    accepted = bed.json("db", "recover", "--accept-loss")
    assert f"ends at seq {accepted['last_seq']}, but" in said
    assert f"has noted seq {accepted['noted_seq']}: " in said
    assert accepted["lost"] == accepted["noted_seq"] - accepted["last_seq"] > 0
    bed.up()
    assert bed.json("status")["epoch"] > epoch
    bed.stop(signal.SIGKILL)
    bed.up()  # the mark of the shorter log is in force


@pytest.mark.parametrize("restarted", [True, False], ids=["machine", "container"])
def test_a_restart_of_the_machine_is_no_failure_of_its_jobs(bed: Bed, restarted: bool) -> None:
    bed.up()
    job = bed.submit("steady", steps=100_000, retries=0)
    bed.reaches(job, "running", size=4)
    bed.stop(signal.SIGKILL)
    init = init_of(bed.home / "jobs" / job / "attempt-1" / "run")
    assert init is not None
    os.kill(init.pid, signal.SIGKILL)
    eventually(lambda: start_of(init.pid) is None, text="init is gone")
    if restarted:
        (bed.home / "boot").write_text("an earlier boot")
    bed.up()
    if not restarted:
        bed.reaches(job, "failed")
        return
    again = bed.reaches(job, "running", size=4)
    assert (again["attempt"], again["failures"]) == (2, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_start_that_is_broken_off_while_the_store_takes_nothing_changes_nothing(
    bed: Bed, number: signal.Signals
) -> None:
    """The next start of the daemon finds out the same."""
    bed.up()
    job = bed.submit("steady", steps=100_000, retries=0)
    bed.reaches(job, "running", size=4)
    bed.stop()
    init = init_of(bed.home / "jobs" / job / "attempt-1" / "run")
    assert init is not None
    os.kill(init.pid, signal.SIGKILL)
    eventually(lambda: start_of(init.pid) is None, text="init is gone")
    (bed.home / "boot").write_text("an earlier boot")
    with closing(sqlite3.connect(bed.home / "store.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        bed.launch()
        eventually(lambda: "append-failed" in bed.log.read_text(), text="the store takes nothing")
        code = bed.stop(number)
        assert code == (0 if number is signal.SIGTERM else -signal.SIGKILL)
        other.execute("ROLLBACK")
    bed.up()
    again = bed.reaches(job, "running", size=4)
    assert (again["attempt"], again["failures"]) == (2, 0)


def test_a_daemon_whose_store_takes_no_more_right_after_its_start_can_be_stopped(bed: Bed) -> None:
    bed.up()
    bed.stop()
    with closing(sqlite3.connect(bed.home / "store.sqlite", isolation_level=None)) as store:
        (newest,) = store.execute("SELECT max(seq) FROM log").fetchone()
        store.execute(
            f"CREATE TRIGGER full BEFORE INSERT ON log WHEN NEW.seq > {newest + 1} "
            "BEGIN SELECT RAISE(FAIL, 'no room'); END"
        )
    bed.launch()
    eventually(lambda: "append-failed" in bed.log.read_text(), text="the store takes nothing")
    assert "controller-started" in bed.log.read_text()
    assert bed.stop() == 0
    with closing(sqlite3.connect(bed.home / "store.sqlite", isolation_level=None)) as store:
        assert store.execute("SELECT max(seq) FROM log").fetchone() == (newest + 1,)
        store.execute("DROP TRIGGER full")
    bed.up()


def test_gpus_that_a_later_start_does_not_show_are_left_and_kept_until_one_shows_them(
    bed: Bed,
) -> None:
    bed.up()
    job = bed.submit("steady", steps=100_000)
    bed.reaches(job, "running", size=4)
    bed.stop()
    bed.up("--simulated-gpus", "2")
    less = bed.reaches(job, "running", size=2)
    assert (less["gpus"], less["failures"], less["steps_lost"]) == (["sim-0", "sim-1"], 0, 0)
    gpus = {gpu["id"]: gpu for gpu in bed.json("gpus")["gpus"]}
    assert [gpus[name]["state"] for name in sorted(gpus)] == ["in use"] * 2 + ["lost"] * 2
    assert gpus["sim-3"]["reason"].startswith("local does not report it; repair it or raise --gpus")
    assert "gpus-not-found" in bed.log.read_text()
    bed.stop()
    bed.up("--simulated-gpus", "4")
    bed.reaches(job, "running", size=4)


def test_kill_9_in_the_middle_of_a_hand_over_loses_no_step_and_no_gpu(bed: Bed) -> None:
    bed.up()
    elastic = bed.submit("elastic", steps=100_000)
    bed.reaches(elastic, "running", size=4)
    newcomer = bed.submit("newcomer", steps=10, optional_gpus=[2], max_wait_s=1)
    eventually(lambda: bed.job(elastic)["state"] == "adjusting", text="the hand-over is under way")
    bed.stop(signal.SIGKILL)
    bed.up()
    bed.reaches(newcomer, "completed")
    after = bed.reaches(elastic, "running", size=4)
    assert (after["container_restarts"], after["steps_lost"], after["failures"]) == (0, 0, 0)
    log = bed.reshape("logs", "elastic", "-n", "100000").stdout.splitlines()
    begins = [line.split()[3] for line in log if line.startswith("begins")]
    assert begins == ["0", *(line.split()[-1] for line in log if line.startswith("saved"))]
    owners = [gpu["owner"] for gpu in bed.json("gpus")["gpus"]]
    assert owners == [elastic] * 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_daemon_at_once_and_touches_no_job(
    bed: Bed, number: signal.Signals
) -> None:
    bed.up()
    pid = bed.pid(bed.submit("steady", steps=100_000))
    assert bed.stop(number) == 0
    assert start_of(pid) is not None
    assert "Traceback" not in bed.log.read_text()


def test_without_a_daemon_writing_verbs_fail_with_4_and_leave_the_store_alone(bed: Bed) -> None:
    bed.up()
    record = bed.record("late")
    bed.stop()
    before = {path.name: path.read_bytes() for path in bed.home.iterdir() if path.is_file()}
    for words in (("submit", str(record)), ("cancel", "x"), ("drain", "local"), ("halt", "x")):
        done = bed.reshape(*words)
        assert (done.returncode, done.stdout) == (4, ""), words
    after = {path.name: path.read_bytes() for path in bed.home.iterdir() if path.is_file()}
    assert after == before


def test_a_job_that_crashes_at_once_fails_and_its_log_says_why(bed: Bed) -> None:
    bed.up()
    path = bed.record("broken", CRASHES, retries=0)
    done = bed.reshape("submit", "--wait", str(path))
    assert done.returncode == 1
    assert "is failed" in done.stderr
    assert "reshape logs" in done.stderr
    assert "no such layer" in bed.reshape("logs", "broken").stdout


def test_a_paused_job_gives_its_gpus_back_and_resumes_where_it_saved(bed: Bed) -> None:
    bed.up()
    job = bed.submit("pausing", steps=100_000)
    bed.reaches(job, "running", size=4)
    done = bed.reshape("pause", job)
    assert (done.returncode, "pause requested" in done.stdout) == (0, True), done
    bed.reaches(job, "halted", size=0)
    assert "paused" in bed.reshape("get").stdout
    assert bed.reshape("resume", job).returncode == 0
    bed.reaches(job, "running", size=4)
    log = eventually(lambda: bed.reshape("logs", job).stdout, text="the new container's log")
    assert "begins at step 0 " not in log
    assert bed.reshape("resume", job).returncode == 5


def test_a_drained_host_is_emptied_and_used_again(bed: Bed) -> None:
    bed.up()
    job = bed.submit("moving", steps=100_000)
    bed.reaches(job, "running")
    assert bed.reshape("drain", "local").returncode == 0
    bed.reaches(job, "submitted", size=0)
    assert "drained" in bed.reshape("gpus").stdout
    assert bed.reshape("undrain", "local").returncode == 0
    bed.reaches(job, "running")
    assert bed.reshape("drain", "elsewhere").returncode == 3


def test_logs_follow_a_running_job_to_its_end(bed: Bed) -> None:
    bed.up()
    bed.submit("talking", steps=20)
    done = bed.reshape("logs", "-f", "talking")
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["begins at step 0 on sim-0,sim-1,sim-2,sim-3", "done"]


def test_who_follows_a_job_outlives_a_restart_of_the_daemon(bed: Bed) -> None:
    bed.up()
    job = bed.submit("outlives", steps=150)
    bed.reaches(job, "running")
    with bed.start("logs", "-f", job) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        assert following.stdout.readline() == b"begins at step 0 on sim-0,sim-1,sim-2,sim-3\n"
        bed.stop(signal.SIGKILL)
        bed.up()
        assert following.stdout.read() == b"done\n"
        assert following.stderr.read() == b""
    assert following.returncode == 0


def test_secrets_are_for_their_owner_only_and_never_shown(bed: Bed) -> None:
    bed.up()
    bed.reaches(bed.submit("quiet", steps=5), "completed")
    token = (bed.home / "token").read_text().strip()
    secret = (bed.home / "secret").read_text().strip()
    for name in ("token", "secret", "store.sqlite"):
        assert stat.S_IMODE((bed.home / name).stat().st_mode) == 0o600
    shown = bed.log.read_text() + bed.reshape("config", "show").stdout
    shown += bed.reshape("describe", "quiet", "-o", "json").stdout
    assert token not in shown
    assert secret not in shown


@pytest.mark.parametrize(
    ("flag", "other", "knows"),
    [
        ("--port", "1", "reach the daemon at port"),
        ("--bind", "127.0.0.2", "at 127.0.0.1, not 127.0.0.2"),
    ],
)
def test_a_place_that_running_jobs_do_not_know_is_refused(
    bed: Bed, flag: str, other: str, knows: str
) -> None:
    bed.up()
    job = bed.submit("long", steps=100_000)
    bed.reaches(job, "running")
    bed.stop()
    refused = bed.reshape("up", "--simulated-gpus", "4", flag, other)
    assert refused.returncode == 1
    assert knows in refused.stderr
    assert f"where:  {flag}" in refused.stderr
    bed.up()
    assert eventually(lambda: bed.job(job)["reachable"])


PREPARED = """
import time
time.sleep(1.5)
from reshape_sidecar import session
job = session.start()
def save(folder):
    (folder / "state").write_text("state")
while True:
    time.sleep(0.01)
    job.step_done(save)
"""
"""Takes a while before it begins a session, where a successor waits."""


@pytest.mark.parametrize("line", ["prepares for 2 devices", "SIGTERM to training"])
def test_kill_9_of_the_daemon_in_a_hand_over_loses_no_successor(bed: Bed, line: str) -> None:
    bed.up()
    elastic = bed.submit(
        "elastic", PREPARED, steps=100_000, framework="keras", handover={"standby": "off"}
    )
    before = bed.pid(elastic, size=4)
    newcomer = bed.submit("newcomer", steps=100_000, optional_gpus=[2], max_wait_s=1)
    log = bed.home / "jobs" / elastic / "attempt-1" / "logs" / "init.log"
    eventually(lambda: line in log.read_text(), text=log.read_text)
    bed.stop(signal.SIGKILL)
    (prepared,) = re.findall(r"pid (\d+) prepares for", log.read_text())
    assert start_of(int(prepared)) is not None
    bed.up()
    after = bed.reaches(elastic, "running", size=2)
    assert bed.pid(elastic, size=2) == int(prepared)
    assert (after["attempt"], after["failures"]) == (1, 0)
    assert bed.reaches(newcomer, "running", size=2)["failures"] == 0
    assert start_of(before) is None
