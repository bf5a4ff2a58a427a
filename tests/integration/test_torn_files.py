"""Files of init, agent and launcher that are cut, empty or gone beside processes that live.

The process wins over its file: it is adopted or named, and never killed for it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_launcher.local.launcher import LocalLauncher
from reshape_sidecar import codec, state_files
from reshape_sidecar.agent.memory import MEMORY_FILE, Memory, MemoryFile
from reshape_sidecar.agent.spec import SPEC_FILE, TOKEN_FILE, AttemptSpec, Folder
from reshape_sidecar.init.look import init_of
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.supervisor import Supervisor
from reshape_sidecar.init.values import EXIT_FILE, INIT_FILE, TRAINING_FILE, InitFile
from reshape_sidecar.state_files import Torn
from tests.support import daemon_bed
from tests.support import sidecar_bed as beds
from tests.support.sidecar_bed import DEVICES

PROGRAM = """
import os, pathlib, time
pathlib.Path(f"ready-{os.environ['RESHAPE_GENERATION']}").touch()
time.sleep(600)
"""
JOB = "job-1"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[beds.Bed]:
    with beds.bed(tmp_path) as made:
        yield made


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[daemon_bed.Bed]:
    yield from daemon_bed.bed(tmp_path)


def test_a_living_container_outlives_its_init_file_cut_at_every_byte(job: beds.Bed) -> None:
    job.training(PROGRAM)
    init, training, path = job.init(), job.process(), job.folder.run / INIT_FILE
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert init_of(job.folder.run) == init, f"cut after {length} bytes"
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        fresh = LocalLauncher(job.root)  # as after a restart of the controller
        (status,) = asyncio.run(fresh.containers())
        assert status.running, f"cut after {length} bytes"
    path.unlink()
    (status,) = asyncio.run(LocalLauncher(job.root).containers())
    assert status.running
    assert job.process() == training
    assert job.alive()


def test_a_torn_training_file_lets_no_release_pass_for_it(job: beds.Bed) -> None:
    job.training(PROGRAM)
    training, path = job.process(), job.folder.run / TRAINING_FILE
    whole = path.read_bytes()
    for length in range(0, len(whole), 3):
        path.write_bytes(whole[:length])
        check = job.launcher.check_release(JOB, 1, training.generation, DEVICES)
        found = asyncio.run(check)
        assert not found.empty
        assert str(training.pid) in found.reason
    path.write_bytes(whole)
    assert job.alive()


def test_a_container_with_a_torn_init_file_is_removed_like_any_other(job: beds.Bed) -> None:
    job.training(PROGRAM)
    (job.folder.run / INIT_FILE).write_bytes(b"")
    job.remove()
    assert job.left() == []
    assert not job.status().running
    assert (job.folder.run / EXIT_FILE).exists(), "init ended in order, by its socket"


def test_init_writes_its_own_files_again(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "logs").mkdir()
    marker = Marker(JOB, 1, str(tmp_path / "run" / "agent.sock"))
    init = Supervisor(tmp_path, marker, ("true",))
    path = tmp_path / "run" / INIT_FILE
    for text in (b"", b'{"pid"', None):
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_bytes(text)
        init._mend_files()
        found = state_files.read(InitFile, path)
        assert isinstance(found, InitFile)
        assert found.pid == os.getpid()
    init._lock.close()


def test_an_agents_memory_cut_at_any_byte_begins_empty_under_a_higher_number(
    tmp_path: Path,
) -> None:
    whole = codec.dumps(Memory(boot=7)).encode()
    for length in range(len(whole)):
        (tmp_path / MEMORY_FILE).write_bytes(whole[:length])
        assert isinstance(state_files.read(Memory, tmp_path / MEMORY_FILE), Torn)
        memory = MemoryFile(tmp_path).boot(100.0)
        assert memory.desired is None
        assert memory.boot == 100_000


def test_a_torn_spec_is_told_from_a_missing_one(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(codec.CodecError, match="is missing"):
        folder.spec()
    (tmp_path / SPEC_FILE).write_bytes(b"")
    with pytest.raises(codec.CodecError, match=r"is torn: it is empty.*writes it again"):
        folder.spec()


def test_a_spec_cut_at_any_byte_is_seen_and_written_again_by_a_launch(job: beds.Bed) -> None:
    job.training(PROGRAM)
    spec, training = job.spec(PROGRAM), job.process()
    path, token = job.folder.path / SPEC_FILE, job.folder.path / TOKEN_FILE
    whole, secret = path.read_bytes(), token.read_bytes()
    for length in (*range(0, len(whole), 40), len(whole) - 1):
        path.write_bytes(whole[:length])
        token.write_bytes(secret[: length % len(secret)])
        assert SPEC_FILE in job.status().torn
        asyncio.run(job.launcher.launch(spec, "secret"))
        assert job.status().torn == ""
        assert path.read_bytes() == whole
        assert token.read_bytes() == secret
    token.write_bytes(b"secre")
    assert TOKEN_FILE in job.status().torn
    assert job.process() == training
    assert job.alive()


def test_the_controller_writes_a_torn_spec_again_and_the_agent_comes_back(
    daemon: daemon_bed.Bed,
) -> None:
    daemon.up()
    name = daemon.submit("first", steps=5000)
    pid = daemon.pid(name)
    folder = Folder(daemon.home / "jobs" / name / "attempt-1")
    (folder.path / SPEC_FILE).write_bytes(b"")
    (folder.path / TOKEN_FILE).write_bytes(b"")
    for agent in _agents(folder):
        os.kill(agent, signal.SIGKILL)
    daemon_bed.eventually(lambda: _whole(folder), text="both files are whole again")
    daemon_bed.eventually(lambda: _agents(folder), text="an agent runs")
    assert daemon.pid(name) == pid, "training went on"
    daemon.json("pause", name)
    daemon.reaches(name, "halted")


def _whole(folder: Folder) -> bool:
    spec = state_files.read(AttemptSpec, folder.path / SPEC_FILE)
    return isinstance(spec, AttemptSpec) and folder.token() != ""


def _agents(folder: Folder) -> list[int]:
    words = b"agent/__main__.py\0--folder\0" + os.fsencode(folder.path) + b"\0"
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if _command(path).endswith(words) and b"init/__main__.py" not in _command(path)
    ]


def _command(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
