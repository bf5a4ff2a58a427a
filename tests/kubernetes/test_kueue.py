"""Jobs beside the real Kueue: admitted in their turn, preempted, admitted again.

Run by ``make kubernetes-kueue``, which builds Kueue once; the tier itself has a stand-in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.kubernetes import kueue
from tests.kubernetes.grounds import Grounds
from tests.kubernetes.namespace import Namespace, Thing, eventually
from tests.kubernetes.pod_daemon import BATCH_GROUP, PodDaemon
from tests.kubernetes.test_guest import FOUR, IDLE_WITHIN_S, QUEUE, idle, job_of, write

pytestmark = [pytest.mark.kueue, pytest.mark.timeout(900)]
TEAM, FLAVOR, HIGH = "team-a", "any-node", "high"
PRIORITY = "kueue.x-k8s.io/priority-class"
PLENTY = {"cpu": "1000", "memory": "1000Gi", "ephemeral-storage": "1000Gi"}


@pytest.fixture(scope="module")
def queues(kubernetes: Grounds) -> Iterator[None]:
    """Kueue in the cluster, with a quota of one pod; a higher priority preempts."""
    if not kubernetes.own:
        pytest.fail("Kueue is started beside nodes of our own; unset KUBECONFIG", pytrace=False)
    api = kubernetes.api
    with kueue.running(api):
        quotas: list[Thing] = [{"name": n, "nominalQuota": size} for n, size in PLENTY.items()]
        quotas.append({"name": "pods", "nominalQuota": 1})
        covered = [quota["name"] for quota in quotas]
        flavors = [{"name": FLAVOR, "resources": quotas}]
        queue = {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": covered, "flavors": flavors}],
        }
        make = (
            ("resourceflavors", {"metadata": {"name": FLAVOR}}),
            ("clusterqueues", {"metadata": {"name": TEAM}, "spec": queue}),
            ("workloadpriorityclasses", {"metadata": {"name": HIGH}, "value": 1000}),
        )
        for kind, thing in make:
            whole = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": KINDS[kind], **thing}
            api.create(f"{kueue.GROUP}/{kind}", whole)
        yield


KINDS = {
    "resourceflavors": "ResourceFlavor",
    "clusterqueues": "ClusterQueue",
    "workloadpriorityclasses": "WorkloadPriorityClass",
}


@pytest.fixture
def team(queues: None, namespace: Namespace, daemon: PodDaemon, one_node: None) -> PodDaemon:
    """A daemon whose jobs are in the queue."""
    queue = {"metadata": {"name": TEAM}, "spec": {"clusterQueue": TEAM}}
    whole = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", **queue}
    namespace.api.create(namespace.path("localqueues", group=kueue.GROUP), whole)
    write(daemon, labels={QUEUE: TEAM})
    daemon.up()
    return daemon


def suspended(daemon: PodDaemon, job: str) -> bool:
    return bool(job_of(daemon, job)["spec"]["suspend"])


def workloads(daemon: PodDaemon) -> list[Thing]:
    return daemon.namespace.things("workloads", group=kueue.GROUP)


def test_a_job_waits_without_gpus_until_kueue_admits_it(team: PodDaemon) -> None:
    first = team.submit_counting("first", [2], 100_000)
    team.trains(first, 2)
    second = team.submit_counting("second", [2], 30)
    reason = f"waits for admission by its queue {TEAM}: its Job is suspended"
    team.wait(second, "waits", state="submitted", stage="launching", reason=reason)
    eventually("Kueue knows both", lambda: len(workloads(team)) == 2)
    time.sleep(5.0)  # long enough for a launch that does not wait
    assert suspended(team, second)
    assert not team.pods_of(second)
    assert idle(team) == 2, "a job that waits holds no GPUs"
    assert f"waits for admission by its queue {TEAM}" in team.reshape("explain", second).stdout
    assert "reserved" not in {gpu["state"] for gpu in team.json("gpus")["gpus"]}

    assert team.reshape("cancel", first).returncode == 0
    ended = team.wait(second, "completes once it is admitted", state="completed")
    assert (ended.failures, ended.attempt) == (0, 1)


def test_a_job_that_kueue_preempts_frees_its_gpus_and_goes_on_when_admitted_again(
    team: PodDaemon,
) -> None:
    job = team.submit_counting("low", [FOUR], 100_000)
    team.trains(job, FOUR)
    name = _high(team)
    eventually("it is suspended", lambda: suspended(team, job))
    eventually("its pod is gone", lambda: not team.pods_of(job))
    gone_s = time.monotonic()
    eventually("idle GPUs", lambda: idle(team) == FOUR)
    idle_s = time.monotonic() - gone_s
    print(f"idle {idle_s:.1f} s after the end of the preempted pod", flush=True)
    assert idle_s <= IDLE_WITHIN_S
    seen = team.wait(job, "waits", state="submitted", stage="launching")
    assert seen.reason.startswith(f"waits for admission by its queue {TEAM}")
    assert "admission" in team.reshape("explain", job).stdout

    team.api.delete(team.namespace.path("jobs", name, group=BATCH_GROUP))
    seen = team.trains(job, FOUR)
    assert (seen.attempt, seen.failures, seen.steps_lost) == (1, 0, 0)


def _high(daemon: PodDaemon) -> str:
    """Make a Job of a higher priority that is none of Reshape's; its name."""
    secure = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "sleep",
        "image": daemon.namespace.grounds.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "600"],
        "securityContext": secure,
        "resources": {"requests": {"cpu": "10m"}},
    }
    pod = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}
    labels = {QUEUE: TEAM, PRIORITY: HIGH}
    job = {
        "metadata": {"name": "high", "labels": labels},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }
    whole = {"apiVersion": "batch/v1", "kind": "Job", **job}
    daemon.api.create(daemon.namespace.path("jobs", group=BATCH_GROUP), whole)
    return "high"
