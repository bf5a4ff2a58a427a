"""Init's parts: processes, spawning, sockets, connections."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar import codec
from reshape_sidecar.init import files, processes, spawn
from reshape_sidecar.init.agent_process import AgentProcess
from reshape_sidecar.init.clients import Clients
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.values import (
    End,
    GetStatus,
    InitStatus,
    Request,
    SendSigterm,
    Spawn,
    Sweep,
    WithdrawSigterm,
)
from reshape_sidecar.limits import AGENT_STEADY_S, REQUEST_BYTES_MAX

MARKER = Marker("j", 3, "/run/agent.sock")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    env = MARKER.environment() | {"RESHAPE_GENERATION": "7"}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=env) as child:
        yield child
        child.kill()


def marked(pid: int) -> list[processes.MarkedProcess]:
    return [e for e in processes.marked_processes(processes.snapshot()) if e.proc.pid == pid]


def test_a_process_is_found_by_the_marker_in_its_environment(
    sleeper: subprocess.Popen[bytes],
) -> None:
    (found,) = marked(sleeper.pid)
    assert (found.marker, found.generation) == (MARKER, 7)


def test_a_process_that_is_just_being_executed_is_found_too() -> None:
    """``posix_spawn`` returns as soon as the new memory is there, empty as yet."""
    for _ in range(100):
        pid = os.posix_spawn("/bin/sleep", ["sleep", "600"], MARKER.environment())
        try:
            found = processes.read(pid)
            assert found is not None
            (entry,) = processes.marked_processes({pid: found})
            assert (entry.marker, entry.generation) == (MARKER, None)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_a_pid_alone_is_not_the_process(sleeper: subprocess.Popen[bytes]) -> None:
    start = processes.start_time(sleeper.pid)
    assert processes.alive(sleeper.pid, start)
    assert not processes.alive(sleeper.pid, start + 1)
    other = processes.Proc(sleeper.pid, 1, start + 1, zombie=False)
    assert not processes.send_signal(other, signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_zombie_is_not_alive(sleeper: subprocess.Popen[bytes]) -> None:
    start = processes.start_time(sleeper.pid)
    proc = processes.read(sleeper.pid)
    assert proc is not None
    assert processes.send_signal(proc, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.alive(sleeper.pid, start)
    assert [
        e for e in processes.marked_processes(processes.snapshot()) if e.proc.pid == sleeper.pid
    ] == []


def test_a_name_with_parentheses_does_not_confuse_the_reading(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "600"]) as child:
        found = processes.read(child.pid)
        child.kill()
    assert found is not None
    assert found.parent == os.getpid()


def test_descendants_leave_out_what_is_spared_and_all_below_it() -> None:
    def proc(pid: int, parent: int) -> processes.Proc:
        return processes.Proc(pid, parent, 1, zombie=False)

    tree = {p.pid: p for p in (proc(1, 0), proc(2, 1), proc(3, 2), proc(4, 1), proc(5, 4))}
    below = processes.descendants(1, tree, without=(2,))
    assert sorted(p.pid for p in below) == [4, 5]


def test_a_gone_process_is_no_error() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    gone = processes.Proc(child.pid, os.getpid(), 1, zombie=False)
    assert processes.read(child.pid) is None
    assert not processes.send_signal(gone, signal.SIGTERM)
    assert processes.start_time(child.pid) == 0


def test_a_spawned_process_has_its_own_session_its_log_and_nothing_else(tmp_path: Path) -> None:
    leak = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leak, False)
    code = "import os, signal; print(os.getsid(0) == os.getpid(), os.getcwd(), dict(os.environ))"
    log = tmp_path / "out.log"
    env = {"A": "1", "LC_CTYPE": "C.UTF-8"}
    pid = spawn.spawn([sys.executable, "-I", "-c", code], str(tmp_path), env, log)
    os.close(leak)
    assert os.waitpid(pid, 0)[1] == 0
    assert log.read_text() == f"True {tmp_path} {env}\n"


@pytest.mark.parametrize(
    ("program", "folder"), [("/no/such/program", "/"), ("true", "/no/such/folder")]
)
def test_a_program_that_cannot_be_executed_is_one_clear_error(
    tmp_path: Path, program: str, folder: str
) -> None:
    with pytest.raises(spawn.SpawnError, match=f"{program} cannot be started in {folder}: .*No s"):
        spawn.spawn([program], folder, {"PATH": "/usr/bin:/bin"}, tmp_path / "log")


@pytest.mark.parametrize(
    ("first_line", "hint"),
    [
        (b"#!/bin/sh\r\n", r"No such file .*; it exists, but the program on its .* \(Windows"),
        (b"echo hello\n", r"Exec format error.*; the first line of a script names its program"),
    ],
)
def test_a_script_whose_first_line_names_no_program_is_told_so(
    tmp_path: Path, first_line: bytes, hint: str
) -> None:
    script = tmp_path / "run.sh"
    script.write_bytes(first_line)
    script.chmod(0o755)
    with pytest.raises(spawn.SpawnError, match=hint):
        spawn.spawn(["./run.sh"], str(tmp_path), {"PATH": "/usr/bin:/bin"}, tmp_path / "log")


def test_a_machine_without_room_for_a_process_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", full)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(spawn.SpawnError, match=r"true cannot be started in /: .*unavailable"):
        spawn.spawn(["true"], "/", {}, tmp_path / "log")
    assert os.listdir("/proc/self/fd") == before, "init tries it again for as long as it lives"


def test_a_socket_path_may_be_longer_than_the_kernel_allows(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with files.listen(folder / "a.sock") as server:
        with files.connect(folder / "a.sock", 5.0) as client:
            client.sendall(b"hello")
            server.setblocking(True)
            accepted, _ = server.accept()
            with accepted:
                assert accepted.recv(5) == b"hello"
        assert (folder / "a.sock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "request_",
    [
        Spawn(3, ("a", "b"), "/", (("A", "1"),)),
        SendSigterm(1),
        WithdrawSigterm(2),
        Sweep(3, 0.5),
        End(1),
        GetStatus(),
    ],
)
def test_every_request_survives_the_socket(request_: Request) -> None:
    line = codec.dumps(request_)
    assert "\n" not in line
    assert codec.loads(Request, line) == request_  # type: ignore[arg-type]


class Served:
    """Clients of one socket, with the selector turned by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[Request] = []
        self.selector = selectors.DefaultSelector()
        self.clients = Clients(path, self.selector, self.asked.append, lambda: InitStatus(1, 2))

    def turn(self) -> None:
        for key, _ in self.selector.select(1.0):
            key.data()

    def say(self, client: socket.socket, data: bytes) -> None:
        client.sendall(data)
        self.turn()

    def connect(self) -> socket.socket:
        client = files.connect(self.path, 5.0)
        self.turn()
        return client

    def close(self) -> None:
        for key in list(self.selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self.selector.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "init.sock")
    yield made
    made.close()


def test_a_request_in_pieces_is_served_once_and_answered_with_the_status(served: Served) -> None:
    with served.connect() as client:
        line = codec.dumps(SendSigterm(4)).encode() + b"\n"
        served.say(client, line[:10])
        assert served.asked == []
        served.say(client, line[10:])
        assert served.asked == [SendSigterm(4)]
        assert codec.loads(InitStatus, client.recv(4096)) == InitStatus(1, 2)


@pytest.mark.parametrize("garbage", [b"{}\n", b"\xff\n", b'{"type":"Ring"}\n', b"[]\n"])
def test_garbage_closes_that_connection_and_no_other(
    served: Served, garbage: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with served.connect() as bad, served.connect() as good:
        served.say(bad, garbage)
        assert bad.recv(10) == b""
        served.say(good, codec.dumps(GetStatus()).encode() + b"\n")
        assert served.asked == [GetStatus()]
    assert "a request was refused" in capsys.readouterr().err


def test_a_start_with_more_than_the_kernel_takes_is_served_and_one_clear_error(
    served: Served, tmp_path: Path
) -> None:
    request = Spawn(1, ("true",), str(tmp_path), tuple((f"V{n}", "x" * 32768) for n in range(250)))
    with served.connect() as client:
        line = codec.dumps(request).encode() + b"\n"
        for at in range(0, len(line), 65536):
            served.say(client, line[at : at + 65536])
        for _ in range(len(line) // 65536):
            if not served.asked:
                served.turn()
    assert served.asked == [request]
    with pytest.raises(spawn.SpawnError, match="Argument list too long"):
        spawn.spawn(request.command, request.folder, dict(request.env), tmp_path / "log")


def test_an_endless_request_closes_the_connection(served: Served) -> None:
    with served.connect() as client:
        client.setblocking(False)
        sent = 0
        while sent <= 2 * REQUEST_BYTES_MAX:
            try:
                sent += client.send(b"x" * 65536)
            except BlockingIOError:
                pass
            except OSError:
                break
            served.turn()
        assert sent < 2 * REQUEST_BYTES_MAX
    assert served.asked == []


def test_a_client_that_does_not_read_is_dropped_and_init_goes_on(served: Served) -> None:
    with served.connect() as deaf, served.connect() as good:
        for _ in range(20_000):
            served.clients.broadcast()
            good.recv(4096)
        served.say(good, codec.dumps(GetStatus()).encode() + b"\n")
        assert served.asked == [GetStatus()]
        assert deaf.fileno() >= 0
    assert len(served.selector.get_map()) <= 2


def test_init_imports_nothing_beyond_the_standard_library() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import reshape_sidecar.init.supervisor;"
        "print(sorted({m.split('.')[0] for m in sys.modules} - sys.stdlib_module_names))"
    )
    root = Path(spawn.__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(root)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    ours = {"__main__", "reshape_sidecar"}
    assert set(eval(done.stdout)) <= ours | {"_sysconfigdata__linux_"}


def test_an_agent_that_died_once_starts_again_at_once_and_after_a_back_off_if_it_dies_again(
    tmp_path: Path,
) -> None:
    agent = AgentProcess((sys.executable, "-c", ""), tmp_path, tmp_path / "log", MARKER)
    waits_s = []
    for death_s in (100.0, 101.0, 102.0, 110.0, 110.0 + AGENT_STEADY_S):
        agent.start_if_due(death_s - 1.0 if death_s < 111.0 else 110.0)
        if agent.pid is not None:
            os.waitpid(agent.pid, 0)
        agent.on_exit(1, death_s)
        waits_s.append(round(agent.due_s - death_s, 3))
    assert waits_s == [0.0, 0.1, 0.2, 0.4, 0.0]
