"""The Kubernetes launcher: a container is the pod of a Job that Kubernetes never replaces.

Does: makes an attempt's objects, ends them, and says what is there by listing (never by watching
alone, so that nothing is missed). A Job stays for a while as the sentinel of its end, as the folder
of an attempt does on one machine. Never: restarts a pod, calls an attempt gone while a pod of it
may run, or touches what another controller made. State: none that matters; it is in the cluster,
and a new launcher knows all that the old one did, but for how long pods have been in trouble.
"""

from __future__ import annotations

import asyncio
import json
import math
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
    sidecar_archive,
    validation,
    volume_affinity,
)
from reshape_launcher.kubernetes.apply import Bring, Directly, Objects
from reshape_launcher.kubernetes.gpus import NodeGpus, PodDevices, held
from reshape_launcher.kubernetes.pod_mounts import CHIEF, logs_folder, mounts_of
from reshape_launcher.kubernetes.pod_status import Troubles
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.values import ApiTrouble, Cluster, NotRunning, PodSeen
from reshape_launcher.spec import (
    ClusterAway,
    ContainerStatus,
    HostSeen,
    LaunchError,
    LaunchSpec,
    OneHost,
    RecordRefused,
    ReleaseCheck,
    check_job_id,
)

REMOVE_POLL_S = 0.2
REMOVE_MARGIN_S = 30.0
"""Beyond the grace period a pod may take this long to be gone. Then: LaunchError."""
GRACE_MIN_S = 1
"""0 would make the API forget a pod whose processes may still run."""
AWAY_POLL_S = 2.0
AWAY_PATIENCE_S = 300.0
"""A launch waits so long for an API server that does not answer. Then: LaunchError."""
LOOKS_MAX = 4
CHANGES_MAX = 16
REMOVED = "removed by the controller"
T = TypeVar("T")


class KubernetesLauncher:
    """``Launcher`` and ``HostSource`` on one namespace of a cluster.

    ``bring`` makes an attempt's objects; default: the client does. ``monotonic_s`` is any steady
    clock.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: PodSettings,
        devices: PodDevices,
        bring: Bring | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._bring = Directly(cluster) if bring is None else bring
        self._settings = settings
        self._devices = devices
        self._archive: sidecar_archive.Archive | None = None
        self._troubles = Troubles(monotonic_s)
        self._looks = ThreadPoolExecutor(LOOKS_MAX, "launcher-look")
        self._changes = ThreadPoolExecutor(CHANGES_MAX, "launcher-change")

    def refusals(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        """What of the record no pod can have: its image and its folders."""
        return validation.refusals(spec, self._settings)

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        """Make the attempt's objects; nothing happens if they are there. Raises LaunchError."""
        check_job_id(spec.job)
        await self._once_there(self._launch, spec, token)

    async def one_host(self, spec: LaunchSpec) -> OneHost | None:
        """The one node from which the job's volume claims can be reached. Raises LaunchError."""
        return await self._once_there(self._one_host, spec)

    async def remove(self, job: str, attempt: int, grace_s: float) -> None:
        """End the attempt's pod: TERM, ``grace_s``, KILL. Waits until it is gone.

        Raises LaunchError if it is still there long after (its node may be cut off).
        """
        give_up_s = grace_s + REMOVE_MARGIN_S
        try:
            async with asyncio.timeout(give_up_s):
                while not await _on(self._changes, self._ended, job, attempt, grace_s):
                    await asyncio.sleep(REMOVE_POLL_S)
        except TimeoutError:
            what = f"the pod of attempt {attempt} of {job} still exists after {give_up_s:g} s"
            raise LaunchError(f"{what}; check its node", retryable=True) from None

    async def containers(self) -> tuple[ContainerStatus, ...]:
        """Every attempt whose Job is there. Raises OSError while that cannot be told."""
        return await _on(self._looks, self._containers)

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...]
    ) -> ReleaseCheck:
        """Whether nothing of ``attempt`` up to ``generation`` is alive: looked at in the container.
        Raises OSError while that cannot be told."""
        return await _on(self._looks, self._check_release, job, attempt, generation, devices)

    async def hosts(self) -> tuple[HostSeen, ...]:
        """The cluster's nodes with the GPUs that are known. Raises OSError."""
        return await _on(self._looks, self._hosts)

    def close(self) -> None:
        """Let go of its threads; nothing in the cluster is touched."""
        for pool in (self._looks, self._changes):
            pool.shutdown(wait=False, cancel_futures=True)
        self._cluster.close()

    def end_by_hand(self, attempts: Iterable[tuple[str, int]]) -> str:
        """The command by which a person ends attempts; their training saves."""
        names = (naming.object_name(self._settings.controller, *each) for each in attempts)
        return f"kubectl -n {self._settings.namespace} delete job {' '.join(names)}"

    def log_path(self, job: str, attempt: int) -> str | None:
        """The folder on the storage claim, where this machine has it; None otherwise. Of several
        workers the first one's."""
        if self._settings.storage_folder is None:
            return None
        for where in (logs_folder(job, attempt), logs_folder(job, attempt, CHIEF)):
            folder = Path(self._settings.storage_folder, where)
            if folder.is_dir():
                return str(folder)
        return None

    # --- launch

    async def _once_there(self, work: Callable[..., T], *arguments: object) -> T:
        """What ``work`` gives as soon as the API server answers. Raises LaunchError."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + AWAY_PATIENCE_S
        while True:
            try:
                return await _on(self._changes, work, *arguments)
            except ClusterAway:
                # An outage is no failure of the job: it would use up its retries within seconds.
                if loop.time() >= give_up_s:
                    raise
            await asyncio.sleep(AWAY_POLL_S)

    def _one_host(self, spec: LaunchSpec) -> OneHost | None:
        try:
            return volume_affinity.one_host(self._cluster, self._settings, spec)
        except ApiTrouble as trouble:
            if trouble.away:
                raise ClusterAway(str(trouble)) from trouble
            raise LaunchError(str(trouble), retryable=True) from trouble

    def _launch(self, spec: LaunchSpec, token: str) -> None:
        settings = self._settings
        truth = _truth(spec)
        if self._archive is None:
            self._archive = sidecar_archive.build()
        spec, build = images.wanted(spec, settings)
        where = mounts_of(spec, settings)
        told = self._devices.environment(spec)
        runtime = self._devices.runtime_class
        attempt = pod.Attempt(spec, settings, where, self._archive, told, runtime)
        objects = Objects(
            manifests.config_map(self._archive, settings),
            manifests.job(attempt),
            manifests.secret(attempt, token, truth),
            manifests.service(attempt),
        )
        try:
            self._bring(objects, build)
        except ClusterAway:
            raise
        except LaunchError as error:
            what = f"attempt {spec.attempt} of {spec.job} cannot be launched: {error}"
            raise LaunchError(what, retryable=error.retryable) from error

    # --- what is there

    def _containers(self) -> tuple[ContainerStatus, ...]:
        ours = naming.selector(self._settings.controller)
        jobs, there = self._cluster.jobs(ours), self._cluster.pods(ours)
        pods = self._troubles.timed(pod_status.shown(self._cluster, jobs, there))
        for job, pod_seen in pod_status.hopeless(jobs, pods):
            end = manifests.end(pod_seen.trouble, lasting=pod_seen.lasting)
            self._cluster.patch_job(job.name, end)
        for left in pod_status.bereft(jobs, there):
            self._cluster.delete_pod(left.name, pod_status.BEREFT_GRACE_S)
        return pod_status.statuses(jobs, pods)

    def _check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...]
    ) -> ReleaseCheck:
        for seen in self._pods(job, attempt):
            if seen.over:
                continue
            try:
                # Whatever its status says: that lags behind a container that trains already.
                pids = self._look_into(seen, job, attempt, generation)
            except NotRunning:
                continue
            if pids:
                text = ", ".join(map(str, pids))
                return ReleaseCheck(False, f"processes {text} of {job} are still alive")
        node = self._devices.looked_at(devices)
        busy = "" if node is None else held(self._cluster, self._settings, node, devices)
        return ReleaseCheck(not busy, busy)

    def _look_into(self, seen: PodSeen, job: str, attempt: int, generation: int) -> list[int]:
        answer = self._cluster.run_in(seen.name, pod.look(job, attempt, generation))
        try:
            return [int(pid) for pid in json.loads(answer)["pids"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ApiTrouble(f"pod {seen.name}", 0, f"bad answer {answer[:100]!r}") from error

    def _hosts(self) -> tuple[HostSeen, ...]:
        nodes = self._cluster.nodes(self._settings.node_selector)
        known = self._devices.of(self._cluster, nodes)
        found = []
        for node in nodes:
            # One without GPUs is told as well: who has GPUs in the ledger is not gone.
            has = known.get(node.name, NodeGpus("", ()))
            state = (node.ready, node.schedulable, node.boot_id)
            found.append(HostSeen(node.name, has.gpu_type, has.gpus, *state, has.shown))
        return tuple(found)

    # --- remove

    def _ended(self, job: str, attempt: int, grace_s: float) -> bool:
        """Ask for the end of whatever is there; True once nothing is."""
        try:
            return self._end(job, attempt, grace_s)
        except ApiTrouble as trouble:
            if trouble.away:
                return False
            raise LaunchError(str(trouble), retryable=True) from trouble

    def _end(self, job: str, attempt: int, grace_s: float) -> bool:
        selector = self._selector(job, attempt)
        (seen,) = self._cluster.jobs(selector) or (None,)
        pods = self._pods(job, attempt)
        wanted_s = max(GRACE_MIN_S, math.ceil(grace_s))
        for found in pods:
            # Before the Job ends: its own deletion of the pod has a longer grace, and a node does
            # not always take up that it was shortened.
            if not found.over and (found.ends_within_s is None or found.ends_within_s > wanted_s):
                self._cluster.delete_pod(found.name, wanted_s)
        if seen is not None and seen.over is None:
            if seen.suspended:
                self._cluster.delete_job(seen.name)
            elif not seen.reason:
                self._cluster.patch_job(seen.name, manifests.end(REMOVED))
        over = seen is None or seen.suspended or seen.over is not None
        return over and all(found.over for found in pods)

    def _pods(self, job: str, attempt: int) -> tuple[PodSeen, ...]:
        return self._cluster.pods(self._selector(job, attempt))

    def _selector(self, job: str, attempt: int) -> str:
        controller = self._settings.controller
        key, ours = naming.key_of(controller, job), naming.selector(controller)
        return f"{ours},{naming.JOB_KEY}={key},{naming.ATTEMPT}={attempt}"


def _truth(spec: LaunchSpec) -> str | None:
    """The device truth of simulated devices: a copy goes into the pod."""
    if spec.device_truth is None:
        return None
    try:
        return Path(spec.device_truth).read_text(encoding="utf-8")
    except OSError as error:
        what = f"device truth {spec.device_truth}: {error.strerror}"
        raise LaunchError(what, retryable=True) from None


async def _on(pool: ThreadPoolExecutor, work: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)
