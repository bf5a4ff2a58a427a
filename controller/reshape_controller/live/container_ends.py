"""When the container of an attempt has ended, by what the launcher lists. Pure.

A gang has a container on each of its hosts, and ends as a whole: once one of them has ended, the
others are removed. Hosts that do not answer are left out: the engine holds what they had as lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from reshape_controller.core.model import HostId, Job
from reshape_controller.core.state import State
from reshape_launcher.spec import ContainerStatus
from reshape_sidecar.wire import Mode


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """The end of an attempt, with the exit code and the reason of the container that ended it."""

    status: ContainerStatus
    is_whole: bool = True
    """False: something of it may run, and has to be removed first."""


def answering(state: State, job: Job) -> tuple[HostId, ...]:
    """Return the hosts on which containers of the job's newest attempt can be removed, if another
    of its hosts does not answer; empty: on all."""
    hosts = state.hosts
    there = tuple([host for host in job.all_hosts if host in hosts and hosts[host].present])
    return () if len(there) == len(job.all_hosts) else there


def end_of(state: State, job: Job, statuses: Iterable[ContainerStatus]) -> ContainerEnd | None:
    """Return the end of the job's newest attempt, of which these are the statuses; None while it
    runs. What is not listed may run all the same: its folder is lost, perhaps."""
    known = tuple(statuses)
    if not job.hosts:
        if not known:
            return ContainerEnd(_missing(job, "its container does not exist"), is_whole=False)
        return None if known[0].running else ContainerEnd(known[0])
    hosts = answering(state, job) or job.all_hosts
    by_host = {status.host: status for status in known}
    over = [by_host[host] for host in hosts if host in by_host and not by_host[host].running]
    missing = [host for host in hosts if host not in by_host]
    if not over and not missing:
        return None
    if len(over) == len(hosts):
        return ContainerEnd(_decisive(over))
    if not missing and job.mode is Mode.EXIT and not any(status.exit_code for status in over):
        return None  # each ends in its own time, and the engine has a deadline for all
    if not over:
        return ContainerEnd(
            _missing(job, f"its container on {missing[0]} does not exist"), is_whole=False
        )
    return ContainerEnd(_decisive(over), is_whole=False)


def _missing(job: Job, reason: str) -> ContainerStatus:
    return ContainerStatus(job.id, job.attempt, False, reason=reason)


def _decisive(over: list[ContainerStatus]) -> ContainerStatus:
    """Return the status that says most of why a gang has ended: one that no other attempt would
    get past, or a failure; its reason names the host."""
    lasting = [status for status in over if status.lasting]
    failed = [status for status in over if status.exit_code != 0 and not status.unscheduled]
    waited = [status for status in over if status.unscheduled]
    status = (lasting or failed or waited or over)[0]
    return replace(status, reason=f"{status.host}: {status.reason}" if status.reason else "")
