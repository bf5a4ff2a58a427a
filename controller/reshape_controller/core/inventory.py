"""Hosts and their GPUs: added, drained, silent, cleaned; GPUs cleared by an operator.

Does: what such an event does to the inventory, and to the jobs on the host. Never: takes a GPU from
a job without the evidence that the event is. State: ``State`` holds the hosts.
"""

from __future__ import annotations

from reshape_controller.core import endings, ledger
from reshape_controller.core import events as ev
from reshape_controller.core.explain import gpus as counted
from reshape_controller.core.model import Gpu, GpuId, GpuState, Host, HostId, JobState
from reshape_controller.core.replacing import replace
from reshape_controller.core.state import Turn


def take(turn: Turn, event: ev.Event) -> None:
    """Take in one event of a host or a GPU; one of an unknown host changes nothing."""
    match event:
        case ev.HostAdded(host, gpu_type, gpus):
            _host_added(turn, host, gpu_type, gpus)
        case (
            ev.GpusSeen(host)
            | ev.HostFellSilent(host)
            | ev.HostCleaned(host)
            | ev.HostDrained(host)
            | ev.HostUndrained(host)
        ):
            known = turn.state.hosts.get(host)
            if known is not None:
                _happened(turn, known, event)
        case ev.GpuCleared(gpu_id, user):
            gpu = turn.state.gpus.get(gpu_id)
            if gpu is not None and gpu.state is GpuState.QUARANTINED:
                ledger.free(turn, gpu)
                turn.note(None, "gpu-cleared", f"{gpu_id} by {user or 'unknown'}")


def _happened(turn: Turn, host: Host, event: ev.Event) -> None:
    match event:
        case ev.GpusSeen(_, gpus):
            _gpus_seen(turn, host, gpus)
        case ev.HostFellSilent(_, reason):
            endings.host_silent(turn, host, reason)
        case ev.HostCleaned(_, reason):
            endings.host_cleaned(turn, host, reason)
        case ev.HostDrained(_, user):
            _drain(turn, host, user)
        case ev.HostUndrained(_, user) if host.drained:
            turn.state.put_host(replace(host, drained=False, drained_by=""))
            turn.state.plan_wanted = True
            turn.note(None, "host-undrained", f"{host.id} by {user or 'unknown'}")


def _host_added(turn: Turn, host: HostId, gpu_type: str, gpus: tuple[GpuId, ...]) -> None:
    known = turn.state.hosts.get(host)
    before = known.gpus if known is not None else ()
    fresh = tuple(gpu for gpu in gpus if gpu not in turn.state.gpus)
    for number, gpu in enumerate(fresh, start=len(before)):
        turn.state.put_gpu(Gpu(gpu, host, number))
    added = Host(host, gpu_type, before + fresh)
    if known is not None:
        added = replace(known, gpu_type=gpu_type, gpus=before + fresh)
    turn.state.put_host(added)
    if known is not None and known.gpu_type != gpu_type:
        _called_otherwise(turn, known, gpu_type)
    if fresh:
        turn.state.plan_wanted = True
        turn.note(None, "host-added", f"{host}: {counted(len(fresh))}, {gpu_type}")


def _gpus_seen(turn: Turn, host: Host, gpus: tuple[GpuId, ...]) -> None:
    reason = f"{host.id} does not show it; repair it, or allow more GPUs, and start again"
    shown = frozenset(gpus)
    gone = []
    for gpu in tuple(turn.state.gpus_of_host(host.id)):
        if gpu.id in shown and gpu.unseen:
            ledger.seen_again(turn, gpu)
        elif gpu.id not in shown and not gpu.unseen:
            ledger.unseen(turn, gpu, reason)
            gone.append(gpu.id)
    if gone:
        endings.gpus_unseen(turn, tuple(gone))


def _called_otherwise(turn: Turn, host: Host, gpu_type: str) -> None:
    """Its GPUs have another type than was said before: predictions go by that from now on."""
    for job in tuple(turn.state.jobs.values()):
        turn.state.put_job(job)  # what a policy sees of it has the type
    turn.state.plan_wanted = True
    turn.note(None, "host-added", f"{host.id}: its GPUs are {gpu_type}, not {host.gpu_type}")


def _drain(turn: Turn, host: Host, user: str) -> None:
    turn.state.put_host(replace(host, drained=True, drained_by=user))
    turn.note(None, "host-drained", f"{host.id} by {user or 'unknown'}")
    here = [job for job in turn.state.jobs.values() if job.host == host.id]
    for job in sorted(here, key=lambda job: job.place):
        current = turn.state.jobs.get(job.id)
        if current is not None and not current.state.terminal:
            endings.leave(turn, current, f"{host.id} is drained", after=JobState.SUBMITTED)
