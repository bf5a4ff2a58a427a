"""The inventory: hosts that are added, drained, silent or cleaned, and GPUs that are cleared.

Does: changes the inventory as such an event says, and has the jobs of the host follow it.
"""

from __future__ import annotations

from reshape_controller.core import events as ev
from reshape_controller.core import job_exit
from reshape_controller.core.coordinator import gpu_ledger
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import Gpu, GpuId, GpuState, Host, HostId, JobState, Stage
from reshape_controller.core.phrases import gpus as counted
from reshape_controller.core.stop_table import Request
from reshape_controller.core.transaction import Transaction


def take(tx: Transaction, event: ev.Event) -> None:
    """Take in one event of a host or a GPU; an event of an unknown host changes nothing."""
    match event:
        case ev.HostAdded(host, gpu_type, gpus):
            _host_added(tx, host, gpu_type, gpus)
        case (
            ev.GpusSeen(host)
            | ev.HostFellSilent(host)
            | ev.HostCleaned(host)
            | ev.HostDrained(host)
            | ev.HostUndrained(host)
            | ev.HostClosed(host)
            | ev.HostOpened(host)
        ):
            known = tx.state.hosts.get(host)
            if known is not None:
                _take_host_event(tx, known, event)
        case ev.GpuCleared(gpu_id, user):
            gpu = tx.state.gpus.get(gpu_id)
            if gpu is not None and gpu.state is GpuState.QUARANTINED:
                gpu_ledger.free(tx, gpu)
                tx.note(None, "gpu-cleared", f"{gpu_id} by {user or 'unknown'}")


def _take_host_event(tx: Transaction, host: Host, event: ev.Event) -> None:
    match event:
        case ev.GpusSeen(_, gpus):
            _gpus_seen(tx, host, gpus)
        case ev.HostFellSilent(_, reason):
            job_exit.on_host_silent(tx, host, reason)
        case ev.HostCleaned(_, reason):
            job_exit.on_host_cleaned(tx, host, reason)
        case ev.HostClosed(_, reason, answers):
            _close(tx, host, reason, answers=answers)
        case ev.HostOpened() if host.closed:
            tx.state.put_host(replace(host, closed=""))
            tx.state.plan_wanted = True
            tx.note(None, "host-opened", f"{host.id} takes new jobs")
        case ev.HostDrained(_, user):
            _drain(tx, host, user)
        case ev.HostUndrained(_, user) if host.drained:
            tx.state.put_host(replace(host, drained=False, drained_by=""))
            tx.state.plan_wanted = True
            tx.note(None, "host-undrained", f"{host.id} by {user or 'unknown'}")
            for job in [job for job in tx.state.jobs.values() if job.is_on(host.id)]:
                job_exit.stay(tx, job.id)


def _host_added(tx: Transaction, host: HostId, gpu_type: str, gpus: tuple[GpuId, ...]) -> None:
    known = tx.state.hosts.get(host)
    before = known.gpus if known is not None else ()
    new = tuple(gpu for gpu in gpus if gpu not in tx.state.gpus)
    for number, gpu in enumerate(new, start=len(before)):
        tx.state.put_gpu(Gpu(gpu, host, number))
    if known is not None and known.gpu_type != gpu_type:
        for job in [job for job in tx.state.jobs.values() if job.is_on(host)]:
            tx.settle(job.id)
    added = Host(host, gpu_type, before + new)
    if known is not None:
        added = replace(known, gpu_type=gpu_type, gpus=before + new)
    tx.state.put_host(added)
    if known is not None and known.gpu_type != gpu_type:
        _change_gpu_type(tx, known, gpu_type)
    if new:
        tx.state.plan_wanted = True
        tx.note(None, "host-added", f"{host}: {counted(len(new))}, {gpu_type}")


def _gpus_seen(tx: Transaction, host: Host, gpus: tuple[GpuId, ...]) -> None:
    reason = f"{host.id} does not report it; repair it or raise --gpus, then restart the daemon"
    visible = frozenset(gpus)
    gone = []
    for gpu in tuple(tx.state.gpus_of_host(host.id)):
        if gpu.id in visible and gpu.unseen:
            gpu_ledger.mark_seen(tx, gpu)
        elif gpu.id not in visible and not gpu.unseen:
            gpu_ledger.mark_unseen(tx, gpu, reason)
            gone.append(gpu.id)
    if gone:
        job_exit.on_gpus_unseen(tx, tuple(gone))


def _change_gpu_type(tx: Transaction, host: Host, gpu_type: str) -> None:
    """Report that the host's GPUs have another type: predictions use it from now on."""
    for job in tuple(tx.state.jobs.values()):
        tx.update(job.id)  # the view of each job names the GPU type of its host
    tx.state.plan_wanted = True
    tx.note(None, "host-added", f"{host.id}: GPU type {gpu_type} replaces {host.gpu_type}")


def _close(tx: Transaction, host: Host, reason: str, *, answers: bool) -> None:
    """Close a host to new jobs; a job whose container has not come up there starts elsewhere."""
    if host.closed == reason:
        return
    tx.state.put_host(replace(host, closed=reason))
    tx.state.plan_wanted = True
    tx.note(None, "host-closed", f"{host.id}: {reason}")
    if not answers:
        return
    for job in sorted(tx.state.jobs.values(), key=lambda job: job.place):
        if job.is_on(host.id) and job.stage is Stage.LAUNCHING:
            text = f"{host.id} takes no new job: {reason}"
            job_exit.leave(tx, job.id, text, after=JobState.SUBMITTED)


def _drain(tx: Transaction, host: Host, user: str) -> None:
    tx.state.put_host(replace(host, drained=True, drained_by=user))
    tx.note(None, "host-drained", f"{host.id} by {user or 'unknown'}")
    here = [job for job in tx.state.jobs.values() if job.is_on(host.id)]
    for job in sorted(here, key=lambda job: job.place):
        current = tx.state.jobs.get(job.id)
        if current is None or current.state.terminal:
            continue
        if not job_exit.waits_unsaved(tx, current, Request.DRAIN, f"{host.id} is drained"):
            job_exit.leave(tx, job.id, f"{host.id} is drained", after=JobState.SUBMITTED)
