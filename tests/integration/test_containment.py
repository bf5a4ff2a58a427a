"""What leaves init's tree and clears its environment does not outlive a verified release.

All programs meet the kill of init; ``benchmarks/containment.py`` has each kill, many times.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from reshape_launcher.local.groups import ENV_BASE, Groups
from reshape_sidecar.agent.spec import Folder
from reshape_sidecar.cgroup import Limits
from reshape_sidecar.wire import Mode, OnSaveTimeout
from tests.support import daemon_bed
from tests.support import training_programs as programs
from tests.support.cgroup_bed import base
from tests.support.containment_bed import KILL_AFTER_S, play, released
from tests.support.escapes import ESCAPES
from tests.support.sidecar_bed import bed, eventually

LOAD_S = 20.0
"""For a machine that does other work as well."""
ROUNDS = [
    *((escape, "init") for escape in ESCAPES),
    *(("chaser", "agent"), ("clone_beside", "agent"), ("moves_itself", "daemon")),
]


@pytest.mark.parametrize(("escape", "killed"), ROUNDS)
def test_no_escape_lives_once_a_release_is_verified(
    tmp_path: Path, escape: str, killed: str
) -> None:
    base()
    found = play(tmp_path, escape, killed)
    assert found.survivors == 0
    assert found.release_s < KILL_AFTER_S + LOAD_S


def test_by_the_marker_alone_an_escape_outlives_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is what ``containment: marker`` means; the program finds what the tests above claim."""
    monkeypatch.setenv(ENV_BASE, "off")
    assert play(tmp_path, "daemonised", "init").survivors == 1


def test_a_bed_ends_the_group_of_an_attempt_that_its_daemon_was_killed_before_it_noted(
    tmp_path: Path,
) -> None:
    base()
    home = daemon_bed.Bed(tmp_path)
    folder = Folder(home.home / "jobs" / "job-1" / "attempt-1")
    folder.path.mkdir(parents=True)
    note = Groups(home.home / "jobs").make(folder, Limits(pids=10))
    assert note is not None
    assert Path(note.path).is_dir()
    home.close()
    assert not Path(note.path).parent.exists()


def test_a_cancelled_program_that_ignores_term_frees_its_gpus_soon_after_its_kill(
    tmp_path: Path,
) -> None:
    """The engine sends a cancelled job this desired state (``attempts.save_deadline_s``)."""
    with bed(tmp_path) as job:
        generation = job.training(programs.IGNORES).generation
        begin_s = time.monotonic()
        job.coordinator.want(
            Mode.EXIT,
            save_deadline_s=KILL_AFTER_S,
            kill_after_s=KILL_AFTER_S,
            on_save_timeout=OnSaveTimeout.KILL,
        )
        assert job.gone().exit_code == 0
        eventually("a verified release", lambda: released(job, generation))
        print(f"released after {time.monotonic() - begin_s:.2f} s")
        assert KILL_AFTER_S <= time.monotonic() - begin_s < KILL_AFTER_S + 2.0 + LOAD_S
