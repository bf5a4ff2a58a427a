"""Prints the daemon's history of the jobs while they run.

Does: looks five times a second and prints news as lines. Where each job is, and what comes next, it
shows all the time: on a terminal as bars, elsewhere as a line after each few silent seconds. Never:
changes anything. State: what it has seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from observed import Sample
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from reshape_gpu import requests
from reshape_gpu.client import Client
from reshape_gpu.values import ENDED, EventView, JobView

POLL_S = 0.2
"""Iterations per second are made of what is seen, so it is looked at often."""
SILENT_S = 5.0
"""After so long without a line there is one that says how far the jobs are."""
STAGES = {
    "none": "is queued",
    "launching": "starts its container",
    "ready": "is initialised and waits for its GPUs",
    "starting": "starts",
    "training": "trains",
    "saving": "saves",
    "stopping": "stops",
    "ending": "ends its container",
}
RUN_WAIT_S = 900.0
"""A run that takes longer than this has failed."""
QUIET = (
    "decided",
    "reshape-cost",
    "start-cost",
    "profile-recorded",
    "host-added",
    "controller-started",
)
"""History that a first look does not need; `reshape describe` and `reshape explain` show it."""


class RunFailed(Exception):
    """A job did not complete, or did not end in time; the text says which and why."""


class Watch:
    """Follows the jobs of one daemon."""

    def __init__(self, client: Client, console: Console) -> None:
        self.jobs: dict[str, JobView] = {}
        """By name, in order of submission."""
        self.events: list[EventView] = []
        self.samples: list[Sample] = []
        self._client = client
        self._console = console
        self._printed: dict[str, int] = {}
        self._seqs: dict[str, int] = {}
        """The newest record about a job whose history was read."""
        self._begin_s: float | None = None
        self._printed_at_s = time.monotonic()

    def until(self, holds: Callable[[dict[str, JobView]], bool], coming: str) -> None:
        """Look, and print what is new, until ``holds(jobs by name)``; ``coming`` is what follows.

        Raises RunFailed.
        """
        end_s = time.monotonic() + RUN_WAIT_S
        with _bars(self._console) as progress:
            while True:
                self._look()
                if self._console.is_terminal:
                    _draw(progress, self.jobs, coming)
                elif time.monotonic() > self._printed_at_s + SILENT_S:
                    self._print_progress(coming)
                if self.jobs and holds(self.jobs):
                    return
                failed = [job for job in self.jobs.values() if job.state in ENDED[1:]]
                if failed:
                    raise RunFailed("; ".join(f"{j.name} is {j.state}: {j.reason}" for j in failed))
                if time.monotonic() > end_s:
                    raise RunFailed(f"the run did not end within {RUN_WAIT_S:.0f} s")
                time.sleep(POLL_S)

    def read_all(self) -> None:
        """Look once more, at everything."""
        self._seqs.clear()
        self._look()

    def _look(self) -> None:
        page = self._client.page()
        now_s = time.time()
        self.jobs = {job.name: job for job in page.jobs}
        fresh: list[tuple[EventView, str]] = []
        for job in page.jobs:
            if job.stage == "training":
                sample = Sample(job.id, now_s, job.attempt, job.generation, job.step)
                self.samples.append(sample)
            if self._seqs.get(job.id) == job.seq:
                continue
            self._seqs[job.id] = job.seq
            events = self._client.ask(requests.history(job.id)).events
            seen = self._printed.get(job.id, 0)
            fresh += [(event, job.name) for event in events[seen:]]
            self._printed[job.id] = len(events)
        for event, name in sorted(fresh, key=lambda entry: entry[0].at_s):
            self._take(event, name)

    def _take(self, event: EventView, name: str) -> None:
        self._begin_s = event.at_s if self._begin_s is None else self._begin_s
        self.events.append(event)
        if event.kind not in QUIET:
            when = f"{event.at_s - self._begin_s:6.1f} s"
            line = f"{when}  [bold]{name}[/bold]  {event.kind:<14} {event.text}"
            self._print(line)

    def _print_progress(self, coming: str) -> None:
        since_s = time.time() - (self._begin_s or time.time())
        jobs = "; ".join(f"{name} {progress_of(job)}" for name, job in self.jobs.items())
        self._print(f"{since_s:6.1f} s  … {jobs or 'the daemon starts'}; next: {coming}")

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False)
        self._printed_at_s = time.monotonic()


def progress_of(job: JobView) -> str:
    """Where a job is: its stage, GPUs and steps."""
    if job.state in ENDED:
        return f"is {job.state}"
    text = STAGES.get(job.stage, job.stage)
    if job.size and job.stage in ("starting", "training"):
        text += f" on {job.size} GPU{'s' if job.size > 1 else ''}"
    return f"{text}, step {job.step} of {job.total_steps}" if job.step else text


def _bars(console: Console) -> Progress:
    """A bar for each job; nothing where the output is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[what]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _draw(progress: Progress, jobs: dict[str, JobView], coming: str) -> None:
    """Bring the bars up to date."""
    known = {task.description: task.id for task in progress.tasks}
    for name, job in jobs.items():
        what = progress_of(job)
        if job is list(jobs.values())[-1]:
            what += f"   (next: {coming})"
        if name not in known:
            known[name] = progress.add_task(name, total=1, what=what)
        total = job.total_steps or max(job.step, 1)
        progress.update(known[name], completed=job.step, total=total, what=what)
