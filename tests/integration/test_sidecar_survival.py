"""Whatever dies or lies around a training process, it keeps its pid and start time."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_launcher.local.launcher import LocalLauncher
from reshape_sidecar import codec
from reshape_sidecar.agent.reporting import SEQUENCES_PER_BOOT
from reshape_sidecar.init import processes as proc
from reshape_sidecar.wire import Mode, Observed, OnSaveTimeout, OutcomeKind, Phase
from tests.support import training_programs as programs
from tests.support.sidecar_bed import DEVICES, Bed, bed, eventually


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made


def reports_of_a_new_agent(job: Bed) -> Observed:
    """A report of another agent than the first that reported."""
    first = job.coordinator.reports[0].sequence
    return job.coordinator.until(
        "a report of the second agent", lambda o: o.sequence > first + SEQUENCES_PER_BOOT
    )


def test_training_survives_the_death_of_the_agent_and_work_goes_on(job: Bed) -> None:
    before = job.training(programs.STEPS)
    killed = job.kill_agent()
    after = reports_of_a_new_agent(job)
    assert job.agent() != killed
    assert (after.pid, after.start_time) == (before.pid, before.start_time)
    job.coordinator.until("progress", lambda o: o.progress.step > before.progress.step + 20)
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:2])
    seen = job.started(generation)
    assert seen.outcome is not None
    assert seen.outcome.lost_steps == 0


def test_an_agent_that_dies_before_it_is_initialised_is_started_again(job: Bed) -> None:
    job.coordinator.want(Mode.SAVE_AND_STOP)
    job.launch(job.spec(programs.PLAIN))
    job.kill_agent()
    seen = job.coordinator.until("initialised", lambda o: o.phase is Phase.INITIALIZED)
    assert seen.pid is None


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1])
def test_an_agent_that_dies_around_a_start_does_not_start_training_twice(
    job: Bed, delay_s: float
) -> None:
    job.initialised(programs.PLAIN)
    generation = job.coordinator.want(Mode.RUN, *DEVICES)
    time.sleep(delay_s)
    job.kill_agent()
    seen = job.started(generation)
    reports_of_a_new_agent(job)
    assert job.log("init.log").count("training of generation") == 1
    assert job.alive()
    assert job.process().pid == seen.pid


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.2, 0.45])
def test_an_agent_that_dies_in_mid_save_leaves_one_outcome_and_no_lost_step(
    job: Bed, delay_s: float
) -> None:
    job.training(programs.STEPS, "save_s=0.4")
    generation = job.coordinator.want(Mode.RUN, *DEVICES[:2])
    job.coordinator.until("saving", lambda o: o.generation == generation)
    time.sleep(delay_s)
    job.kill_agent()
    seen = job.started(generation)
    assert seen.outcome is not None
    assert seen.outcome.kind is OutcomeKind.STOPPING
    assert seen.outcome.lost_steps == 0
    outcomes = {
        o.outcome
        for o in job.coordinator.reports
        if o.outcome is not None and o.outcome.generation == generation
    }
    assert len(outcomes) == 1
    assert job.log("init.log").count(f"for generation {generation}") == 1, "one SIGTERM only"


def test_the_save_deadline_goes_on_while_the_agent_is_dead(job: Bed) -> None:
    job.training(programs.STEPS, "deaf=1")
    generation = job.coordinator.want(Mode.SAVE_AND_STOP, save_deadline_s=1.0)
    job.coordinator.until("saving", lambda o: o.phase is Phase.SAVING)
    job.kill_agent()
    seen = job.coordinator.until(
        "refused", lambda o: o.outcome is not None and o.outcome.generation == generation
    )
    assert seen.outcome is not None
    assert seen.outcome.kind is OutcomeKind.REFUSED
    assert job.alive()


def test_an_agent_that_dies_while_a_tree_is_killed_finishes_the_job(job: Bed) -> None:
    job.training(programs.DOUBLE_FORKS)
    generation = job.coordinator.want(
        Mode.SAVE_AND_STOP, kill_after_s=1.0, on_save_timeout=OnSaveTimeout.KILL
    )
    job.coordinator.until("stopping", lambda o: o.phase is Phase.STOPPING)
    job.kill_agent()
    seen = job.coordinator.until("stopped", lambda o: o.stopped_generation == generation)
    assert seen.pid is None
    assert not [pid for pid in job.left() if pid not in (job.init().pid, job.agent())]


def test_killing_init_ends_the_job_and_leaves_no_process(job: Bed) -> None:
    job.training(programs.DOUBLE_FORKS)
    daemon = int((job.code / "daemon").read_text())
    os.kill(job.init().pid, signal.SIGKILL)
    status = job.gone()
    assert status.exit_code is None
    assert "killed" in status.reason
    assert job.left() == []
    found = proc.read(daemon)
    assert found is None or found.zombie


def test_a_new_launcher_on_the_same_folder_knows_the_job(job: Bed) -> None:
    from reshape_launcher.local.launcher import LocalLauncher

    before = job.training(programs.PLAIN)
    job.launcher = LocalLauncher(job.root)
    assert job.status().running
    job.launch(job.spec(programs.PLAIN))
    assert job.process().pid == before.pid
    job.remove()
    assert not job.status().running


def test_a_wrong_token_leaves_training_alone(job: Bed) -> None:
    before = job.training(programs.PLAIN)
    job.coordinator.token = "another"
    refused = job.coordinator.refused
    eventually("tries", lambda: job.coordinator.refused > refused + 3)
    assert job.alive()
    assert job.process().pid == before.pid
    assert job.log("agent.log").count("HTTP 401") == 1, "one line per change, not per try"


@pytest.mark.parametrize(
    "answer",
    [(404, b""), (410, b""), (500, b"oops"), (200, b"not json"), (200, b"{}")],
    ids=["unknown", "gone", "error", "garbage", "empty"],
)
def test_an_answer_that_is_no_desired_state_leaves_training_alone(
    job: Bed, answer: tuple[int, bytes]
) -> None:
    job.training(programs.PLAIN)
    job.coordinator.answer = answer
    eventually("the agent noticed", lambda: "training is not touched" in job.log("agent.log"))
    assert job.alive()
    job.coordinator.answer = None
    generation = job.coordinator.want(Mode.SAVE_AND_STOP)
    job.coordinator.until("stopped", lambda o: o.stopped_generation == generation)


def test_a_coordinator_that_is_away_for_a_while_finds_everything_as_it_was(job: Bed) -> None:
    before = job.training(programs.PLAIN)
    job.coordinator.stop()
    eventually("the agent noticed", lambda: "training is not touched" in job.log("agent.log"))
    assert job.alive()
    reports = len(job.coordinator.reports)
    job.coordinator.start()
    eventually("a report after it", lambda: len(job.coordinator.reports) > reports)
    newest = job.coordinator.newest
    assert newest is not None
    assert (newest.pid, newest.start_time) == (before.pid, before.start_time)


def test_a_crash_while_the_coordinator_is_away_is_reported_afterwards(job: Bed) -> None:
    before = job.training(programs.PLAIN)
    job.coordinator.stop()
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    job.coordinator.start()
    seen = job.coordinator.until("crashed", lambda o: o.phase is Phase.CRASHED)
    assert seen.exit_code == 137


CONTROLLER = """
import asyncio, signal, sys
for number in (signal.SIGINT, signal.SIGHUP):  # a test run in the background inherits them ignored
    signal.signal(number, signal.SIG_DFL)
from pathlib import Path
from reshape_launcher.local.launcher import LocalLauncher
from reshape_launcher.spec import LaunchSpec
from reshape_sidecar import codec
launcher = LocalLauncher(Path(sys.argv[1]))
asyncio.run(launcher.launch(codec.loads(LaunchSpec, sys.argv[2]), "secret"))
print("launched", flush=True)
while True:
    asyncio.run(asyncio.sleep(1))
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL, signal.SIGHUP])
def test_a_signal_to_the_controllers_whole_process_group_touches_no_job(
    job: Bed, signum: signal.Signals
) -> None:
    job.coordinator.want(Mode.RUN, *DEVICES)
    spec = codec.dumps(job.spec(programs.PLAIN))
    command = [sys.executable, "-c", CONTROLLER, str(job.root), spec]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == b"launched\n"
        seen = job.started(1)
        os.killpg(controller.pid, signum)
        controller.wait(30)
    assert job.alive()
    assert job.process().pid == seen.pid
    reports = len(job.coordinator.reports)
    eventually("reports afterwards", lambda: len(job.coordinator.reports) > reports + 1)


def test_sigterm_to_init_saves_within_the_grace_period_and_ends_everything(job: Bed) -> None:
    job.training(programs.STEPS, "save_s=0.2")
    os.kill(job.init().pid, signal.SIGTERM)
    status = job.gone()
    assert status.exit_code == 0
    assert list((job.path / "checkpoints").glob("step-*")) != []
    assert job.left() == []
    assert Phase.CRASHED not in {o.phase for o in job.coordinator.reports}


def test_a_second_init_of_the_same_attempt_gives_way_to_the_first(job: Bed) -> None:
    job.initialised(programs.PLAIN)
    from reshape_sidecar import init as package

    main = Path(package.__file__ or "").with_name("__main__.py")
    command = [sys.executable, "-I", "-S", str(main), "--folder", str(job.folder.path)]
    command += ["--job", "job-1", "--attempt", "1", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 3
    assert "another init process holds" in done.stderr
    assert job.status().running


def test_a_job_keeps_no_file_open_that_its_controller_was_started_with(job: Bed) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    job.training(programs.PLAIN)
    os.close(writer)
    ended, _, _ = select.select([reader], [], [], 5)
    assert ended
    os.close(reader)


def test_bytes_that_are_no_text_come_through_the_environment(job: Bed) -> None:
    job.launcher = LocalLauncher(job.root, {**os.environ, "WHO": os.fsdecode(b"Jos\xe9")})
    shows = (
        programs.READY + "open('who', 'wb').write(os.environb[b'WHO'])\nready()\ntime.sleep(600)"
    )
    job.training(shows)
    assert (job.path / "code" / "who").read_bytes() == b"Jos\xe9"


def test_a_folder_with_a_path_longer_than_a_socket_may_have_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with bed(deep) as job:
        seen = job.training(programs.STEPS)
        job.coordinator.until("a report of training", lambda o: o.progress.step > 0)
        assert seen.pid is not None


def test_a_fenced_attempt_does_not_start(job: Bed) -> None:
    from reshape_sidecar import checkpoints

    job.initialised(programs.PLAIN)
    checkpoints.claim(job.path / "checkpoints", 2)
    job.coordinator.want(Mode.RUN, *DEVICES)
    seen = job.coordinator.until("unfit", lambda o: o.phase is Phase.UNFIT)
    assert "claimed by attempt 2" in (seen.error or "")
    assert seen.pid is None


def test_a_job_starts_in_the_checkpoint_folder_of_a_former_one(job: Bed) -> None:
    from reshape_sidecar import checkpoints, claims

    checkpoints.claim(job.path / "checkpoints", 2, "former")
    job.training(programs.PLAIN)
    claim = claims.read(job.path / "checkpoints")
    assert claim is not None
    assert (claim.attempt, claim.job) == (1, "job-1")
    assert "was the checkpoint folder of former" in job.log("agent.log")


def test_the_first_start_claims_the_checkpoint_folder(job: Bed) -> None:
    from reshape_sidecar import claims

    job.training(programs.PLAIN)
    claim = claims.read(job.path / "checkpoints")
    assert claim is not None
    assert claim.attempt == 1


def test_a_script_that_is_not_there_makes_the_attempt_unfit(job: Bed) -> None:
    job.coordinator.want(Mode.SAVE_AND_STOP)
    job.launch(job.spec(programs.PLAIN, command=("python", "missing.py")))
    seen = job.coordinator.until("unfit", lambda o: o.phase is Phase.UNFIT)
    assert "script missing.py is not in the code folder" in (seen.error or "")
    job.coordinator.want(Mode.EXIT)
    assert job.gone().exit_code == 0


def test_the_token_is_in_no_environment_and_on_no_command_line(job: Bed) -> None:
    job.coordinator.token = "secret"
    job.training(programs.PLAIN)
    assert oct((job.folder.path / "token").stat().st_mode & 0o777) == "0o600"
    pids = job.left()
    assert len(pids) == 3
    for pid in pids:
        for name in ("environ", "cmdline"):
            assert b"secret" not in Path(f"/proc/{pid}/{name}").read_bytes()
