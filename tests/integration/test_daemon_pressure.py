"""The whole daemon under clients that send nothing, few descriptors, and a disk without room."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_bed import Bed, bed, eventually
from tests.support.narrow_daemon import FILES

NARROW = "tests.support.narrow_daemon"
IDLE = 2000
ANSWER_S = 10.0
"""A quiet machine takes a tenth of a second; the bound of the design is 2 s."""
ROOM_BYTES = 1 << 20


@pytest.fixture(name="bed")
def _bed(tmp_path: Path) -> Iterator[Bed]:
    yield from bed(tmp_path)


@contextlib.contextmanager
def silent_clients(bed: Bed, count: int) -> Iterator[list[socket.socket]]:
    """So many connections that begin a request and never end it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 500), hard))
    url = json.loads((bed.home / "address.json").read_text())["url"]
    place = ("127.0.0.1", int(url.rpartition(":")[2]))
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = stack.enter_context(socket.socket())
            client.settimeout(ANSWER_S)
            with contextlib.suppress(OSError):
                client.connect(place)
                client.sendall(b"GET /v1/gpus HTTP/1.1\r\nHost: localhost\r\n")
            clients.append(client)
        try:
            yield clients
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_two_thousand_silent_clients_keep_no_job_and_no_person_waiting(bed: Bed) -> None:
    bed.up()
    with silent_clients(bed, IDLE):
        begin_s = time.monotonic()
        assert bed.post("/v1/jobs", {})[0] == 422
        assert time.monotonic() - begin_s < ANSWER_S
        bed.reaches(bed.submit("first", steps=3), "completed")
    assert "connections-full" not in bed.log.read_text()
    assert bed.stop() == 0


def test_connections_that_could_take_every_descriptor_leave_some_for_appends_and_launches(
    bed: Bed,
) -> None:
    bed.up(program=NARROW)
    with silent_clients(bed, 2 * FILES):
        names = [bed.submit(each, steps=20, optional_gpus=[2]) for each in ("first", "second")]
        for name in names:
            bed.reaches(name, "completed")
            assert bed.json("describe", name)["failures"] == 0
        assert bed.daemon is not None
        used = len(os.listdir(f"/proc/{bed.daemon.pid}/fd"))
        assert used < FILES
    log = bed.log.read_text()
    assert "connections-full" in log
    assert "no-connections-left" not in log, "an accept never failed"
    assert "own-fault" not in log
    assert bed.stop() == 0


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a file system of ``ROOM_BYTES`` at a folder; the file that fills it."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ("mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES},mode=700", "tmpfs", str(folder))
    subprocess.run(words, check=True)
    try:
        yield folder / "filler"
    finally:
        subprocess.run(("umount", "-l", str(folder)), check=True)


def fill(filler: Path) -> None:
    with contextlib.suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(bytes(4096))
            file.flush()


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a small file system")


@needs_root
def test_a_job_waits_while_the_disk_of_the_jobs_is_full_and_does_not_fail(bed: Bed) -> None:
    with small_disk(bed.home / "jobs") as filler:
        bed.home.chmod(0o700)
        bed.up()
        fill(filler)
        name = bed.submit("first", steps=3)
        waits = eventually(lambda: bed.json("status")["waits_for"], text=bed.log.read_text)
        assert "No space left on device" in waits
        assert bed.job(name)["state"] != "failed"
        filler.unlink()
        bed.reaches(name, "completed")
        assert bed.json("describe", name)["failures"] == 0
        assert eventually(lambda: bed.json("status")["waits_for"] == "")
        bed.close()


@needs_root
def test_a_full_disk_of_the_store_stops_acknowledgements_and_no_job(bed: Bed) -> None:
    with small_disk(bed.home) as filler:
        bed.up()
        name = bed.submit("first", steps=5000)
        pid = bed.pid(name)
        # A program that prints on a full disk gets the error itself.
        eventually(lambda: "begins at step" in bed.reshape("logs", name).stdout)
        fill(filler)
        refused = eventually(lambda: refusal(bed, name), text=bed.log.read_text)
        assert "disk is full" in refused
        assert not bed.json("status")["ready"]
        os.kill(pid, 0)  # it trains on
        filler.unlink()
        eventually(lambda: bed.json("status")["ready"], text=bed.log.read_text)
        assert bed.pid(name) == pid
        assert bed.json("describe", name)["failures"] == 0
        assert bed.stop(signal.SIGTERM) == 0
        bed.close()


def refusal(bed: Bed, name: str) -> str:
    """What a request gets that the store cannot take; empty if it takes it."""
    done = bed.reshape("pin", name, "4")
    return "" if done.returncode == 0 else done.stderr


def test_the_status_names_the_jobs_that_a_new_daemon_waits_for(bed: Bed) -> None:
    bed.up()
    name = bed.submit("first", steps=5000)
    pid = bed.pid(name)
    agents = [int(p) for p in _agents(bed, name)]
    bed.stop(signal.SIGKILL)
    for agent in agents:
        os.kill(agent, signal.SIGSTOP)
    bed.up()
    try:
        status = bed.json("status")
        assert status["ready"]
        assert name in status["waits_for"]
        assert "no GPU is granted" in status["waits_for"]
        assert name in bed.reshape("status").stdout
    finally:
        for agent in agents:
            os.kill(agent, signal.SIGCONT)
    eventually(lambda: bed.json("status")["waits_for"] == "", text=lambda: str(bed.json("status")))
    assert bed.pid(name) == pid


def _agents(bed: Bed, name: str) -> list[str]:
    words = f"agent/__main__.py\0--folder\0{bed.home}/jobs/{name}/attempt-1\0".encode()
    return [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if (text := _text(path)).endswith(words) and b"init/__main__.py" not in text
    ]


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
