"""One run: a daemon on a fresh home, the two jobs at their times, until both have ended.

Does what a user would do, with the command ``reshape``. Never: reaches into the daemon. State: the
run's folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from observed import Run, read_log
from rich.console import Console
from scenario import DEVICE_TRUTH, GPUS, RECORDS, SUBMIT_AT_S, Costs, Preset
from watch import ENDED, Watch

from reshape_controller.cli import config
from reshape_controller.cli.client import connect
from reshape_controller.cli.exits import CliError
from reshape_controller.cli.home import Home
from reshape_controller.cli.serve.store_place import store_place
from reshape_controller.http.timeline import Timeline
from reshape_controller.http.views import JobPage, JobView

START_WAIT_S = 60.0
END_WAIT_S = 30.0
"""A cancelled job's container ends within this, or is left to the message."""


def server_of(flag: str | None) -> str | None:
    """The server of ``--store`` or of the settings; None: files. Raises CliError."""
    settings = config.load({"store": flag})
    store_place(settings)
    return settings.text("store")


def run(preset: Preset, costs: Costs, folder: Path, server: str | None, console: Console) -> Run:
    """Run both jobs. Raises RunFailed; no process of the run is left either way."""
    home = Home((folder / "home").absolute())
    environment = dict(os.environ)
    if server is not None:
        # A server has no fresh home: a database of the run's own.
        stamp = time.strftime("%Y%m%d-%H%M%S")
        environment["RESHAPE_STORE"] = _with_database(server, f"{preset.name}_{stamp}")
    place = store_place(config.load({"home": str(home.folder)}, environment))
    if place.server is not None:
        console.print(f"its store is {place.text}")
    with _daemon(home, preset, costs, folder / "daemon.log", environment):
        client = connect(home)
        watch = Watch(client, console)
        begin_s = time.monotonic()
        for name, record in RECORDS.items():
            due_s = begin_s + SUBMIT_AT_S[name]
            if time.monotonic() < due_s:
                watch.until(lambda _, due_s=due_s: time.monotonic() >= due_s)  # type: ignore[misc]
            _submit(home, record)
        watch.until(lambda jobs: len(jobs) == len(RECORDS) and all(map(_is_over, jobs.values())))
        watch.read_all()
        timeline = client.get(Timeline, "/v1/timeline")
    facts = read_log(place.make())
    return Run(
        preset=preset.name,
        jobs=tuple(watch.jobs.values()),
        history=tuple(watch.events),
        timeline=timeline,
        samples=tuple(watch.samples),
        phases=facts.phases,
        processes=facts.processes,
        containers={job.id: len(set(_inits(home.jobs / job.id))) for job in watch.jobs.values()},
    )


def clear(out: Path) -> None:
    """Empty ``out``; ends the program when a daemon of an earlier demo still runs there."""
    for address in sorted(out.glob("**/address.json")):
        if Home(address.parent.absolute()).has_daemon():
            sys.exit(f"a daemon of an earlier demo still runs on {address.parent}: stop it first")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)


def _with_database(server: str, name: str) -> str:
    """The address with ``name`` behind the database that it names, or in place of none."""
    address, mark, options = server.partition("?")
    scheme, _, rest = address.partition("://")
    host, _, given = rest.partition("/")
    return f"{scheme}://{host}/{given or 'demo'}_{name}{mark}{options}"


def reshape() -> list[str]:
    """The command ``reshape`` of this interpreter."""
    return [sys.executable, "-m", "reshape_controller.cli.main"]


def _is_over(job: JobView) -> bool:
    """Ended, and its container is gone too."""
    return job.state in ENDED and job.stage == "none"


def _inits(folder: Path) -> list[str]:
    """The init (pid and start time) of each container that a job ever had."""
    return [path.read_text() for path in sorted(folder.glob("attempt-*/run/init.json"))]


@contextlib.contextmanager
def _daemon(
    home: Home, preset: Preset, costs: Costs, log: Path, environment: dict[str, str]
) -> Iterator[None]:
    """A daemon that is ready, and is stopped with its jobs at the end."""
    command = [
        *(*reshape(), "up", "--home", str(home.folder), "--port", "0"),
        *("--simulated-gpus", str(GPUS), "--device-truth", str(DEVICE_TRUTH)),
        *("--profiles", str(costs.profile), *preset.flags, *costs.flags),
    ]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        # A session of its own: Ctrl-C ends the demo, which then ends the jobs and the daemon.
        process = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True, env=environment
        )
    try:
        _wait_until_ready(home, process, log)
        yield
    finally:
        if process.poll() is None:
            _cancel_all(home)
            process.send_signal(signal.SIGTERM)
            process.wait(START_WAIT_S)


def _wait_until_ready(home: Home, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the daemon to answer; ends the program with its log when it does not."""
    end_s = time.monotonic() + START_WAIT_S
    while process.poll() is None and time.monotonic() < end_s:
        with contextlib.suppress(CliError):
            connect(home).ask("GET", "/readyz")
            return
        time.sleep(0.1)
    sys.exit(f"the daemon did not start; its log:\n{log.read_text()}")


def _submit(home: Home, record: Path) -> None:
    """Submit a record as a user does."""
    done = subprocess.run(
        [*reshape(), "submit", str(record), "--home", str(home.folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{record} was not accepted:\n{done.stderr}")


def _cancel_all(home: Home) -> None:
    """Cancel what has not ended, and wait until every container is gone."""
    end_s = time.monotonic() + END_WAIT_S
    with contextlib.suppress(CliError):
        client = connect(home)
        while time.monotonic() < end_s:
            jobs = client.get(JobPage, "/v1/jobs").jobs
            if all(map(_is_over, jobs)):
                return
            for job in jobs:
                if job.state not in ENDED:
                    with contextlib.suppress(CliError):
                        client.ask("POST", f"/v1/jobs/{job.id}/cancel")
            time.sleep(0.2)
