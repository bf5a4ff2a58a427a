"""The command ``replay --from-live``: a controller's queue as it is, and under changed conditions.

Another policy or other GPUs are compared with the present conditions. The controller is not
changed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.text import Text

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.output import Output, emit, grid, note
from reshape_controller.cli.replays import inputs
from reshape_controller.cli.replays.own_daemon import jobs_of
from reshape_controller.core.model import HostId
from reshape_controller.core.state import State
from reshape_controller.policies import UnknownPolicy, make_policy
from reshape_controller.replay.continuation import Continuation, QueueChange, continue_queue
from reshape_controller.replay.inputs import ReplayError, cluster_of
from reshape_controller.replay.metrics import JobResult
from reshape_gpu import requests
from reshape_gpu.client import Client
from reshape_gpu.requests import Request
from reshape_gpu.values import JobView, StateView
from reshape_sidecar import codec


@dataclass(frozen=True, slots=True)
class WhatIfRequest:
    """The changed conditions. None and empty: no change."""

    policy: str | None = None
    add_host: str | None = None
    add_gpus: int = 0
    drain: str | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """The result of a continuation, in seconds from now; None if no job ends."""

    policy: str
    makespan_s: float | None
    mean_end_s: float | None
    unending: int
    """Number of jobs that do not end; the other values are those of the rest."""


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    """A job, and its ends in seconds from now; None if it does not end, for ``reason``."""

    job: str
    state: str
    gpus: int
    as_it_is_s: float | None
    what_if_s: float | None
    reshapes: int
    """Number of reshapes under the changed conditions."""
    length_assumed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The output of ``replay --from-live``."""

    changes: str
    as_it_is: Scenario
    what_if: Scenario
    jobs: list[ScenarioRow]


def show(client: Client, asked: WhatIfRequest, shown: Output) -> None:
    """Continue with and without the change, and print both. Raises CliError."""
    hosts = client.ask(requests.hosts()).hosts
    if asked.drain is not None and asked.drain not in {host.id for host in hosts}:
        known = ", ".join(host.id for host in hosts)
        raise failed(Exit.USAGE, f"unknown host {asked.drain!r}", "--drain", f"use one of: {known}")
    views = {job.id: job for job in jobs_of(client).values()}
    parts = client.ask(Request("GET", "/v1/state", StateView)).parts
    try:
        state = State.load(parts)
        now = _as_it_is(state)
        then = _what(asked, now)
        at_s = client.now_s
        first, second = continue_queue(parts, now, at_s), continue_queue(parts, then, at_s)
    except ReplayError as error:
        raise inputs.replay_failed(error, Exit.FAILED, "--from-live") from None
    except codec.CodecError as error:
        remedy = "daemon and command have different versions: restart the daemon"
        raise failed(
            Exit.FAILED, f"the daemon's state cannot be read: {error}", client.url, remedy
        ) from None
    _tell_guessed_speeds(state, then)
    found = WhatIf(
        _changes(asked),
        _course(now, first),
        _course(then, second),
        _lines(views, first, second),
    )
    emit(found, shown, lambda: _table(found))


def _as_it_is(state: State) -> QueueChange:
    try:
        return QueueChange(make_policy(state.policy), state.mechanism)
    except UnknownPolicy as error:
        what = f"this command does not know the daemon's policy: {error}"
        remedy = "install the policy's package into the Python environment of this command"
        raise failed(Exit.FAILED, what, sys.prefix, remedy) from None


def _what(asked: WhatIfRequest, now: QueueChange) -> QueueChange:
    """Return the changed conditions. Raises CliError."""
    found = now
    if asked.policy is not None:
        chosen = inputs.contender(asked.policy)
        found = replace(found, policy=chosen.policy, mechanism=chosen.mechanism)
    if asked.add_host is not None:
        try:
            hosts = cluster_of(asked.add_host).hosts
        except ReplayError as error:
            raise failed(Exit.USAGE, str(error), f"--add-host {asked.add_host}") from None
        added = (replace(h, id=HostId(f"added-{n}")) for n, h in enumerate(hosts, start=1))
        found = replace(found, hosts=tuple(added))
    drained = (HostId(asked.drain),) if asked.drain is not None else ()
    return replace(found, more_gpus=asked.add_gpus, drained=drained)


def _tell_guessed_speeds(state: State, then: QueueChange) -> None:
    """Print the jobs whose speed on added GPUs is a guess."""
    jobs = [job for job in state.jobs.values() if not job.state.terminal]
    for gpu_type in sorted({host.gpu_type for host in then.hosts}):
        guessed = [
            job.spec.name
            for job in jobs
            if not state.profiles.knows_speed(job.spec.job_type, gpu_type)
        ]
        if guessed:
            note(
                f"no profile has speeds of {inputs.some_of(guessed)} on {gpu_type}: assumed to be "
                "those that are known on other GPUs"
            )


def _changes(asked: WhatIfRequest) -> str:
    texts = [
        f"policy {asked.policy}" if asked.policy else "",
        f"with {asked.add_host} added" if asked.add_host else "",
        f"with {asked.add_gpus} GPUs added to each host" if asked.add_gpus else "",
        f"without {asked.drain}" if asked.drain else "",
    ]
    return ", ".join(text for text in texts if text) or "nothing"


def _course(what: QueueChange, found: Continuation) -> Scenario:
    label = f"{what.policy.name}+{what.mechanism.value}"
    ends = bool(found.rows)
    return Scenario(
        label,
        found.makespan_s if ends else None,
        found.mean_end_s if ends else None,
        len(found.left),
    )


def _lines(
    views: dict[str, JobView], first: Continuation, second: Continuation
) -> list[ScenarioRow]:
    ends, others = _by_id(first), _by_id(second)
    reasons = {str(one.job): one.reason for one in (*first.left, *second.left)}
    lines = []
    for job in dict.fromkeys([*ends, *others, *reasons]):
        view, end, other = views.get(job), ends.get(job), others.get(job)
        lines.append(
            ScenarioRow(
                job,
                view.state if view is not None else "",
                view.size if view is not None else 0,
                end.finished_s - first.now_s if end is not None else None,
                other.finished_s - second.now_s if other is not None else None,
                _reshapes(other) if other is not None else 0,
                job in first.assumed,
                reasons.get(job, "") if end is None or other is None else "",
            )
        )
    return lines


def _reshapes(row: JobResult) -> int:
    return row.reshape_ups + row.reshape_downs + row.moves


def _by_id(found: Continuation) -> dict[str, JobResult]:
    return {str(row.job): row for row in found.rows}


def _table(found: WhatIf) -> RenderableType:
    columns = ("GPUS", "AS IT IS", "WHAT IF", "RESHAPES")
    jobs = grid("JOB", "STATE", *columns, "WHY", right=columns, rest="WHY")
    for line in found.jobs:
        why = line.reason or (
            "unknown length: assumed an hour on one GPU" if line.length_assumed else ""
        )
        ends = (_seconds(line.as_it_is_s), _seconds(line.what_if_s))
        jobs.add_row(line.job, line.state, str(line.gpus), *ends, str(line.reshapes), why)
    figures = ("LAST END", "MEAN END", "NEVER END")
    sums = grid("", "POLICY", *figures, right=figures)
    for name, course in (("as it is", found.as_it_is), ("what if", found.what_if)):
        ends = (_seconds(course.makespan_s), _seconds(course.mean_end_s))
        sums.add_row(name, course.policy, *ends, str(course.unending))
    head = (
        f"seconds from now until the jobs end, as the controller predicts; changed: {found.changes}"
    )
    return Group(Text(head, style="bold"), sums, Text(""), jobs)


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:,.0f} s"
