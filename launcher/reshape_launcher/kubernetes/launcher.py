"""The Kubernetes launcher: a container is the pod of a Job that Kubernetes never replaces.

Does: create an attempt's objects, end them, and list what exists (listing misses nothing, watching
may). A finished Job stays for a while as the sentinel of its end, as the folder of an attempt does
on one machine. A gang has a Job for each of its hosts.
Never: restart a pod, call an attempt gone while a pod of it may run, or touch the objects of
another controller. State: only how long pods have been in trouble; all else is in the cluster,
where a new launcher finds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from reshape_launcher.kubernetes import (
    images,
    manifests,
    naming,
    pod,
    pod_status,
    server_version,
    sidecar_archive,
    validation,
    volume_affinity,
)
from reshape_launcher.kubernetes.apply import (
    Applier,
    AttemptObjects,
    DirectApplier,
    gang_in_queue,
)
from reshape_launcher.kubernetes.change_signal import ChangeSignal
from reshape_launcher.kubernetes.gpus import NodeGpus, PodDevices, busy_reason
from reshape_launcher.kubernetes.node_leases import NodeLeases
from reshape_launcher.kubernetes.node_watch import NodeWatch
from reshape_launcher.kubernetes.pod_mounts import FIRST_WORKER, logs_folder, mounts_of
from reshape_launcher.kubernetes.pod_status import TroubleTimer
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.values import (
    ClusterApi,
    JobInfo,
    KubernetesError,
    Node,
    NotRunning,
    PodInfo,
)
from reshape_launcher.spec import (
    ClusterAway,
    ClusterUnseen,
    ContainerStatus,
    HostSeen,
    LaunchError,
    LaunchSpec,
    OneHost,
    RecordRefused,
    ReleaseCheck,
    check_job_id,
)
from reshape_sidecar import foreign

REMOVE_POLL_S = 0.2
REMOVE_MARGIN_S = 30.0
"""Time beyond the grace period in which a pod has to be gone. Then: LaunchError."""
GRACE_MIN_S = 1
"""Shortest grace period: with 0 the API forgets a pod whose processes may still run."""
AWAY_POLL_S = 2.0
AWAY_WAIT_S = 300.0
"""Longest time that a launch waits for an API server that does not answer. Then: LaunchError."""
VERSION_EVERY_S = 600.0
LIST_EVERY_S = 10.0
"""Longest time between two lists of pods that run on; a watch may hang."""
READERS_MAX = 4
WRITERS_MAX = 16
REMOVED = "removed by the controller"
T = TypeVar("T")
P = TypeVar("P", JobInfo, PodInfo)


class KubernetesLauncher:
    """``Launcher`` and ``HostSource`` on one namespace of a cluster.

    ``applier`` creates an attempt's objects; default: the API client does. ``monotonic_s`` is any
    steady clock. ``nodes``: a watch of this controller's nodes; default: each look lists them.
    ``changes`` says when Jobs or pods may have changed; default: each look lists them.
    """

    def __init__(
        self,
        cluster: ClusterApi,
        settings: PodSettings,
        devices: PodDevices,
        applier: Applier | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
        nodes: NodeWatch | None = None,
        changes: ChangeSignal | None = None,
    ) -> None:
        self._cluster = cluster
        self._watched = nodes
        self._changes = changes
        self._looking = threading.Lock()
        self._newest: tuple[tuple[JobInfo, ...], tuple[PodInfo, ...]] = ((), ())
        """Jobs and pods of the newest lists."""
        self._list_at_s = -math.inf
        """When they are listed again at the latest; minus infinity: at the next look."""
        self._applier = DirectApplier(cluster) if applier is None else applier
        self._settings = settings
        self._devices = devices
        self._archive: sidecar_archive.Archive | None = None
        self._monotonic_s = monotonic_s
        self._version, self._version_at_s = "", 0.0
        """Version of the API server, and when it is asked for the next time."""
        self._leases: NodeLeases | None = None
        """None: every node may be used."""
        self._trouble_timer = TroubleTimer(monotonic_s)
        self._readers = ThreadPoolExecutor(READERS_MAX, "launcher-look")
        self._writers = ThreadPoolExecutor(WRITERS_MAX, "launcher-change")

    def refusals(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        """Return a problem for each field of the record that no pod can have."""
        return validation.refusals(spec, self._settings)

    def no_gang(self) -> RecordRefused | None:
        """Return that a queueing system would admit half a gang, if one admits Jobs here."""
        queue = dict(self._settings.labels).get(naming.QUEUE, "")
        return gang_in_queue(queue) if queue else None

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        """Create those of the attempt's objects that do not exist yet. Raises LaunchError."""
        check_job_id(spec.job)
        await self._when_reachable(self._launch, spec, token)

    async def one_host(self, spec: LaunchSpec) -> OneHost | None:
        """Return the one node that reaches the job's volume claims, if any. Raises LaunchError."""
        return await self._when_reachable(self._one_host, spec)

    async def remove(
        self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...] = ()
    ) -> None:
        """End the attempt's pods: TERM, ``grace_s``, KILL. Waits until they are gone.

        ``hosts``: the hosts of a gang on which they end; empty: all.
        Raises LaunchError if it is still there long after (its node may be cut off).
        """
        give_up_s = grace_s + REMOVE_MARGIN_S
        try:
            async with asyncio.timeout(give_up_s):
                while not await _in_pool(self._writers, self._ended, job, attempt, grace_s, hosts):
                    await asyncio.sleep(REMOVE_POLL_S)
        except TimeoutError:
            what = f"a pod of attempt {attempt} of {job} still exists after {give_up_s:g} s"
            raise LaunchError(f"{what}; check its node", retryable=True) from None

    async def containers(self) -> tuple[ContainerStatus, ...]:
        """Return the status of every attempt whose Job exists. Raises OSError if it is unknown."""
        return await _in_pool(self._readers, self._containers)

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        """Check in the pods of ``host`` that nothing of ``attempt`` up to ``generation`` is alive.

        Without a host: in all pods of the attempt.
        Raises OSError while that cannot be found out: ClusterUnseen if no pod can be listed.
        """
        look = (job, attempt, generation, devices, host)
        return await _in_pool(self._readers, self._check_release, *look)

    async def hosts(self) -> tuple[HostSeen, ...]:
        """Return the cluster's nodes with the GPUs that are known. Raises OSError."""
        return await _in_pool(self._readers, self._hosts)

    def take_nodes_as(self, store: str) -> None:
        """From now on use only nodes whose Lease the store with this id holds."""
        settings = self._settings
        who = f"controller {settings.controller} of namespace {settings.namespace}"
        self._leases = NodeLeases(self._cluster, store, who, self._monotonic_s)

    async def release(self, host: str) -> bool:
        """Let another controller take a node that is not this controller's any more.

        Returns False, with nothing changed, if a pod of this controller may run there, or the node
        does not answer. Raises OSError.
        """
        return await _in_pool(self._readers, self._release, host)

    def problem(self) -> str:
        """Return why calls to the API server fail now, or its version is too old; empty if neither.

        Makes no call.
        """
        watch = self._watched.problem() if self._watched is not None else ""
        found = (self._cluster.problem() or watch, server_version.problem(self._version))
        return "; ".join(text for text in found if text)

    def close(self) -> None:
        """End the threads and connections; nothing in the cluster changes."""
        if self._watched is not None:
            self._watched.close()
        if self._changes is not None:
            self._changes.close()
        for pool in (self._readers, self._writers):
            pool.shutdown(wait=False, cancel_futures=True)
        self._cluster.close()

    def end_by_hand(self, attempts: Iterable[tuple[str, int]]) -> str:
        """Return the command by which a person ends attempts of the newest look.

        Their training saves.
        """
        chosen = set(attempts)
        names = [job.name for job in self._newest[0] if (job.job, job.attempt) in chosen]
        return f"kubectl -n {self._settings.namespace} delete job {' '.join(names)}"

    def log_path(self, job: str, attempt: int) -> str | None:
        """Return the attempt's log folder on the storage claim; None if this machine lacks it.

        With several workers it is the folder of the first.
        """
        if self._settings.storage_folder is None:
            return None
        for mounts in (logs_folder(job, attempt), logs_folder(job, attempt, FIRST_WORKER)):
            folder = Path(self._settings.storage_folder, mounts)
            if folder.is_dir():
                return str(folder)
        return None

    # --- launch

    async def _when_reachable(self, work: Callable[..., T], *arguments: object) -> T:
        """Return the result of ``work`` once the API server answers. Raises LaunchError."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + AWAY_WAIT_S
        while True:
            try:
                return await _in_pool(self._writers, work, *arguments)
            except ClusterAway:
                # An outage is no failure of the job, which would use up its retries in seconds.
                if loop.time() >= give_up_s:
                    raise
            await asyncio.sleep(AWAY_POLL_S)

    def _one_host(self, spec: LaunchSpec) -> OneHost | None:
        try:
            return volume_affinity.one_host(self._cluster, self._settings, spec)
        except KubernetesError as trouble:
            if trouble.away:
                raise ClusterAway(str(trouble)) from trouble
            raise LaunchError(str(trouble), retryable=True) from trouble

    def _launch(self, spec: LaunchSpec, token: str) -> None:
        settings = self._settings
        device_truth = _device_truth(spec)
        archive = self._archive = self._archive or sidecar_archive.build()
        spec, build = images.build_for(spec, settings)
        firsts = [spec.for_worker(spec.workers_on(host)[0]) for host in spec.hosts]
        parts = [self._part(first, archive) for first in firsts]
        made = [(manifests.job(p), manifests.secret(p, token, device_truth)) for p in parts]
        objects = AttemptObjects(
            manifests.config_map(archive, settings),
            *made[0],
            manifests.service(parts[0]),
            made[1:],
        )
        try:
            self._applier(objects, build)
        except ClusterAway:
            raise
        except LaunchError as error:
            what = f"attempt {spec.attempt} of {spec.job} cannot be launched: {error}"
            raise LaunchError(what, retryable=error.retryable) from error
        finally:
            if self._changes is not None:
                self._changes.mark()  # the next look has to know it, also before its watch does

    def _part(self, spec: LaunchSpec, archive: sidecar_archive.Archive) -> pod.Attempt:
        """Return all that determines the pods on one host, by the spec of its first worker."""
        mounts = mounts_of(spec, self._settings)
        environment, runtime = self._devices.environment(spec), self._devices.runtime_class
        return pod.Attempt(spec, self._settings, mounts, archive, environment, runtime)

    # --- what is there

    def _containers(self) -> tuple[ContainerStatus, ...]:
        jobs, pods_now = self._jobs_and_pods()
        there = pod_status.of_this_run(jobs, pods_now)
        pods = self._trouble_timer.with_times(pod_status.with_troubles(self._cluster, jobs, there))
        for job, pod_seen in pod_status.stuck_jobs(jobs, pods):
            end = manifests.end(pod_seen.trouble, lasting=pod_seen.lasting)
            self._cluster.patch_job(job.name, end)
        for left in pod_status.orphaned_pods(jobs, there):
            self._cluster.delete_pod(left.name, pod_status.ORPHAN_GRACE_S)
        return pod_status.statuses(jobs, pods)

    def _jobs_and_pods(self) -> tuple[tuple[JobInfo, ...], tuple[PodInfo, ...]]:
        """Return all Jobs and pods: those of the newest lists if they run on unchanged."""
        ours = naming.selector(self._settings.controller)
        with self._looking:
            changed = self._changes is None or self._changes.take()
            if changed or self._monotonic_s() >= self._list_at_s:
                self._list_at_s = -math.inf  # also if a list fails
                jobs, pods = self._newest = (self._cluster.jobs(ours), self._cluster.pods(ours))
                if pod_status.steady(jobs, pods):
                    self._list_at_s = self._monotonic_s() + LIST_EVERY_S
            return self._newest

    def _check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str
    ) -> ReleaseCheck:
        try:
            pods = _on(self._pods(job, attempt), (host,) if host else ())
        except KubernetesError as trouble:
            if trouble.away:
                raise ClusterUnseen(str(trouble)) from trouble
            raise
        for seen in pods:
            if seen.over:
                continue
            try:
                # The pod's status lags behind a container that trains already, so it is not used.
                pids = self._living_pids(seen, job, attempt, generation)
            except NotRunning:
                continue
            except KubernetesError:
                # A container that ends takes the command with it: only its pod says what is left.
                if self._is_ending(seen, job, attempt):
                    return ReleaseCheck(False, f"the container of pod {seen.name} is ending")
                raise
            if pids:
                text = ", ".join(map(str, pids))
                return ReleaseCheck(False, f"processes {text} of {job} are still alive")
        node = self._devices.node_of(devices)
        busy = "" if node is None else busy_reason(self._cluster, self._settings, node, devices)
        return ReleaseCheck(not busy, busy)

    def _is_ending(self, before: PodInfo, job: str, attempt: int) -> bool:
        """True if a pod has ended, is gone or was deleted, by a new look at it."""
        now = {pod.name: pod for pod in self._pods(job, attempt)}
        pod_now = now.get(before.name)
        return pod_now is None or pod_now.over or pod_now.deletion_grace_s is not None

    def _living_pids(self, seen: PodInfo, job: str, attempt: int, generation: int) -> list[int]:
        answer = self._cluster.run_in(seen.name, pod.look_command(job, attempt, generation))
        try:
            return [int(pid) for pid in json.loads(answer)["pids"]]
        except (ValueError, KeyError, TypeError) as error:
            raise KubernetesError(f"pod {seen.name}", 0, f"bad answer {answer[:100]!r}") from error

    def _hosts(self) -> tuple[HostSeen, ...]:
        if self._monotonic_s() >= self._version_at_s:
            self._version_at_s = self._monotonic_s() + VERSION_EVERY_S
            with contextlib.suppress(KubernetesError):  # a proxy may refuse it; hosts matter more
                self._version = self._cluster.version()
        nodes = self._nodes()
        others: dict[str, str] = {}
        if self._leases is not None:
            others = self._leases.take(node.name for node in nodes if node.ready)
        ours = tuple(node for node in nodes if node.name not in others)
        known = self._devices.of(self._cluster, ours)
        found = []
        for node in nodes:
            if node.name in others:
                state = (node.ready, node.schedulable, node.boot_id)
                found.append(HostSeen(node.name, "", (), *state, (), others[node.name]))
                continue
            # A node without GPUs is listed too: its GPUs may be in the ledger.
            has = known.get(node.name, NodeGpus("", ()))
            state = (node.ready, node.schedulable, node.boot_id)
            closed = self._why_closed(node)
            found.append(HostSeen(node.name, has.gpu_type, has.gpus, *state, has.shown, closed))
        return tuple(found)

    def _nodes(self) -> tuple[Node, ...]:
        if self._watched is not None:
            return self._watched.nodes()
        return self._cluster.nodes(self._settings.node_selector)

    def _release(self, host: str) -> bool:
        leases = self._leases
        node = next((n for n in self._cluster.nodes("") if n.name == host), None)
        if leases is None or node is None or not node.ready:
            return False
        if any(pod.node == host and not pod.over for pod in self._all_pods()):
            return False
        leases.release(host)
        return True

    def _all_pods(self) -> tuple[PodInfo, ...]:
        return self._cluster.pods(naming.selector(self._settings.controller))

    def _why_closed(self, node: Node) -> str:
        if not node.ready:
            return "its node is not ready"
        taint = pod.refusing_taint(node, self._settings)
        return "" if taint is None else f"its node has the taint {taint.text}"

    # --- remove

    def _ended(self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...]) -> bool:
        """Request the end of the Jobs and their pods on the hosts; True once none is left."""
        try:
            return self._end(job, attempt, grace_s, hosts)
        except KubernetesError as trouble:
            if trouble.away:
                return False
            raise LaunchError(str(trouble), retryable=True) from trouble

    def _end(self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...]) -> bool:
        jobs = _on(self._cluster.jobs(self._selector(job, attempt)), hosts)
        pods = _on(self._pods(job, attempt), hosts)
        wanted_s = max(GRACE_MIN_S, math.ceil(grace_s))
        for found in pods:
            # Pods first: the Job deletes them with a longer grace, and a node does not always
            # notice that it was shortened later.
            if not found.over and (
                found.deletion_grace_s is None or found.deletion_grace_s > wanted_s
            ):
                self._cluster.delete_pod(found.name, wanted_s)
        for seen in jobs:
            if seen.over is not None:
                continue
            if seen.suspended:
                self._cluster.delete_job(seen.name)
            elif not seen.reason:
                self._cluster.patch_job(seen.name, manifests.end(REMOVED))
        over = all(seen.suspended or seen.over is not None for seen in jobs)
        return over and all(found.over for found in pods)

    def _pods(self, job: str, attempt: int) -> tuple[PodInfo, ...]:
        return self._cluster.pods(self._selector(job, attempt))

    def _selector(self, job: str, attempt: int) -> str:
        labels = naming.attempt_labels(self._settings.controller, job, attempt)
        return ",".join(f"{key}={value}" for key, value in labels.items())


def _on(seen: Iterable[P], hosts: tuple[str, ...]) -> tuple[P, ...]:
    """Return those on these hosts, and those of no gang; without hosts all."""
    return tuple(one for one in seen if not hosts or not one.host or one.host in hosts)


def _device_truth(spec: LaunchSpec) -> str | None:
    """Return the file that describes simulated devices; the pod gets a copy."""
    if spec.device_truth is None:
        return None
    try:
        return foreign.read_text(spec.device_truth, foreign.SETTINGS_BYTES_MAX)
    except OSError as error:
        what = f"device truth {spec.device_truth}: {error.strerror}"
        raise LaunchError(what, retryable=True) from None


async def _in_pool(pool: ThreadPoolExecutor, work: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)
