"""The command verify: does a job's training come out the same if it is stopped and resumed?

Does: train a record's script for some steps without stops and with two, without a daemon, and
compare. If a daemon runs, its profile of the job type gets the result. Imports of records are slow,
so this is a module of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.progress import Progress, TaskID
from rich.text import Text

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.jobs.submit import read_record
from reshape_controller.cli.options import HomeOption, OutputOption, client, form, settings
from reshape_controller.cli.output import emit, note
from reshape_controller.cli.replays.runs import progress
from reshape_controller.cli.serve import devices as device_finder
from reshape_controller.cli.signals import ended_in_order
from reshape_controller.core import proofs
from reshape_controller.core.model import Framework
from reshape_controller.core.phrases import gpus
from reshape_controller.http.profile_views import ProfileList, ProfilesRecorded
from reshape_controller.records import parse_record
from reshape_gpu.client import Client
from reshape_gpu.errors import ClientError
from reshape_gpu.requests import Request
from reshape_launcher.spec import DeviceMode
from reshape_profiles import loader, verification
from reshape_profiles.schema import Profile, Verification
from reshape_profiles.training_run import RunFailed, Script
from reshape_sidecar import gpu
from reshape_sidecar.contract import ENV_MICRO_BATCHES
from reshape_sidecar.wire import Processes, Trajectory

SEED = 1
"""Seed of a record without one, so that runs of a script without seeds can be compared."""
SHOWN_MAX = 8
"""Number of differences that a table shows."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The output of ``verify``."""

    script: str
    job_type: str | None
    verification: Verification
    expected: str | None
    expected_reason: str | None
    stops: tuple[int, ...]
    differences: tuple[str, ...]
    proofs: tuple[str, ...]
    """What the first step after each stop has shown."""
    stored: bool
    """True if the daemon's profile of the job type has it now."""


def verify(
    job: Annotated[
        str,
        typer.Argument(metavar="RECORD|JOB", help="Job record (YAML or JSON), or a job's id."),
    ],
    steps: Annotated[
        int,
        typer.Option(min=verification.STEPS_MIN, help="Training steps of each run to compare."),
    ] = 60,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="4,2,4",
            help="GPU counts before, between and after the two stops; default: the smallest of "
            "the record, three times, which compares to the last bit.",
        ),
    ] = None,
    simulated_gpus: Annotated[
        int | None,
        typer.Option(min=1, help="Number of simulated GPUs; default: real GPUs, if there are any."),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option(min=1.0, help="Time limit of each training process in seconds.")
    ] = 600.0,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Compare a job's training with and without stops; name the first difference."""
    config = settings(home, output)
    script, smallest, job_type = _script(job, lambda: client(config), timeout_s)
    chosen = _sizes(sizes, smallest)
    if simulated_gpus is None and not gpu.visible():
        simulated_gpus = max(chosen)
    devices = device_finder.find(simulated_gpus, None, None)
    if max(chosen) > len(devices.gpus):
        what = f"--sizes asks for {max(chosen)} GPUs; {len(devices.gpus)} are available"
        raise failed(Exit.USAGE, what, "--sizes", f"give GPU counts up to {len(devices.gpus)}")
    script = replace(script, simulated=devices.mode is DeviceMode.SIMULATED)
    date = time.strftime("%Y-%m-%d", time.gmtime())
    try:
        with ended_in_order(), progress() as bar:
            shown = _Bars(bar, steps)
            found = verification.verify(script, devices.gpus, chosen, steps, date, shown)
    except RunFailed as error:
        raise failed(Exit.FAILED, str(error), " ".join(script.command), error.remedy) from None
    says_nothing = found.verification.verdict == Trajectory.UNKNOWN and not found.differences
    stored = (
        not says_nothing
        and job_type is not None
        and _stored(lambda: client(config), job_type, found.verification)
    )
    report = VerifyReport(
        script=" ".join(script.command),
        job_type=job_type,
        verification=found.verification,
        expected=found.expected,
        expected_reason=found.expected_reason,
        stops=found.stops,
        differences=tuple(difference.text for difference in found.differences),
        proofs=tuple(map(proofs.sentence, found.proofs)),
        stored=stored,
    )
    emit(report, form(config), lambda: _table(report))
    if found.verification.verdict != Trajectory.EXACT:
        raise typer.Exit(Exit.FAILED)


class _Bars:
    """One bar for each run of the verification."""

    def __init__(self, bar: Progress, steps: int) -> None:
        self._bar, self._steps = bar, steps
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, name: str, step: int) -> None:
        """Show the newest step of a run."""
        task = self._tasks.get(name)
        if task is None:
            task = self._tasks[name] = self._bar.add_task(name, total=self._steps)
        self._bar.update(task, completed=step)


def _script(
    job: str, daemon: Callable[[], Client], timeout_s: float
) -> tuple[Script, int, str | None]:
    """Return the script of a record or job, its smallest GPU count, and its job type."""
    if job == "-" or Path(job).is_file():
        spec = parse_record(read_record(job), folder=Path.cwd())
        if spec.workers > 1:
            what = f"workers is {spec.workers}; a verification runs one worker"
            raise failed(Exit.USAGE, what, job, "verify the script with workers: 1")
        return (
            Script(
                command=spec.command,
                folder=Path(spec.code or Path.cwd()),
                job_type=spec.job_type or spec.name,
                global_batch=spec.global_batch,
                timeout_s=timeout_s,
                framework=spec.framework.value,
                env=spec.env + _micro(spec.micro_batches),
                seed=SEED if spec.seed is None else spec.seed,
                processes=spec.processes,
            ),
            min(spec.optional_gpus),
            spec.job_type,
        )
    view = daemon().get(job)
    note(f"{view.id}: variables of the record's env are not known here; its record has them")
    return (
        Script(
            command=view.command,
            folder=Path(view.code or Path.cwd()),
            job_type=view.job_type or view.name,
            timeout_s=timeout_s,
            framework=view.framework or Framework.KERAS.value,
            env=_micro(view.micro_batches),
            seed=SEED,
            processes=Processes(view.processes or Processes.ONE),
        ),
        min(view.optional_gpus),
        view.job_type,
    )


def _micro(count: int | None) -> tuple[tuple[str, str], ...]:
    return () if count is None else ((ENV_MICRO_BATCHES, str(count)),)


def _sizes(text: str | None, smallest: int) -> tuple[int, ...]:
    if text is None:
        return (smallest,) * verification.LEGS
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != verification.LEGS or not all(p.isdecimal() and int(p) > 0 for p in parts):
        what = f"{text!r} is not {verification.LEGS} GPU counts"
        raise failed(Exit.USAGE, what, "--sizes", "for example 4,2,4")
    return tuple(map(int, parts))


def _stored(daemon: Callable[[], Client], job_type: str, verified: Verification) -> bool:
    """Put the result into the daemon's profile of the type; false if no daemon runs."""
    try:
        ask = daemon()
        known = ask.ask(Request("GET", "/v1/profiles", ProfileList)).profiles
    except ClientError:
        return False
    profiles = [row.profile for row in known if row.profile is not None]
    mine = [profile for profile in profiles if profile.job_type == job_type]
    profile = replace(mine[0] if mine else Profile(job_type), verification=verified)
    body = loader.document([profile])
    ask.ask(Request("POST", "/v1/profiles", ProfilesRecorded, body=body))
    return True


STYLES = {Trajectory.EXACT: "green", Trajectory.STEPS_ONLY: "yellow", Trajectory.UNKNOWN: "red"}


def _table(report: VerifyReport) -> RenderableType:
    found = report.verification
    style = STYLES[Trajectory.of(found.verdict)]
    several = len(set(found.sizes)) > 1
    sizes = f"{', '.join(map(str, found.sizes))} GPUs" if several else gpus(found.sizes[0])
    stops = " and ".join(map(str, report.stops))
    lines = [
        Text.assemble(("verdict  ", "bold"), (found.verdict, style), f"  {found.reason}"),
        Text(f"measured {found.steps} steps on {sizes}, stopped after steps {stops}"),
        Text(f"         {found.date}, {found.versions}"),
    ]
    if report.expected is not None:
        because = f" ({report.expected_reason})" if report.expected_reason else ""
        lines.append(Text(f"expected {report.expected}{because}"))
    lines += [Text(f"proof    {text}") for text in report.proofs]
    if len(report.differences) > 1:
        lines.append(Text("all differences", style="bold"))
        lines += [Text(f"  {text}") for text in report.differences[:SHOWN_MAX]]
        if len(report.differences) > SHOWN_MAX:
            lines.append(Text(f"  and {len(report.differences) - SHOWN_MAX} more (--output json)"))
    if report.job_type is None:
        lines.append(Text("not stored: the record has no job_type"))
    elif report.stored:
        lines.append(Text(f"stored in the daemon's profile of {report.job_type}"))
    elif found.verdict == Trajectory.UNKNOWN and not report.differences:
        lines.append(Text("not stored: it says nothing about stops"))
    else:
        lines.append(Text("not stored: no daemon runs here"))
    return Group(*lines)
