"""A daemon that a command starts for itself in a folder, and ends with its jobs.

Does: run ``reshape up`` on simulated GPUs as a process of its own, wait until it answers, and at
the end cancel all jobs, wait until no container is left, and stop it. A guard process of this
module does the same if the command is killed. State: the processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.home import Home
from reshape_controller.cli.signals import ended_in_order
from reshape_gpu.client import Client
from reshape_gpu.errors import ClientError
from reshape_gpu.requests import Request, Response
from reshape_gpu.target import of_home
from reshape_gpu.values import ENDED, JobView

START_WAIT_S = 60.0
END_WAIT_S = 60.0
"""Time limit for the end of cancelled jobs and their containers."""
POLL_S = 0.1


@contextlib.contextmanager
def own_daemon(
    folder: Path, words: Sequence[str], settings: Mapping[str, str] | None = None
) -> Iterator[Client]:
    """Give a client of a daemon with its home in ``folder`` within the context.

    ``words`` go to ``reshape up``, and ``settings`` into its environment. SIGTERM ends both, as
    Ctrl-C does. Raises CliError, with the end of the daemon's log, if it does not start.
    """
    with ended_in_order(), _running(folder, words, settings or {}) as client:
        yield client


@contextlib.contextmanager
def _running(folder: Path, words: Sequence[str], settings: Mapping[str, str]) -> Iterator[Client]:
    home, log = Home((folder / "home").absolute()), folder / "daemon.log"
    command = [sys.executable, "-m", "reshape_controller.cli.main", "up"]
    command += ["--home", str(home.folder), "--port", "0", *words]
    others = ("RESHAPE_", "XDG_CONFIG_HOME")
    env = {name: text for name, text in os.environ.items() if not name.startswith(others)}
    env |= {"XDG_CONFIG_HOME": str(folder), **settings}  # no other settings
    with log.open("wb") as out:
        # A session of its own, so that Ctrl-C ends the command, which ends jobs and daemon.
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env, start_new_session=True)
    with _guarded(home, process.pid), _ended(home, process):
        yield _ready(home, process, log)


@contextlib.contextmanager
def _guarded(home: Home, daemon: int) -> Iterator[None]:
    """Run a guard whose stdin closes at any end of this process."""
    command = [sys.executable, "-m", __name__, str(home.folder), str(daemon)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ):
        yield


def _guard(home: Home, daemon: int) -> None:
    """Wait for the end of the command, and end its daemon if it still runs."""
    sys.stdin.buffer.read()
    with contextlib.suppress(OSError):
        if str(home.folder).encode() in Path(f"/proc/{daemon}/cmdline").read_bytes():
            _cancel_all(home)
            os.kill(daemon, signal.SIGTERM)


@contextlib.contextmanager
def _ended(home: Home, process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        if process.poll() is None:
            _cancel_all(home)
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_WAIT_S)
        if process.poll() is None:
            process.kill()
            process.wait()


def is_over(job: JobView) -> bool:
    """True if the job has ended and its container is gone."""
    return job.state in ENDED and job.stage == "none"


def jobs_of(client: Client) -> dict[str, JobView]:
    """Return all jobs of the daemon by name, oldest first."""
    found: dict[str, JobView] = {}
    after: str | None = None
    while True:
        page = client.page(after=after)
        found.update({job.name: job for job in page.jobs})
        if page.next_after is None:
            return found
        after = page.next_after


def _ready(home: Home, process: subprocess.Popen[bytes], log: Path) -> Client:
    end_s = time.monotonic() + START_WAIT_S
    while process.poll() is None and time.monotonic() < end_s:
        with contextlib.suppress(ClientError):
            client = Client.at(of_home(home))
            client.ask(Request("GET", "/readyz", Response))
            return client
        time.sleep(POLL_S)
    last = log.read_text(errors="replace").strip().splitlines()[-5:]
    raise failed(Exit.FAILED, "its daemon did not start: " + " / ".join(last), str(log))


def _cancel_all(home: Home) -> None:
    end_s = time.monotonic() + END_WAIT_S
    with contextlib.suppress(ClientError):
        client = Client.at(of_home(home))
        while time.monotonic() < end_s:
            jobs = jobs_of(client).values()
            if all(map(is_over, jobs)):
                return
            for job in jobs:
                if job.state not in ENDED:
                    with contextlib.suppress(ClientError):
                        client.cancel(job.id)
            time.sleep(POLL_S)


if __name__ == "__main__":
    _guard(Home(Path(sys.argv[1])), int(sys.argv[2]))
