"""The demo: two real TensorFlow jobs share four simulated GPUs, and no step is lost.

    python examples/demo/demo.py [--out out/demo] [--preset adaptive]

Does what a user would do: starts a daemon on a fresh home, submits Job 1, then Job 2, and looks at
both until they have ended. Prints what happens, then who had which GPU when; writes summary.json.
Exits with 1 when something that Reshape promises did not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from summary import summarize

from reshape_controller.cli.client import Client, connect
from reshape_controller.cli.exits import CliError
from reshape_controller.cli.home import Home
from reshape_controller.http.views import EventView, History, JobPage, JobView
from reshape_sidecar.wire import PhaseTimes

HERE = Path(__file__).parent
GPUS = 4
START_WAIT_S = 60.0
DEMO_WAIT_S = 900.0
POLL_S = 0.5
STEPS_BEFORE_JOB_2 = 40
"""Job 1 has trained so far when Job 2 arrives."""
ENDED = ("completed", "failed", "cancelled", "rejected")
QUIET = ("decided", "reshape-cost", "profile-recorded", "host-added", "controller-started")
"""History that a first look does not need; `reshape describe` and `reshape explain` show it."""


def main() -> int:
    """Run the demo; the exit code."""
    parser = argparse.ArgumentParser(description="Two real TensorFlow jobs on four simulated GPUs.")
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    parser.add_argument("--preset", default="adaptive")
    options = parser.parse_args()
    console = Console()
    home = fresh_home(options.out)
    console.print(
        f"[bold]Reshape demo[/bold]: preset {options.preset}, {GPUS} simulated GPUs on this host\n"
        "Job 1 may run on 1, 2 or 4 GPUs. Job 2 comes later and wants 2.\n"
        "Both are real TensorFlow processes; steps are paced by examples/demo/device_truth.json.\n"
    )
    with daemon(home, options.preset, options.out / "daemon.log"):
        client = connect(home)
        watch = Watch(client, console)
        submit(home, HERE / "job-1.yaml")
        watch.until(lambda jobs: jobs["job-1"].step >= STEPS_BEFORE_JOB_2)
        submit(home, HERE / "job-2.yaml")
        watch.until(lambda jobs: len(jobs) == 2 and all(j.state in ENDED for j in jobs.values()))
        console.print()
        # The timeline is the command's own, so that the demo shows what a user will see.
        subprocess.run([*reshape(), "timeline", "--home", str(home.folder)], check=True)
        summary = summarize(
            watch.jobs, watch.events, watch.starts, watch.containers(home), options.preset
        )
    (options.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    show(console, summary)
    console.print(f"\nwritten: {options.out / 'summary.json'}, logs in {home.jobs}")
    return 0 if all(summary["checks"].values()) else 1


def fresh_home(out: Path) -> Home:
    """An empty home below ``out``; ends the program when a daemon still uses the last one."""
    home = Home((out / "home").absolute())
    if home.folder.exists() and home.has_daemon():
        sys.exit(f"a daemon of an earlier demo still runs on {home.folder}: stop it first")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    return home


def reshape() -> list[str]:
    """The command ``reshape`` of this interpreter."""
    return [sys.executable, "-m", "reshape_controller.cli.main"]


@contextlib.contextmanager
def daemon(home: Home, preset: str, log: Path) -> Iterator[None]:
    """A daemon that is ready, and is stopped with its jobs at the end."""
    command = [*reshape(), "up", "--home", str(home.folder), "--simulated-gpus", str(GPUS)]
    command += [
        "--preset",
        preset,
        "--device-truth",
        str(HERE / "device_truth.json"),
        "--profiles",
        str(HERE / "profile.toml"),
        "--port",
        "0",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_until_ready(home, process, log)
        yield
        process.send_signal(signal.SIGTERM)
        process.wait(START_WAIT_S)
    finally:
        if process.poll() is None:
            with contextlib.suppress(CliError):
                for job in connect(home).get(JobPage, "/v1/jobs").jobs:
                    if job.state not in ENDED:
                        connect(home).ask("POST", f"/v1/jobs/{job.id}/cancel")
            time.sleep(POLL_S)
            process.terminate()


def wait_until_ready(home: Home, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the daemon to answer; ends the program with its log when it does not."""
    end_s = time.monotonic() + START_WAIT_S
    while process.poll() is None and time.monotonic() < end_s:
        with contextlib.suppress(CliError):
            connect(home).ask("GET", "/readyz")
            return
        time.sleep(0.1)
    sys.exit(f"the daemon did not start; its log:\n{log.read_text()}")


def submit(home: Home, record: Path) -> None:
    """Submit a record as a user does."""
    subprocess.run(
        [*reshape(), "submit", str(record), "--home", str(home.folder)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class Watch:
    """What the daemon says of the jobs, printed as it happens."""

    def __init__(self, client: Client, console: Console) -> None:
        self.jobs: dict[str, JobView] = {}
        self.events: list[EventView] = []
        self.starts: dict[tuple[str, int], PhaseTimes] = {}
        """By job and generation: the phases of that start, as its SideCar measured them."""
        self._client = client
        self._console = console
        self._printed: dict[str, int] = {}
        self._begin_s: float | None = None

    def until(self, holds: object) -> None:
        """Look, and print what is new, until ``holds(jobs by name)``."""
        assert callable(holds)
        end_s = time.monotonic() + DEMO_WAIT_S
        with bars(self._console) as progress:
            while True:
                self._look()
                draw(progress, self.jobs)
                if self.jobs and holds(self.jobs):
                    return
                failed = [job for job in self.jobs.values() if job.state in ENDED[1:]]
                if failed or time.monotonic() > end_s:
                    what = "; ".join(f"{job.name} is {job.state}: {job.reason}" for job in failed)
                    sys.exit(what or f"the demo did not end within {DEMO_WAIT_S:.0f} s")
                time.sleep(POLL_S)

    def containers(self, home: Home) -> dict[str, list[str]]:
        """By job name: the init (pid and start time) of each container that it ever had."""
        found: dict[str, list[str]] = {}
        for job in self.jobs.values():
            inits = sorted((home.jobs / job.id).glob("attempt-*/run/init.json"))
            found[job.name] = [path.read_text() for path in inits]
        return found

    def _look(self) -> None:
        page = self._client.get(JobPage, "/v1/jobs")
        self.jobs = {job.name: job for job in page.jobs}
        fresh: list[tuple[float, str, EventView]] = []
        for job in page.jobs:
            if job.stage == "training" and job.times.first_step_s is not None:
                self.starts[job.id, job.generation] = job.times
            events = self._client.get(History, f"/v1/jobs/{job.id}/history").events
            seen = self._printed.get(job.id, 0)
            fresh += [(event.at_s, job.name, event) for event in events[seen:]]
            self._printed[job.id] = len(events)
        for at_s, name, event in sorted(fresh, key=lambda entry: entry[0]):
            self._begin_s = at_s if self._begin_s is None else self._begin_s
            self.events.append(event)
            if event.kind not in QUIET:
                when = f"{at_s - self._begin_s:6.1f} s"
                self._console.print(f"{when}  [bold]{name}[/bold]  {event.kind:<13} {event.text}")


def bars(console: Console) -> Progress:
    """A bar for each job; nothing where the output is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} steps  {task.fields[what]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def draw(progress: Progress, jobs: dict[str, JobView]) -> None:
    """Bring the bars up to date."""
    known = {task.description: task.id for task in progress.tasks}
    for name, job in jobs.items():
        what = f"{job.state}, {job.size} GPUs" if job.size else job.state
        if name not in known:
            known[name] = progress.add_task(name, total=1, what=what)
        total = job.total_steps or max(job.step, 1)
        progress.update(known[name], completed=job.step, total=total, what=what)


def show(console: Console, summary: dict[str, object]) -> None:
    """The summary, for people."""
    table = Table(title="What was promised, and whether it held", title_justify="left")
    table.add_column("promise")
    table.add_column("held")
    checks = summary["checks"]
    assert isinstance(checks, dict)
    for what, held in checks.items():
        table.add_row(what.replace("_", " "), "[green]yes[/green]" if held else "[red]NO[/red]")
    console.print(table)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.exit(main())
