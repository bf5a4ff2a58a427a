"""An API server in memory for fast tests of the Kubernetes launcher: its calls, and its refusals.

Does: keeps Jobs, Secrets and pods as a real one does as far as the launcher can see, and lets a
test move pods along. Never used where a test is about pods: those run on a real cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from reshape_launcher.kubernetes import naming
from reshape_launcher.kubernetes.values import (
    ClaimInfo,
    CreatedJob,
    JobInfo,
    KubernetesError,
    Manifest,
    Node,
    NodeLease,
    NotRunning,
    PodInfo,
)


@dataclass
class FakeCluster:
    """``refuse`` makes the next calls of a name fail with a status."""

    made_jobs: dict[str, Manifest] = field(default_factory=dict)
    secrets: dict[str, Manifest] = field(default_factory=dict)
    config_maps: dict[str, Manifest] = field(default_factory=dict)
    services: dict[str, Manifest] = field(default_factory=dict)
    seen_jobs: dict[str, JobInfo] = field(default_factory=dict)
    seen_pods: dict[str, PodInfo] = field(default_factory=dict)
    node_list: list[Node] = field(default_factory=lambda: [Node("node1", True, True, "boot-1")])
    leases: dict[str, NodeLease] = field(default_factory=dict)
    claims: dict[str, ClaimInfo] = field(default_factory=dict)
    """Claims that are not for any number of nodes."""
    refuse: dict[str, int] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    queue: str = ""
    """The queue that admits new Jobs."""
    server_version: str = "v1.34.4"
    failing: str = ""
    """The call that fails now."""
    runs: bool = True
    """Whether the node has the pod's container running, whatever its status says."""
    answer: str = '{"pids": []}'
    answers: dict[str, str] = field(default_factory=dict)
    """By pod, the answer of one that has another."""
    warnings: dict[str, str] = field(default_factory=dict)
    """By kind of object, the newest event."""

    def close(self) -> None:
        self._called("close", "")

    def problem(self) -> str:
        return self.failing

    def version(self) -> str:
        return self.server_version

    def create_job(self, manifest: Manifest) -> CreatedJob:
        name = self._called("create_job", manifest["metadata"]["name"])
        self.made_jobs.setdefault(name, manifest)
        job = manifest["metadata"]["annotations"][naming.JOB]
        attempt = int(manifest["metadata"]["labels"][naming.ATTEMPT])
        pods = manifest["spec"]["parallelism"]
        made = JobInfo(name, job, attempt, suspended=True, pods=pods, queue=self.queue)
        host = manifest["metadata"]["annotations"].get(naming.HOST, "")
        made = replace(made, started_at_s=0.0, host=host)
        made = self.seen_jobs.setdefault(name, made)
        return CreatedJob(f"uid-{name}", made.released, made.queue)

    def create_secret(self, manifest: Manifest) -> None:
        name = self._called("create_secret", manifest["metadata"]["name"])
        self.secrets.setdefault(name, manifest)

    def create_service(self, manifest: Manifest) -> None:
        name = self._called("create_service", manifest["metadata"]["name"])
        self.services.setdefault(name, manifest)

    def create_config_map(self, manifest: Manifest) -> None:
        name = self._called("create_config_map", manifest["metadata"]["name"])
        self.config_maps.setdefault(name, manifest)

    def patch_job(self, name: str, changes: Manifest) -> bool:
        self._called("patch_job", name)
        job = self.seen_jobs.get(name)
        if job is None:
            return False
        if naming.RELEASED in changes["metadata"]["annotations"]:
            job = replace(job, released=True)
        if changes["spec"].get("suspend") is False and job.suspended:
            job = replace(job, suspended=False)
            pod = PodInfo(f"{name}-x", name, job.host or "node1", host=job.host)
            self.seen_pods[pod.name] = pod
        if "activeDeadlineSeconds" in changes["spec"]:
            said = changes["metadata"]["annotations"]
            lasting = naming.LASTING in said
            reason = said[naming.REASON]
            job = replace(job, over="DeadlineExceeded", reason=reason, lasting=lasting)
        self.seen_jobs[name] = job
        return True

    def delete_job(self, name: str) -> None:
        self._called("delete_job", name)
        self.seen_jobs.pop(name, None)

    def delete_pod(self, name: str, grace_s: int) -> None:
        self._called("delete_pod", f"{name} {grace_s}")
        if name in self.seen_pods:
            self.seen_pods[name] = replace(self.seen_pods[name], deletion_grace_s=grace_s)

    def jobs(self, selector: str) -> tuple[JobInfo, ...]:
        self._called("jobs", selector)
        return tuple(job for job in self.seen_jobs.values() if self._fits(job.name, selector))

    def pods(self, selector: str) -> tuple[PodInfo, ...]:
        self._called("pods", selector)
        return tuple(pod for pod in self.seen_pods.values() if self._fits(pod.of, selector))

    def newest_warning(self, kind: str, name: str) -> str:
        self._called("newest_warning", name)
        return self.warnings.get(kind, "")

    def nodes(self, selector: str) -> tuple[Node, ...]:
        self._called("nodes", selector)
        return tuple(self.node_list)

    def node_leases(self) -> tuple[NodeLease, ...]:
        self._called("node_leases", "")
        return tuple(self.leases.values())

    def write_node_lease(self, lease: NodeLease) -> NodeLease | None:
        self._called("write_node_lease", lease.node)
        known = self.leases.get(lease.node, NodeLease(lease.node))
        if known.version != lease.version:
            return None
        version = str(int(known.version or "0") + 1)
        made = self.leases[lease.node] = replace(lease, version=version)
        return made

    def claim(self, name: str) -> ClaimInfo | None:
        self._called("claim", name)
        return self.claims.get(name, ClaimInfo(("ReadWriteMany",)))

    def run_in(self, pod: str, command: tuple[str, ...]) -> str:
        self._called("run_in", " ".join((pod, *command)))
        if not self.runs:
            raise NotRunning(pod, 500, "container not found")
        return self.answers.get(pod, self.answer)

    def be(self, name: str, **changes: Any) -> None:
        """Let the Job's pod be so."""
        self.seen_pods[f"{name}-x"] = replace(self.seen_pods[f"{name}-x"], **changes)

    def _called(self, call: str, name: str) -> str:
        self.calls.append((call, name))
        if call in self.refuse:
            raise KubernetesError(call, self.refuse[call], "refused by the test")
        return name

    def _fits(self, name: str, selector: str) -> bool:
        labels = self.made_jobs[name]["metadata"]["labels"]
        pairs = (pair.split("=") for pair in selector.split(","))
        return all(labels.get(key) == value for key, value in pairs)
