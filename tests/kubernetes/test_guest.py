"""Jobs beside other controllers of a cluster: suspended, admitted, preempted and gated by them.

A stand-in plays the queueing system: it does to Jobs what Kueue does, through the same API fields.
"""

from __future__ import annotations

import json
import re
import time

import pytest

from reshape_gpu.values import GpuView
from tests.kubernetes import kubectl
from tests.kubernetes.grounds import Grounds
from tests.kubernetes.namespace import Thing, eventually
from tests.kubernetes.pod_daemon import BATCH_GROUP, JOB_ANNOTATION, PodDaemon
from tests.kubernetes.running import run
from tests.support.daemon_bed import ROOT

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]
QUEUE = "kueue.x-k8s.io/queue-name"
IDLE_WITHIN_S = 15.0
"""From the end of the pod of a suspended Job to idle GPUs."""
FOUR = 4


def job_of(daemon: PodDaemon, job: str) -> Thing:
    """The newest Job of a job, once it is there."""

    def found() -> Thing | None:
        jobs = daemon.namespace.things("jobs", group=BATCH_GROUP)
        mine = [j for j in jobs if j["metadata"].get("annotations", {}).get(JOB_ANNOTATION) == job]
        return max(mine, key=lambda j: j["metadata"]["creationTimestamp"], default=None)

    return eventually(f"a Job of {job}", found)


def suspend(daemon: PodDaemon, job: str, wanted: bool) -> None:
    """What `kubectl patch job` and a queueing system do."""
    name = job_of(daemon, job)["metadata"]["name"]
    path = daemon.namespace.path("jobs", name, group=BATCH_GROUP)
    daemon.api.change(path, {"spec": {"suspend": wanted}})


def idle(daemon: PodDaemon) -> int:
    """How many GPUs of the first node could be given to a job now."""
    first = daemon.namespace.grounds.nodes[0]
    return sum(gpu.state == "idle" for gpu in gpus(daemon, first))


def gpus(daemon: PodDaemon, node: str) -> list[GpuView]:
    """The GPUs of a node as the daemon shows them."""
    return [gpu for gpu in daemon.client().gpus() if gpu.host == node]


def write(daemon: PodDaemon, **fields: object) -> None:
    """Add fields to the cluster file."""
    settings = json.loads(daemon.cluster_file.read_text())
    daemon.cluster_file.write_text(json.dumps(settings | fields))


def test_a_job_that_another_controller_suspends_gives_its_gpus_back_and_goes_on_when_resumed(
    daemon: PodDaemon, one_node: None
) -> None:
    daemon.up()
    job = daemon.submit_counting("preempted", [FOUR], 100_000)
    daemon.trains(job, FOUR)
    suspend(daemon, job, True)
    eventually("its pod is gone", lambda: not daemon.pods_of(job))
    gone_s = time.monotonic()
    eventually("idle GPUs", lambda: idle(daemon) == FOUR)
    idle_s = time.monotonic() - gone_s
    assert idle_s <= IDLE_WITHIN_S, f"{idle_s:.1f} s"
    seen = daemon.wait(job, "waits", state="submitted", stage="launching")
    assert "its Job is suspended by another controller" in seen.reason
    other = daemon.submit_counting("other", [FOUR], 20)
    daemon.wait(other, "completes on the GPUs", state="completed")

    suspend(daemon, job, False)
    seen = daemon.trains(job, FOUR)
    assert (seen.attempt, seen.failures, seen.steps_lost) == (1, 0, 0)


def test_a_job_that_a_queueing_system_manages_waits_for_its_admission_without_gpus(
    daemon: PodDaemon, one_node: None
) -> None:
    write(daemon, labels={QUEUE: "team-a"})
    daemon.up()
    job = daemon.submit_counting("queued", [FOUR], 100_000)
    assert job_of(daemon, job)["spec"]["suspend"], "the launch leaves it to its queue"
    seen = daemon.wait(job, "waits", state="submitted", stage="launching", reason=ANY_TEAM)
    eventually("its GPUs are not kept for it", lambda: idle(daemon) == FOUR)
    assert seen.failures == 0
    assert not daemon.pods_of(job)

    suspend(daemon, job, False)
    daemon.trains(job, FOUR)
    suspend(daemon, job, True)
    eventually("idle GPUs", lambda: idle(daemon) == FOUR)
    suspend(daemon, job, False)
    seen = daemon.trains(job, FOUR)
    assert (seen.attempt, seen.failures, seen.steps_lost) == (1, 0, 0)


ANY_TEAM = "waits for admission by its queue team-a: its Job is suspended"


def taint(daemon: PodDaemon, node: str, *taints: dict[str, str]) -> None:
    """What ``kubectl taint`` does."""
    daemon.api.change(f"/api/v1/nodes/{node}", {"spec": {"taints": list(taints) or None}})


def printed(daemon: PodDaemon, job: str, attempt: int) -> str:
    """What an attempt's training has written into its log file."""
    log = daemon.namespace.shared / job / f"attempt-{attempt}" / "logs" / "training.log"
    return str(log.read_text())


def test_a_tainted_node_takes_no_job_and_a_drained_one_gives_its_job_away_without_a_lost_step(
    daemon: PodDaemon, own_cluster: Grounds
) -> None:
    assert DRAIN in (ROOT / "docs" / "kubernetes.md").read_text(), "by the words of the document"
    tainted, other = own_cluster.nodes
    taint(daemon, tainted, {"key": "dedicated", "value": "web", "effect": "NoSchedule"})
    try:
        daemon.up()
        job = daemon.submit_counting("moves", [FOUR], 100_000)
        seen = daemon.trains(job, FOUR)
        assert (daemon.container(job, seen.attempt).node, seen.failures) == (other, 0)
        why = {gpu.reason for gpu in gpus(daemon, tainted)}
        assert why == {"its node has the taint dedicated=web:NoSchedule"}
    finally:
        taint(daemon, tainted)
    eventually("it is open", lambda: not any(gpu.reason for gpu in gpus(daemon, tainted)))
    pod = daemon.container(job, seen.attempt).pod
    eventually("its output in the pod's log", lambda: BEGINS in daemon.namespace.logs(pod))
    try:
        command(daemon, DRAIN.replace("NODE", other))
        after = daemon.trains(job, FOUR, attempt=seen.attempt + 1)
    finally:
        command(daemon, f"kubectl uncordon {other}")
    saved = re.findall(r"saved step (\d+)", printed(daemon, job, seen.attempt))
    assert f"{BEGINS} {saved[-1]} on" in printed(daemon, job, after.attempt), "no step is lost"
    assert (daemon.container(job, after.attempt).node, after.failures) == (tainted, 0)
    daemon.reshape("cancel", job)
    eventually("idle GPUs", lambda: {gpu.state for gpu in gpus(daemon, tainted)} == {"idle"})
    assert "release-check-failed" not in daemon.log.read_text(), "an end is quiet"


BEGINS = "begins at step"
DRAIN = "kubectl drain NODE --ignore-daemonsets --delete-emptydir-data"


def command(daemon: PodDaemon, text: str) -> None:
    """Run a ``kubectl`` command of the documents."""
    program, *words = text.split()
    assert program == "kubectl"
    run(kubectl.provide(), f"--kubeconfig={daemon.namespace.grounds.kubeconfig}", *words)
