"""A script that knows nothing of pods runs in one, and the cluster sees how its training ended."""

from __future__ import annotations

import json

import pytest

from tests.kubernetes.grounds import Grounds
from tests.kubernetes.namespace import Thing, eventually
from tests.kubernetes.pod_daemon import ATTEMPT_LABEL, BATCH_GROUP, JOB_ANNOTATION, PodDaemon

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]
KEEP_S = 120
"""Longer than a test needs to look at a finished Job."""
WRITES_BESIDE_ITSELF = """
import os, pathlib
found = os.statvfs("/dev/shm")
pathlib.Path("final.keras").write_text(str(found.f_blocks * found.f_frsize))
(pathlib.Path(__file__).resolve().parent / "out").mkdir(exist_ok=True)
"""
FAILS = """
raise SystemError("no such layer")
"""


def up(daemon: PodDaemon) -> None:
    """Start a daemon whose finished Jobs stay for a while."""
    settings = json.loads(daemon.cluster_file.read_text())
    daemon.cluster_file.write_text(json.dumps(settings | {"keep_finished_s": KEEP_S}))
    daemon.up()


def condition(daemon: PodDaemon, job: str, attempt: int = 1) -> str:
    """How the cluster says that an attempt has ended, once it says so."""

    def over() -> str:
        for found in daemon.namespace.things("jobs", group=BATCH_GROUP):
            meta = found["metadata"]
            mine = meta.get("annotations", {}).get(JOB_ANNOTATION) == job
            if mine and meta["labels"][ATTEMPT_LABEL] == str(attempt):
                return _condition(found)
        return ""

    return eventually(f"the end of attempt {attempt} of {job}", over)


def _condition(job: Thing) -> str:
    for found in job["status"].get("conditions", ()):
        if found["type"] in ("Complete", "Failed") and found["status"] == "True":
            return f"{found['type']} {found.get('reason', '')}"
    return ""


def test_a_script_writes_beside_itself_and_its_files_outlive_its_pod(
    daemon: PodDaemon, one_node: None, own_cluster: Grounds
) -> None:
    up(daemon)
    fields = {"retries": 0, "user": "ada@lab", "shared_memory_gb": 2}
    record = daemon.program_record("writes", WRITES_BESIDE_ITSELF, [4], 1, **fields)
    (daemon.namespace.folder / "code" / "writes").chmod(0o755)  # its owner's alone, who is root
    job = str(daemon.json("submit", str(record))["id"])
    daemon.wait(job, "completes", state="completed")
    assert condition(daemon, job).startswith("Complete")
    (pod,) = daemon.pods_of(job)
    assert pod["metadata"]["labels"]["reshape.dev/job-name"] == "writes"
    assert pod["metadata"]["labels"]["reshape.dev/user"].startswith("ada-lab-")
    daemon.api.delete(daemon.namespace.path("pods", pod["metadata"]["name"]))
    work = daemon.namespace.shared / job / "checkpoints" / "work"
    assert (work / "final.keras").read_text() == str(2 << 30)
    assert (work / "out").exists()
    assert not (daemon.namespace.shared / "code" / "writes" / "final.keras").exists()


def test_the_kubernetes_job_of_a_training_that_failed_for_good_is_failed(
    daemon: PodDaemon, one_node: None
) -> None:
    up(daemon)
    job = daemon.submit_program("fails", FAILS, [4], 1, retries=1)
    seen = daemon.wait(job, "fails", state="failed")
    assert seen.failures == 2
    assert "no such layer" in seen.reason
    assert condition(daemon, job, seen.attempt) == "Failed BackoffLimitExceeded"
    for before in range(1, seen.attempt):
        assert condition(daemon, job, before).startswith("Complete"), "it was not the last try"


def test_an_evicted_and_a_deleted_pod_are_no_success_and_spend_no_retry(
    daemon: PodDaemon, one_node: None
) -> None:
    up(daemon)
    job = daemon.submit_counting("evicted", [4], 100_000, retries=0)
    daemon.trains(job, 4)
    pod = daemon.container(job).pod
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    daemon.api.create(daemon.namespace.path("pods", pod) + "/eviction", eviction)
    daemon.trains(job, 4, attempt=2)
    assert condition(daemon, job) == "Failed PodFailurePolicy"
    daemon.api.delete(daemon.namespace.path("pods", daemon.container(job, 2).pod), grace_s=60)
    seen = daemon.trains(job, 4, attempt=3)
    assert condition(daemon, job, 2) == "Failed BackoffLimitExceeded"
    assert (seen.failures, seen.container_restarts) == (0, 2)
