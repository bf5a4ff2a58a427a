"""What other threads and processes give to training is named; what they are given is not."""

from __future__ import annotations

import multiprocessing
import queue
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest

from reshape_sidecar.hook.exactness import UNKNOWN
from reshape_sidecar.verdict import channels, influence, origin
from reshape_sidecar.verdict.channels import SENT
from reshape_sidecar.verdict.watch import Watch

BODIES: dict[str, tuple[str, str, bool]] = {
    "an environment in a child": (
        "env.remote",
        "class Env:\n  def __init__(self): self.remote, child = Pipe()\n"
        "  def step(self, a):\n    self.remote.send(a)\n    return self.remote.recv()\n"
        "env = Env()\nloss = model(x) * env.step(1)\nloss.backward()",
        True,
    ),
    "several environments": (
        "env.remotes[0]",
        "class Env:\n  def __init__(self): self.remotes = [Pipe()[0] for _ in range(2)]\n"
        "  def step(self):\n    found = [one.recv() for one in self.remotes]\n    return found\n"
        "env = Env()\ntrain(env.step())",
        True,
    ),
    "a thread that fills a queue": (
        "feed.queue",
        "class Feed(threading.Thread):\n  def __init__(self, g): self.queue, self.g = Queue(), g\n"
        "  def run(self):\n    for one in self.g: self.queue.put(one)\n"
        "  def __next__(self): return self.queue.get()\nfeed = Feed(g)",
        True,
    ),
    "what a child prints": (
        "child",
        "child = subprocess.Popen(words)\nw = float(child.stdout.readline())\nstep(w)",
        True,
    ),
    "an object of a library": ("env.pipes[0]", "env = AsyncEnv()\nstep(env.recv())", True),
    "a worker in a function": (
        "q",
        "def main():\n  q = Queue()\n  def work():\n    while True:\n      step(q.get())\n"
        "  Thread(target=work).start()\n  q.put(1)\nmain()",
        False,
    ),
    "a queue of a function, beside a name of another one": (
        "q",
        "def show(q): print(q.get())\ndef main():\n  q = Queue()\n  train(q.get())\nmain()",
        True,
    ),
    "an end by another process": ("q", "q = Queue()\nif q.get(): raise SystemExit", False),
    "a loop that another process ends": ("q", "q = Queue()\nwhile q.get(): step()", True),
    "a thread that logs": (
        "log.q",
        "class Log(threading.Thread):\n  def __init__(self): self.q = Queue()\n  def run(self):\n"
        "    while True:\n      item = self.q.get()\n      if item is None: break\n"
        "      self.post(item)\n  def post(self, item): requests.post(url, item)\n"
        "  def close(self):\n    while not self.q.empty(): time.sleep(1)\n    self.q.put(None)\n"
        "log = Log()\nlog.q.put(loss.item())\nloss.backward()",
        False,
    ),
    "a process that saves and answers": (
        "remote",
        "def save(conn):\n  while True: write(conn.recv())\nremote, conn = Pipe()\n"
        "p = Process(target=save, args=(conn,))\nremote.send(model)\n"
        "print(remote.recv())\nassert remote.recv() == 'done'\nremote.close()",
        False,
    ),
    "a thread that writes what it gets, and ends by itself": (
        "w.q",
        "class Writer:\n  def __init__(self):\n    self.q = Queue()\n"
        "    self.t = Thread(target=self.work)\n  def work(self):\n    while True:\n"
        "      got = self.q.get()\n      if got is None: return\n      f.write(got)\n"
        "  def close(self):\n    self.q.put(None)\n    self.t.join()\nw = Writer()\nstep(x)",
        False,
    ),
    "a program that shows": (
        "child",
        "child = Popen(w)\nchild.stdin.write(t)\nchild.wait()",
        False,
    ),
    "a window of a library": ("vis.socket", "vis = Visdom()\nvis.line(loss)\nstep(x)", False),
}


@pytest.mark.parametrize("kind", BODIES)
def test_whether_training_receives_what_a_channel_gives(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, text, wanted = BODIES[kind]
    file = tmp_path / "script.py"
    file.write_text(text)
    monkeypatch.setattr(origin, "files_of_script", lambda: frozenset({str(file)}))
    found = Watch(lambda reach: reach.channels.add(path))
    found.begin()
    found.look()
    named = [(SENT.format(path), UNKNOWN)] if wanted else []
    assert list(found.reasons("remedy")) == named


def test_a_method_run_of_a_trainer_is_none_of_a_thread(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(
        "class Log(Thread):\n  def run(self): pass\nq = Queue()\n"
        "class Trainer:\n  def run(self): optimizer.step(q.get())"
    )
    assert influence.feeds(["q"], [str(file)])


def test_a_channel_of_a_text_that_cannot_be_read_feeds(tmp_path: Path) -> None:
    assert influence.feeds(["q"], [str(tmp_path / "absent.py")])


CHANNELS: dict[str, Callable[[], Any]] = {
    "queue": queue.Queue,
    "plain queue": queue.SimpleQueue,
    "queue of processes": multiprocessing.Queue,
    "pipe": lambda: multiprocessing.Pipe()[0],
    "socket": socket.socket,
    "child": lambda: subprocess.Popen(["true"]),
}


@pytest.mark.parametrize("kind", CHANNELS)
def test_a_channel_is_told_by_its_class(kind: str) -> None:
    made = CHANNELS[kind]()
    assert channels.is_channel(made, "made")
    for end in ("close", "wait"):
        getattr(made, end, lambda: None)()


@pytest.mark.parametrize("other", [threading.Event(), threading.Lock(), [], "queue"])
def test_what_gives_nothing_is_no_channel(other: object) -> None:
    assert not channels.is_channel(other, "script.other")


def test_a_task_that_an_object_holds_runs_ahead_and_one_of_a_variable_may_be_of_its_step() -> None:
    assert channels.is_channel(Future[int](), "prefetch.next")
    assert not channels.is_channel(Future[int](), "found")


def test_a_look_sees_that_the_results_of_a_pool_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "files_of_script", frozenset)
    with ThreadPool(1) as pool:
        script = {"results": pool.imap(abs, range(9))}
        pool.apply(abs, (1,))  # all results are there
        found = Watch(lambda reach: reach.take("script", "", None, None, script))
        found.begin()
        next(script["results"])
        found.look()
    assert [kind for _, kind in found.reasons("")] == [UNKNOWN]


class Feed(threading.Thread):
    """An iterator whose thread fills a queue."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: queue.Queue[int] = queue.Queue()
        self.given = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.given += 1
        return self.ready.get()


def test_a_look_enters_an_iterator_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "files_of_script", frozenset)
    script = {"feed": Feed()}
    found = Watch(lambda reach: reach.take("script", "", None, None, script))
    found.begin()
    script["feed"].ready.put(1)
    next(script["feed"])
    found.look(deep=True)
    assert [one["path"] for one in found.capture()] == ["script['feed'].given"]
    assert [reason for reason, _ in found.reasons("")] == [SENT.format("script['feed'].ready")]
