"""Init's part of the zygote, with a small program in its place: every failure is a cold start."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar import limits
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.values import Adopt, Prepare, SuccessorProcess, UseZygote
from reshape_sidecar.wire import PrepareStage, StandbyState, StartKind
from tests.support.zygote_bed import ZygoteBed, zygote_bed

FAKE = """
import json, os, socket, sys, time
control = socket.socket(fileno=int(os.environ["RESHAPE_ZYGOTE_SOCKET"]))
os.set_inheritable(control.fileno(), False)
init = os.getppid()

def say(stream, **fields):
    stream.sendall(json.dumps(fields).encode() + b"\\n")

def order(stream):
    text = b""
    while not text.endswith(b"\\n"):
        part = stream.recv(65536)
        if not part:
            os._exit(0)
        text += part
    return json.loads(text)

def fork(stream, marked=True):
    "A fork that executes the command, as init's child and with its marker."
    if os.fork():
        os.wait()
        return
    middle = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == middle:
        time.sleep(0.001)
    asked = order(stream)
    if marked:
        waiter = (
            "import ctypes, json, os, socket, sys; os.setsid();"
            "ctypes.CDLL(None).prctl(1, 9, 0, 0, 0);"
            "s = socket.socket(fileno=int(sys.argv[1]));"
            "s.sendall(json.dumps({'pid': os.getpid()}).encode() + bytes([10]));"
            "os.set_inheritable(s.fileno(), False);"
            "s.recv(3) == b'go' + bytes([10]) and os.execvpe(sys.argv[2], sys.argv[2:], os.environ)"
        )
        stream.set_inheritable(True)
        words = [sys.executable, "-c", waiter, str(stream.fileno()), *asked["command"]]
        os.execve(sys.executable, words, asked["environment"])
    say(stream, pid=os.getpid())
    stream.recv(3)
    os._exit(0)

BEFORE
say(control, ready=True)
while True:
    text, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    if not text:
        break
    stream = socket.socket(fileno=descriptors[0])
    SERVE
    stream.close()
"""
SLEEP = "import time; print('HERE', flush=True); time.sleep(600)"


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[ZygoteBed]:
    with zygote_bed(tmp_path) as made:
        made.script("train.py", "print('HERE', flush=True)")
        made.script("wait.py", SLEEP)
        yield made


def use(bed: ZygoteBed, serve: str = "fork(stream)", before: str = "", key: str = "k") -> None:
    """Have init keep the small program, which does ``serve`` at an order."""
    bed.script("fake.py", FAKE.replace("BEFORE", before).replace("SERVE", serve))
    env = tuple(sorted(bed.variables.items()))
    bed.ask(UseZygote(key, (sys.executable, "fake.py"), str(bed.code), env))


def ready(bed: ZygoteBed, serve: str = "fork(stream)", before: str = "") -> None:
    use(bed, serve, before)
    bed.until("the zygote", lambda: bed.zygote().state is StandbyState.READY)


def test_a_start_is_the_zygotes_fork_and_a_child_of_init(bed: ZygoteBed) -> None:
    ready(bed)
    training = bed.start("wait.py", key="k")
    assert (training.how, training.fallback) == (StartKind.ZYGOTE, None)
    found = proc.read(training.pid)
    assert found is not None
    assert found.parent == bed.init.pid
    os.kill(training.pid, signal.SIGKILL)
    assert bed.ended().exit_code == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("serve", "reason"),
    [
        ("time.sleep(600)", "did not answer: nothing came within"),
        ("os._exit(9)", "did not answer"),
        ("say(stream, failed='no such folder')", "the fork failed: no such folder"),
        ("say(stream, stale='numpy has changed')", "numpy has changed"),
        ("stream.sendall(b'nonsense\\n')", "did not answer"),
        ("fork(stream, marked=False)", "does not show its generation"),
        ("say(stream, pid=1)", "does not show its generation"),
    ],
)
def test_a_zygote_that_serves_no_fork_gives_a_cold_start(
    bed: ZygoteBed, serve: str, reason: str
) -> None:
    ready(bed, serve)
    zygote = bed.zygote()
    ended, output = bed.run("train.py", key="k")
    assert ended.how is StartKind.COLD
    assert ended.fallback is not None
    assert reason in ended.fallback
    assert output.count("HERE") == 1
    if "the fork failed" not in reason:
        bed.until("its end", lambda: not proc.alive(zygote.pid, zygote.start_time))


def ask_successor(bed: ZygoteBed) -> None:
    env = tuple(sorted(bed.environment().items()))
    command = (sys.executable, "wait.py")
    bed.ask(Prepare(1, ("GPU-0",), command, str(bed.code), env, "k"))


def prepared(bed: ZygoteBed) -> SuccessorProcess:
    """Return the successor once it has begun."""
    bed.until("it begins", lambda: (status := bed.status().prepared) is not None and status.pid)
    found = bed.status().prepared
    assert found is not None
    return found


@pytest.mark.parametrize(
    "serve",
    ["os._exit(9)", "say(stream, failed='no such folder')", "stream.sendall(b'nonsense\\n')"],
)
def test_a_successor_that_the_zygote_does_not_fork_starts_cold(bed: ZygoteBed, serve: str) -> None:
    ready(bed, serve)
    ask_successor(bed)
    successor = prepared(bed)
    assert successor.running
    bed.until("its line", lambda: "HERE" in bed.log())
    found = proc.read(successor.pid)
    assert found is not None
    assert found.parent == bed.init.pid
    assert b"RESHAPE_STANDBY_FD=" in Path(f"/proc/{successor.pid}/environ").read_bytes()


def test_a_sweep_gives_up_a_successor_that_has_not_begun(bed: ZygoteBed) -> None:
    ready(bed, "time.sleep(1); fork(stream); print('SERVED', flush=True)")
    zygote = bed.zygote()
    ask_successor(bed)
    bed.sweep(0.0)
    status = bed.status().prepared
    assert status is not None
    assert (status.pid, status.running) == (0, False)
    assert status.reason == "a sweep came before it began"
    bed.until("the order", lambda: "SERVED" in bed.log("zygote.log"))
    time.sleep(0.5)  # the time of a fork to answer
    assert bed.zygote() == zygote, "the zygote goes on"
    assert "HERE" not in bed.log("zygote.log") + bed.log()


def test_a_successor_that_is_adopted_before_it_has_begun_fails_and_never_runs(
    bed: ZygoteBed,
) -> None:
    ready(bed, "time.sleep(1); fork(stream); print('SERVED', flush=True)")
    ask_successor(bed)
    status = bed.ask(Adopt(1, 1))
    assert status.training is None
    assert status.prepared is not None
    assert status.prepared.stage is PrepareStage.FAILED
    bed.until("the order", lambda: "SERVED" in bed.log("zygote.log"))
    time.sleep(0.5)  # the time of a fork to answer
    assert "HERE" not in bed.log("zygote.log") + bed.log()


def test_the_end_of_a_container_starts_no_successor_that_waits_for_its_fork(
    bed: ZygoteBed,
) -> None:
    ready(bed, "time.sleep(600)")
    ask_successor(bed)
    bed.end()
    assert "HERE" not in bed.log("zygote.log") + bed.log()


def test_a_stopped_zygote_gives_a_cold_start(bed: ZygoteBed) -> None:
    ready(bed)
    os.kill(bed.zygote().pid, signal.SIGSTOP)
    ended, output = bed.run("train.py", key="k")
    assert ended.how is StartKind.COLD
    assert output.count("HERE") == 1
    bed.until("its end", lambda: bed.zygote().pid == 0)


def test_a_fork_of_a_start_that_was_given_up_never_runs(bed: ZygoteBed) -> None:
    ready(bed, "time.sleep(7); fork(stream)")
    zygote = bed.zygote()
    ended, output = bed.run("train.py", key="k")
    assert ended.how is StartKind.COLD
    bed.until("its end", lambda: not proc.alive(zygote.pid, zygote.start_time))
    bed.sweep(0.0)
    assert bed.log().count("HERE") == output.count("HERE") == 1


def test_init_serves_on_while_its_zygote_hangs(bed: ZygoteBed) -> None:
    ready(bed, "time.sleep(600)")
    asked_s = time.monotonic()
    assert bed.ask_start("train.py", key="k").training is None
    assert bed.status().training is None
    answered_s = time.monotonic() - asked_s
    assert answered_s < limits.ZYGOTE_ANSWER_S, "it answers before the zygote is given up"
    assert bed.ended().how is StartKind.COLD


def test_a_sweep_gives_up_a_start_that_has_not_begun(bed: ZygoteBed) -> None:
    ready(bed, "time.sleep(1); fork(stream); print('SERVED', flush=True)")
    zygote = bed.zygote()
    bed.ask_start("train.py", key="k")
    bed.sweep(0.0)
    bed.until("the order", lambda: "SERVED" in bed.log("zygote.log"))
    time.sleep(0.5)  # the time of a fork to answer
    assert bed.status().training is None
    training = bed.start("wait.py", key="k")
    assert training.how is StartKind.ZYGOTE, "the zygote goes on"
    assert bed.zygote() == zygote
    bed.until("its line", lambda: "HERE" in bed.log("zygote.log"))
    lines = bed.log("zygote.log") + bed.log()
    assert lines.count("HERE") == 1, "what was given up ran neither as a fork nor cold"


def test_a_fork_that_is_killed_before_it_begins_is_a_cold_start(bed: ZygoteBed) -> None:
    ready(bed, "time.sleep(1); os.kill(os.getpid(), 9)")
    ended, output = bed.run("train.py", key="k")
    assert (ended.how, ended.exit_code) == (StartKind.COLD, 0)
    assert ended.fallback is not None
    assert "did not answer: its fork ended" in ended.fallback
    assert output.count("HERE") == 1


def test_a_start_that_waits_for_its_fork_dies_with_init(bed: ZygoteBed) -> None:
    ready(bed, "time.sleep(1); fork(stream)")
    zygote = bed.zygote()
    bed.ask_start("train.py", key="k")
    os.kill(bed.init.pid, signal.SIGKILL)
    bed.init.wait()
    for entry in proc.marked_processes(proc.snapshot()):
        if entry.marker == bed.marker:
            bed.gone(entry.proc.pid, entry.proc.start_time)
    assert not proc.alive(zygote.pid, zygote.start_time)
    assert "HERE" not in bed.log("zygote.log") + bed.log()


def test_a_zygote_that_still_imports_gives_a_cold_start(bed: ZygoteBed) -> None:
    use(bed, before="time.sleep(600)")
    ended, _ = bed.run("train.py", key="k")
    assert (ended.how, ended.fallback) == (StartKind.COLD, "the zygote is starting")


def test_another_key_or_none_gives_a_cold_start(bed: ZygoteBed) -> None:
    ready(bed)
    ended, _ = bed.run("train.py", key="other")
    assert ended.how is StartKind.COLD
    assert ended.fallback == "the zygote has another interpreter or environment"
    ended, _ = bed.run("train.py", key=None)
    assert (ended.how, ended.fallback) == (StartKind.COLD, None)


def test_a_zygote_that_finds_itself_unfit_stays_off_and_says_why(bed: ZygoteBed) -> None:
    use(bed, before="say(control, off='two threads'); sys.exit(0)")
    bed.until("off", lambda: bed.zygote().state is StandbyState.OFF)
    bed.until("its end", lambda: bed.zygote().pid == 0)
    ended, _ = bed.run("train.py", key="k")
    assert (ended.how, ended.fallback) == (StartKind.COLD, "two threads")


def test_a_sweep_spares_the_zygote_and_the_end_of_the_container_does_not(bed: ZygoteBed) -> None:
    ready(bed)
    zygote = bed.zygote()
    training = bed.start("wait.py", key="k")
    bed.sweep(0.0)
    assert not proc.alive(training.pid, training.start_time)
    assert bed.zygote() == zygote
    bed.end()
    assert not proc.alive(zygote.pid, zygote.start_time)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_fork_that_goes_on_as_a_cold_start_says_so(bed: ZygoteBed, ranks: int) -> None:
    """Each of several ranks says so, and init may read what two of them say at once."""
    line = "json.dumps({'cold': 'the script sets A', 'variables': {'A': '1'}}) + '\\n'"
    cold = f"stream.sendall((({line}) * {ranks}).encode())"
    wait = "fork(stream)\n    while not os.path.exists('begun'): time.sleep(0.01)"
    ready(bed, f"{wait}\n    {cold}")
    began = bed.start("wait.py", key="k")
    bed.script("begun", "")
    assert began.how is StartKind.ZYGOTE

    def went_cold() -> bool:
        training = bed.status().training
        return training is not None and training.how is StartKind.COLD

    bed.until("the word of the fork", went_cold)
    training = bed.status().training
    assert training is not None
    assert (training.pid, training.fallback) == (began.pid, "the script sets A")
    assert bed.zygote().state is StandbyState.NONE
    assert proc.alive(began.pid, began.start_time)


def test_a_zygote_is_made_again_beside_training_and_then_no_more(tmp_path: Path) -> None:
    with zygote_bed(tmp_path, again_s=0.0) as bed:
        bed.script("train.py", "print('HERE', flush=True)")
        bed.script("wait.py", SLEEP)
        ready(bed)
        first = bed.zygote().pid
        os.kill(first, signal.SIGKILL)
        bed.until("its end", lambda: bed.zygote().state is StandbyState.NONE)
        dead = {first}
        bed.start("wait.py", key="k")
        for _ in range(limits.ZYGOTE_STARTS_MAX - 1):
            bed.until("another", lambda: bed.zygote().state is StandbyState.READY)
            pid = bed.zygote().pid
            assert pid not in dead
            dead.add(pid)
            os.kill(pid, signal.SIGKILL)
            bed.until("its end", lambda: bed.zygote().pid not in dead)
        bed.until("off", lambda: bed.zygote().state is StandbyState.OFF)
        assert f"started {limits.ZYGOTE_STARTS_MAX} times" in bed.zygote().reason


def test_a_zygote_dies_with_init(bed: ZygoteBed) -> None:
    ready(bed)
    zygote = bed.zygote()
    training = bed.start("wait.py", key="k")
    os.kill(bed.init.pid, signal.SIGKILL)
    bed.init.wait()
    for process in (zygote, training):
        bed.gone(process.pid, process.start_time)
